"""Defines the job of `cluster` and `dedup`: its settings, its folder, its record."""

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert_embed.base.arrays import conditions
from bert_embed.base.errors import InputError, counted, required
from bert_embed.base.json import from_json, json_object
from bert_embed.base.threads import in_parallel
from bert_embed.results.files import row_batches
from bert_embed.results.names import RUN_FILE, file_name, output_dtype, output_name, parse_name
from bert_embed.results.outputs import has_block_records, open_vectors
from bert_embed.results.run_record import JobRecord
from bert_embed.search.clusters import TILE, WHICH_TO_KEEP, member_type
from bert_embed.storage.file_info import crc32c_of_bytes
from bert_embed.storage.files import (
    checksum,
    join,
    list_files,
    make_below,
    make_folder,
    names_in,
    open_raw,
    read_bytes,
    remove,
    remove_folder,
    size_of,
    sizes_in,
    sweep_temporary,
    write_whole,
)
from bert_embed.transforms.output_folder import CLUSTERS, DUPLICATES, STATE

CENTROIDS = "centroids.npy"
_SAMPLES, _ASSIGNED, _COPIES, _PAIRS, _SUPERSEDED = (
    f"{STATE}/{name}" for name in ("samples", "assigned", "copies", "pairs", "superseded")
)
_WORK = (_SAMPLES, _ASSIGNED, _COPIES, _PAIRS, _SUPERSEDED)


class Progress(NamedTuple):
    """What an unfinished job has done: files sampled and assigned, ranges of clusters searched."""

    sampled: int
    clustered: int
    searched: int

    def __str__(self) -> str:
        return (
            f"sampled {self.sampled:,}, clustered {counted(self.clustered, 'file')}; "
            f"{counted(self.searched, 'range')} of clusters searched"
        )


@dataclass(frozen=True)
class ClusterFolder:
    """The files of `cluster` or `dedup`."""

    path: str  # the folder, local or remote

    @property
    def record(self) -> str:
        """Path of the record."""
        return join(self.path, RUN_FILE)

    @property
    def centroids(self) -> str:
        """Path of the centroids."""
        return join(self.path, CENTROIDS)

    def clusters(self, vectors: str) -> str:
        """Path of the clusters of a file of vectors, by its name in the run's output."""
        return self._table(CLUSTERS, vectors)

    def duplicates(self, vectors: str) -> str:
        """Path of the duplicates in a file of vectors, likewise."""
        return self._table(DUPLICATES, vectors)

    def _table(self, kind: str, vectors: str) -> str:
        name = output_name(vectors)
        return join(self.path, file_name(kind, name.block, name.part, ".parquet"))

    def sample(self, file: int) -> str:
        """Path of the sample of a file of vectors, by its number."""
        return join(self.path, f"{_SAMPLES}/{file:07d}.npy")

    def assigned(self, file: int) -> str:
        """Path of what says that a file of vectors is assigned."""
        return join(self.path, f"{_ASSIGNED}/{file:07d}.npz")

    def copies(self, file: int, segment: int) -> str:
        """Path of copies of vectors, sorted by cluster."""
        return join(self.path, f"{_COPIES}/{file:07d}-{segment:05d}.bin")

    def pairs(self, task: int) -> str:
        """Path of the pairs of some clusters."""
        return join(self.path, f"{_PAIRS}/pairs-{task:07d}.npz")

    def superseded(self, file: int) -> str:
        """Path of the rows of a file of vectors, int64, whose documents a later output has."""
        return join(self.path, f"{_SUPERSEDED}/{file:07d}.npy")

    def write(self, path: str, write: Callable[[BinaryIO], object]) -> int:
        """Writes a file of the folder, whole or not at all; returns its bytes."""
        folder = path.rpartition("/")[0]
        if folder != self.path:
            make_below(self.path, folder.removeprefix(join(self.path, "")))
        make_below(self.path, STATE)
        return write_whole(path, write, join(self.path, STATE)).size

    def write_array(self, path: str, array: np.ndarray) -> None:
        """Writes an array, not by NumPy, which does not say that a disk is full."""
        data = io.BytesIO()
        np.save(data, array)
        self.write(path, lambda out: out.write(data.getbuffer()))

    @staticmethod
    def read_array(path: str) -> np.ndarray:
        """Reads what `write_array` wrote."""
        with open_raw(path) as file:
            return np.load(file)

    def sizes(self) -> dict[str, int]:
        """The files of the result by path, and their bytes."""
        sizes = {
            join(self.path, f"{kind}/{name}"): size
            for kind in (CLUSTERS, DUPLICATES)
            for name, size in sizes_in(join(self.path, kind)).items()
        }
        size = size_of(self.centroids)
        return sizes if size is None else sizes | {self.centroids: size}

    def written(self) -> "dict[str, WrittenFiles]":
        """The files that there are, by the kind of result."""
        sizes = self.sizes()
        sums = dict(zip(sizes, in_parallel(checksum, sizes), strict=True))
        written = {}
        for kind in (CLUSTERS, DUPLICATES, CENTROIDS):
            place = join(self.path, kind)
            own = sorted(path for path in sizes if path == place or path.startswith(f"{place}/"))
            lines = [f"{path.removeprefix(place)} {sums[path]}\n" for path in own]
            crc32c = crc32c_of_bytes("".join(lines).encode())
            written[kind] = WrittenFiles(len(own), sum(sizes[path] for path in own), crc32c)
        return written

    def progress(self) -> "Progress":
        """How much an unfinished job has done."""
        counts = (len(names_in(join(self.path, kind))) for kind in (_SAMPLES, _ASSIGNED, _PAIRS))
        return Progress(*counts)

    def other_file(self) -> str | None:
        """Path of a file beside record and bookkeeping, None if there is none."""
        own = (join(self.path, f"{STATE}/"), self.record)
        paths = (file.path for file in list_files(self.path))
        return next((path for path in paths if not path.startswith(own)), None)

    def prepare(self) -> None:
        """Makes the folder; removes unfinished files of ended processes."""
        make_folder(join(self.path, STATE))
        sweep_temporary(self.path)
        sweep_temporary(join(self.path, STATE))

    def remove_work(self) -> None:
        """Removes what only an unfinished job needs: samples, copies, pairs, counts of files."""
        for kind in _WORK:
            folder = join(self.path, kind)
            remove([join(folder, name) for name in names_in(folder)])
        for kind in (*_WORK, STATE):
            remove_folder(join(self.path, kind))

    def remove_all(self) -> None:
        """Removes what `cluster` or `dedup` wrote and nothing else, the record last."""
        self.remove_work()
        for kind in (CLUSTERS, DUPLICATES):
            names = [f"{kind}/{name}" for name in names_in(join(self.path, kind))]
            remove([join(self.path, name) for name in names if parse_name(name) is not None])
            remove_folder(join(self.path, kind))
        remove([self.centroids])
        remove([self.record])


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
    crc32c: str = ""  # of a line for each with its name and its own


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


def read_cluster_record(folder: ClusterFolder) -> ClusterRecord | None:
    """Returns the record of the job in a folder, None if the folder has none."""
    data = read_bytes(folder.record)
    return None if data is None else parse_cluster_record(folder.record, data)


def parse_cluster_record(path: str, data: bytes) -> ClusterRecord:
    """Returns the record that a run.json holds; InputError if it is none, or damaged."""
    values: dict[str, Any] = json_object(data, path)
    if "command" not in values:
        raise InputError(f"{path} is not the record of cluster or dedup")
    record = from_json(ClusterRecord, values, path)
    if record.is_done and (None in (record.counts, record.written, record.ended)):
        raise InputError(f"{path} is damaged: it has no counts, written or ended")
    return record


_ROWS = 4096  # vectors that are read at a time
_COPIED = {"float16": "<f2", "ubinary": "<i1"}  # types that hold the vectors, smaller than float32
_FILE_BITS = 32  # a row's number holds that of its file above its place in the file


class VectorFile(NamedTuple):
    """A file of vectors. Steps take it as a tuple: Beam's RowCoder gives a class of its own."""

    number: int  # in the input's order
    name: str  # in its run's output
    folder: str  # the output
    first_block: int = 0  # added to its block in names of results: several outputs have the same
    superseded: int = 0  # how many of its rows are of documents that a later output has

    @property
    def result(self) -> str:
        """Its name among the results."""
        name = output_name(self.name)
        return file_name(name.kind, self.first_block + name.block, name.part, name.ending)


@dataclass(frozen=True)
class ClusterJob:
    """What to cluster, and how."""

    source: str  # output folder of a run, or folders of several, for messages
    vectors: dict[str, Any]  # the run's description of its vectors
    output: str  # folder to write to
    rows: int  # number of vectors
    n_clusters: int  # how many clusters to make
    seed: int = 0  # of the sample, the first centroids and `random`
    threshold: float | None = None  # least cosine of duplicates; None to make clusters only
    which_to_keep: str = WHICH_TO_KEEP[0]  # `hard`, `easy` or `random`
    n_nearest: int = 1  # in how many clusters, at most, a vector is compared
    memory: int = 128 << 20  # bytes of vectors that a step holds at a time, about

    @property
    def folder(self) -> ClusterFolder:
        """The paths of the job's files."""
        return ClusterFolder(self.output)

    @property
    def width(self) -> int:
        """Numbers of a vector; the layers of a stack are side by side."""
        return math.prod(self.vectors["shape"])

    @property
    def reach(self) -> float:
        """Distance of unit vectors whose cosine is `threshold`."""
        return 0.0 if self.threshold is None else math.sqrt(max(0.0, 2 - 2 * self.threshold))

    @property
    def copy_type(self) -> np.dtype:
        """A vector as it is copied, with its row and the key by which it ranks."""
        return member_type(_COPIED.get(output_dtype(self.vectors), "<f4"), self.width)

    @property
    def copy_rows(self) -> int:
        """Copies that a step holds at a time."""
        return max(1, self.memory // self.copy_type.itemsize)

    @property
    def tile_rows(self) -> int:
        """Copies of a tile."""
        return min(TILE, self.copy_rows)


@dataclass(frozen=True)
class AssignedFile:
    """What became of a file of vectors."""

    number: int  # of the file
    name: str  # of its result
    size: int  # bytes of its result
    folder: str  # the output that holds it
    source: str  # its name there
    superseded: int  # how many of its rows were left out
    rows: int  # vectors in it
    zero: int  # how many are zeros
    not_finite: int  # how many hold a number that is not finite, or are missing
    inertia: float  # sum of the distances to the centroids
    beyond: int  # vectors with more clusters within reach than they are compared in
    sizes: np.ndarray  # int64 `[clusters]`, vectors of each cluster
    copies: np.ndarray  # int64 `[segments, clusters]`, copies in each file of copies

    @property
    def clustered(self) -> int:
        """How many vectors are in a cluster."""
        return self.rows - self.zero - self.not_finite

    def save(self, folder: ClusterFolder) -> None:
        """Writes it, which says that the file is assigned."""
        values: dict[str, Any] = {
            column.name: getattr(self, column.name) for column in fields(self)
        }
        folder.write(folder.assigned(self.number), lambda file: np.savez(file, **values))

    @classmethod
    def load(cls, job: ClusterJob, number: int) -> "AssignedFile | None":
        """What `save` wrote; None if the file is not assigned yet, or what was written is gone."""
        folder = job.folder
        if size_of(folder.assigned(number)) is None:
            return None
        with open_raw(folder.assigned(number)) as file, np.load(file) as stored:
            values = {name: stored[name] for name in stored.files}
        arrays = {name: values.pop(name) for name in ("sizes", "copies")}
        loaded = cls(**{name: value.item() for name, value in values.items()}, **arrays)
        wanted = {folder.clusters(loaded.name): loaded.size}
        for segment, copies in enumerate(loaded.copies.sum(axis=1).tolist()):
            wanted[folder.copies(number, segment)] = copies * job.copy_type.itemsize
        return loaded if all(size_of(path) == size for path, size in wanted.items()) else None


@dataclass(frozen=True)
class VectorRows:
    """Some rows of a file of vectors."""

    ids: list[Any]  # the documents' ids
    rows: np.ndarray  # int64 `[rows]`, their numbers
    vectors: np.ndarray  # float32 `[rows, width]`
    conditions: np.ndarray  # int8 `[rows]`, as `bert_embed.base.arrays.conditions` gives them


def vector_rows(job: ClusterJob, file: VectorFile) -> Iterator[VectorRows]:
    """Reads a file of vectors in batches; InputError if it is not the file that the run wrote."""
    first, at = file.number << _FILE_BITS, 0
    check_pages = not has_block_records(file.folder)
    place = job.folder.superseded(file.number)
    superseded = job.folder.read_array(place) if file.superseded else None
    with open_vectors(file.folder, file.name) as path:
        for batch in row_batches(path, job.vectors, rows=_ROWS, check_pages=check_pages):
            if superseded is not None:
                rows, at = np.arange(at, at + len(batch)), at + len(batch)
                batch = batch.take(np.flatnonzero(~np.isin(rows, superseded)))
            ids = batch.columns["id"].to_pylist()
            rows = np.arange(first, first + len(ids))
            yield VectorRows(ids, rows, batch.vectors, conditions(batch.vectors))
            first += len(ids)


def place_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of files, and places within them, int64 `[rows]` each.

    >>> place_of(np.array([5, (3 << 32) + 7]))
    (array([0, 3]), array([5, 7]))
    """
    return rows >> _FILE_BITS, rows & ((1 << _FILE_BITS) - 1)
