"""Finds near vectors, decides which documents are removed, and writes what is kept instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bert_embed.clusters.keep import Decided, decide
from bert_embed.clusters.neighbours import PAIR, NearPairs, find_pairs
from bert_embed.formats.parquet_file import open_parquet
from bert_embed.storage.errors import required
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.copies import ClusterRange, cluster_ranges, cluster_tiles
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.transforms.clusters.job import AssignedFile, ClusterJob, place_of

# Columns of which many rows have the same value
_REPEATED = ["kept_id", "output", "file", "kept_output", "kept_file"]


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
    threshold = required(job.threshold, "threshold")
    of_clusters = [
        find_pairs(tiles.count, tiles.tile, threshold, wanted, removed)
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
) -> tuple[int, dict[str, int]]:
    """Writes the removed documents with the kept ones.

    Returns how many kept share a removed id, and the bytes of each file by its path.
    """
    sizes: dict[str, int] = {}
    by_number = {assigned_file.number: assigned_file for assigned_file in assigned_files}
    names = {number: assigned_file.name for number, assigned_file in by_number.items()}
    shown, at = np.unique(decided.kept, return_inverse=True)
    kept_ids, kept_places = _ids_of(job, names, shown), _places(job, by_number, shown)
    files, _ = place_of(decided.removed)
    removed_ids = []
    for number in names:
        in_file = np.flatnonzero(files == number)
        kept = pa.array(at[in_file])
        ids = _ids_of(job, names, decided.removed[in_file])
        table = pa.table(
            {
                "id": ids,
                "kept_id": kept_ids.take(kept),
                "score": decided.scores[in_file],
                **_places(job, by_number, decided.removed[in_file]),
                **{f"kept_{name}": column.take(kept) for name, column in kept_places.items()},
            }
        )
        removed_ids.append(ids)
        options: dict[str, Any] = {"compression": "zstd", "use_dictionary": _REPEATED}
        write = partial(pq.write_table, table, **options)
        path = job.folder.duplicates(names[number])
        sizes[path] = job.folder.write(path, write)
    if not len(decided.removed):
        return 0, sizes
    removed = pa.chunked_array(removed_ids).unique()
    return _kept_with(removed, job, by_number, decided.removed), sizes


def _kept_with(
    ids: pa.Array, job: ClusterJob, by_number: dict[int, AssignedFile], removed: np.ndarray
) -> int:
    """How many documents that are not removed have one of these ids."""
    found, (files, places) = 0, place_of(removed)
    for number, assigned_file in by_number.items():
        with open_raw(job.folder.clusters(assigned_file.name)) as raw, open_parquet(raw) as file:
            shares = pc.is_in(file.read(columns=["id"])["id"], ids).to_numpy()
        found += int(np.delete(shares, places[files == number]).sum())
    return found


def _places(
    job: ClusterJob, by_number: dict[int, AssignedFile], rows: np.ndarray
) -> dict[str, pa.Array]:
    """Where the vectors of rows, which are in order, are: output, file in it, row in the file."""
    files, places = place_of(rows)
    outputs, names, in_files = [], [], [np.empty(0, np.int64)]
    for number in np.unique(files).tolist():
        of_file, vectors = places[files == number], by_number[number]
        outputs += [vectors.folder] * len(of_file)
        names += [vectors.source] * len(of_file)
        if vectors.superseded:
            left = np.arange(vectors.rows + vectors.superseded)
            of_file = np.delete(left, job.folder.superseded_rows(number))[of_file]
        in_files.append(of_file)
    columns = {"output": pa.array(outputs, pa.string()), "file": pa.array(names, pa.string())}
    return columns | {"row": pa.array(np.concatenate(in_files))}


def _ids_of(job: ClusterJob, names: dict[int, str], rows: np.ndarray) -> pa.Array:
    """The ids of rows, which are in order."""
    files, places = place_of(rows)
    kind = pa.type_for_alias(job.vectors.get("id_type", "string"))
    columns = [pa.chunked_array([pa.array([], kind)])]
    for number in np.unique(files).tolist():
        with open_raw(job.folder.clusters(names[number])) as raw, open_parquet(raw) as file:
            ids = file.read(columns=["id"])["id"]
        columns.append(ids.take(pa.array(places[files == number])))
    return pa.chunked_array(
        [chunk for column in columns for chunk in column.chunks]
    ).combine_chunks()
