"""Defines ClusterRecord, run.json of `cluster` and `dedup`."""

from dataclasses import dataclass
from typing import Any

from bert_embed.run_record import JobRecord
from bert_embed.storage.errors import InputError, required
from bert_embed.storage.files import read_bytes
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.typed_json import from_json, json_object


@dataclass(frozen=True)
class ClusterInput:
    """The output that was clustered: its folder, and the fingerprint of its run."""

    folder: str
    run: str


@dataclass(frozen=True)
class ClusterCounts:
    """What came out of a job; docs/search.md says what each number is."""

    # vectors, clustered, zero, not_finite: Vectors, and which of them are in a cluster
    vectors: int
    clustered: int
    zero: int
    not_finite: int
    clusters: int  # clusters, empty_clusters, largest_cluster: The clusters
    empty_clusters: int
    largest_cluster: int
    # inertia, mean_distance: Of the vectors to their centroids; no mean without vectors
    inertia: float
    mean_distance: float | None
    # removed, kept, pairs, compared, beyond, searches, same_id: Only of `dedup`
    removed: int | None = None
    kept: int | None = None
    pairs: int | None = None
    compared: int | None = None
    beyond: int | None = None
    searches: int | None = None
    same_id: int | None = None


@dataclass(frozen=True)
class WrittenFiles:
    """How many files of one kind there are, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ClusterRecord(JobRecord):
    """A job of `cluster` or `dedup`, as run.json describes it."""

    command: str  # which of them
    input: ClusterInput  # the output that is clustered, the first of several
    others: tuple[ClusterInput, ...] = ()  # the others
    # What came out; None until the job is done, as the other results
    counts: ClusterCounts | None = None
    sizes: tuple[int, ...] | None = None  # vectors of each cluster
    written: dict[str, WrittenFiles] | None = None  # files and bytes of each kind

    @property
    def numbers(self) -> ClusterCounts:
        """The counts of a complete job."""
        return required(self.counts, "counts of the job")


def written_files(folder: ClusterFolder) -> dict[str, WrittenFiles]:
    """The files that a folder has, by the kind of result."""
    return {kind: WrittenFiles(*numbers) for kind, numbers in folder.written().items()}


def read_cluster_record(folder: ClusterFolder) -> ClusterRecord | None:
    """Returns the record of the job in a folder, None if the folder has none."""
    data = read_bytes(folder.record)
    if data is None:
        return None
    values: dict[str, Any] = json_object(data, folder.record)
    if "command" not in values:
        raise InputError(f"{folder.record} is not the record of cluster or dedup")
    record = from_json(ClusterRecord, values, folder.record)
    if record.is_done and (None in (record.counts, record.written, record.ended)):
        raise InputError(f"{folder.record} is damaged: it has no counts, written or ended")
    return record
