"""Finds near vectors, decides which documents are removed, and writes what is kept instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bert_embed.clusters.keep import Decided, decide
from bert_embed.clusters.neighbours import PAIR, NearPairs, find_pairs
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.copies import ClusterRange, cluster_ranges, cluster_tiles
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import AssignedFile, ClusterJob, place_of


def ranges_of(job: ClusterJob, assigned_files: Sequence[AssignedFile]) -> list[ClusterRange]:
    """The ranges of clusters to search, whatever the order of the files."""
    ordered = sorted(assigned_files, key=lambda assigned_file: assigned_file.number)
    files = [
        (assigned_file.number, segment)
        for assigned_file in ordered
        for segment in range(len(assigned_file.copies))
    ]
    if not files:
        return []
    counts = np.concatenate([assigned_file.copies for assigned_file in ordered])
    return list(cluster_ranges(files, counts, job.copy_rows))


def write_pairs(job: ClusterJob, clusters: ClusterRange) -> int:
    """Writes the pairs of a range, unless an earlier attempt did; returns the range's number."""
    path = job.folder.pairs(clusters.number)
    if size_of(path) is None:
        near = _near_pairs(job, clusters)
        job.folder.write(path, lambda out: np.savez(out, pairs=near.pairs, full=near.full))
    return clusters.number


def _near_pairs(
    job: ClusterJob,
    clusters: ClusterRange,
    wanted: np.ndarray | None = None,
    removed: np.ndarray | None = None,
) -> NearPairs:
    """The pairs of each cluster of a range."""
    assert job.threshold is not None
    of_clusters = [
        find_pairs(tiles.count, tiles.tile, job.threshold, wanted, removed)
        for tiles in cluster_tiles(job, clusters)
    ]
    pairs = np.concatenate([np.empty(0, PAIR), *(near.pairs for near in of_clusters)])
    full = np.concatenate([np.empty(0, np.int64), *(near.full for near in of_clusters)])
    return NearPairs(pairs, np.unique(full))


def _written_pairs(folder: ClusterFolder, number: int) -> NearPairs:
    with open_raw(folder.pairs(number)) as file, np.load(file) as arrays:
        return NearPairs(arrays["pairs"], arrays["full"])


@dataclass(frozen=True)
class Removal:
    """What was decided."""

    decided: Decided  # the rows that are removed
    pairs: int  # how many different pairs were looked at
    searches: int  # how often pairs were searched


def remove_duplicates(job: ClusterJob, assigned_files: Sequence[AssignedFile]) -> Removal:
    """Decides, from the pairs that `write_pairs` wrote, which rows are removed.

    Where a vector has more neighbours than were listed, and none of the listed is kept, the next
    ones are searched, among those that are not removed.
    """
    ranges = {clusters.number: clusters for clusters in ranges_of(job, assigned_files)}
    written = {number: _written_pairs(job.folder, number) for number in ranges}
    pairs = np.concatenate([np.empty(0, PAIR), *(near.pairs for near in written.values())])
    full = {number: near.full for number, near in written.items()}
    searches = 1
    while True:
        decided = decide(pairs, np.concatenate([np.empty(0, np.int64), *full.values()]))
        if not len(decided.undecided):
            return Removal(decided, len(pairs), searches)
        searches += 1
        for number, rows in full.items():
            wanted = np.intersect1d(rows, decided.undecided)
            if len(wanted):
                near = _near_pairs(job, ranges[number], wanted, decided.removed)
                pairs = np.concatenate([pairs, near.pairs])
                full[number] = near.full


def write_duplicates(
    job: ClusterJob, assigned_files: Sequence[AssignedFile], decided: Decided
) -> int:
    """Writes id, kept_id, score of removed documents; returns how many have the kept one's id."""
    same = 0
    names = {assigned_file.number: assigned_file.name for assigned_file in assigned_files}
    shown, at = np.unique(decided.kept, return_inverse=True)
    kept_ids = _ids_of(job, names, shown)
    files, _ = place_of(decided.removed)
    for number in names:
        in_file = np.flatnonzero(files == number)
        table = pa.table(
            {
                "id": _ids_of(job, names, decided.removed[in_file]),
                "kept_id": kept_ids.take(pa.array(at[in_file])),
                "score": decided.scores[in_file],
            }
        )
        same += pc.sum(pc.equal(table["id"], table["kept_id"])).as_py() or 0
        write = partial(pq.write_table, table, compression="zstd", use_dictionary=["kept_id"])
        job.folder.write(job.folder.duplicates(names[number]), write)
    return same


def _ids_of(job: ClusterJob, names: dict[int, str], rows: np.ndarray) -> pa.Array:
    """The ids of rows, which are in order."""
    files, places = place_of(rows)
    kind = pa.type_for_alias(job.vectors.get("id_type", "string"))
    columns = [pa.chunked_array([pa.array([], kind)])]
    for number in np.unique(files).tolist():
        with open_raw(job.folder.clusters(names[number])) as file:
            ids = pq.read_table(file, columns=["id"])["id"]
        columns.append(ids.take(pa.array(places[files == number])))
    return pa.chunked_array(
        [chunk for column in columns for chunk in column.chunks]
    ).combine_chunks()
