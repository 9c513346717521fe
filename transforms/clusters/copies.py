"""Writes copies of vectors sorted by cluster, and reads the members of clusters from them.

No vector passes through a shuffle: the copies of a file are sorted on their own, and a cluster is
one range of each of these files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from bert_embed.clusters.neighbours import Members
from bert_embed.storage.files import open_raw
from bert_embed.transforms.clusters.job import ClusterJob

_WRITTEN = 4096  # copies that are put together at a time


@dataclass(frozen=True)
class Copies:
    """Vectors, each with the clusters that it is compared in."""

    rows: np.ndarray  # int64 `[rows]`, numbers of rows
    keys: np.ndarray  # float64 `[rows]`, by which they rank
    vectors: np.ndarray  # float32 `[rows, width]`
    clusters: np.ndarray  # int32 `[rows, places]`, -1 for none


def sorted_copies(copies: Copies, kind: np.dtype) -> Callable[[BinaryIO], None]:
    """Returns what writes copies to a file, by cluster and in each by rank."""
    places = copies.clusters.shape[1]
    clusters = copies.clusters.ravel()
    source = np.repeat(np.arange(len(copies.rows)), places)
    order = np.lexsort((copies.rows[source], copies.keys[source], clusters))
    order = source[order[np.searchsorted(clusters[order], 0) :]]

    def write(file: BinaryIO) -> None:
        for at in range(0, len(order), _WRITTEN):
            some = order[at : at + _WRITTEN]
            records = np.empty(len(some), kind)
            records["row"], records["key"] = copies.rows[some], copies.keys[some]
            records["vector"] = copies.vectors[some]
            file.write(records.tobytes())

    return write


@dataclass(frozen=True)
class ClusterRange:
    """Some clusters, whose members are compared with each other."""

    number: int  # of the range
    # The files of copies, each as the numbers of its file of vectors and segment
    files: tuple[tuple[int, int], ...]
    starts: np.ndarray  # int64 `[files]`, where the range begins in each
    counts: np.ndarray  # int64 `[files, clusters]`, copies of each cluster in each file


def cluster_ranges(
    files: Sequence[tuple[int, int]], counts: np.ndarray, most: int
) -> Iterator[ClusterRange]:
    """Divides clusters into ranges of at most so many copies; a larger cluster is alone.

    Args:
        counts: int64 `[files, clusters]`.
    """
    totals = counts.sum(axis=0)
    starts = np.cumsum(counts, axis=1) - counts
    cuts, held = [0], 0
    for cluster, total in enumerate(totals.tolist()):
        if held and held + total > most:
            cuts.append(cluster)
            held = 0
        held += total
    cuts.append(len(totals))
    for number, (first, stop) in enumerate(pairwise(cuts)):
        there = np.flatnonzero(counts[:, first:stop].any(axis=1))
        some = tuple(files[file] for file in there.tolist())
        yield ClusterRange(number, some, starts[there, first], counts[there, first:stop])


@dataclass(frozen=True)
class Tiles:
    """The members of a cluster, in the order of ranks."""

    count: int  # number of tiles
    tile: Callable[[int], Members]  # returns one by its number


def cluster_tiles(job: ClusterJob, some: ClusterRange) -> Iterator[Tiles]:
    """Yields the members of each cluster of a range."""
    if some.counts.sum() > job.copy_rows:
        yield _large_cluster(job, some)
        return
    stops = some.starts + some.counts.sum(axis=1)
    spans = zip(some.files, some.starts.tolist(), stops.tolist(), strict=True)
    held = [_records(job, file, start, stop) for file, start, stop in spans]
    offsets = np.cumsum(some.counts, axis=1) - some.counts
    for cluster in range(some.counts.shape[1]):
        begins, sizes = offsets[:, cluster].tolist(), some.counts[:, cluster].tolist()
        parts = [
            records[begin : begin + size]
            for records, begin, size in zip(held, begins, sizes, strict=True)
        ]
        yield _small_cluster(job, parts)


def _small_cluster(job: ClusterJob, parts: list[np.ndarray]) -> Tiles:
    members, rows = _by_rank(job, parts), job.tile_rows

    def tile(number: int) -> Members:
        return members.take(np.arange(number * rows, min((number + 1) * rows, len(members))))

    return Tiles(-(-len(members) // rows), tile)


def _large_cluster(job: ClusterJob, some: ClusterRange) -> Tiles:
    """A cluster that is not held: of each file, a tile is one range, as copies are in order."""
    sizes = some.counts.sum(axis=1).tolist()
    spans = list(zip(some.files, some.starts.tolist(), sizes, strict=True))
    keys, rows = _ranks(job, spans)
    order = np.lexsort((rows, keys))
    file_of = np.repeat(np.arange(len(spans)), sizes)[order]
    cuts = [*range(0, len(order), job.tile_rows), len(order)]
    taken = np.array([np.bincount(file_of[:cut], minlength=len(spans)) for cut in cuts])

    def tile(number: int) -> Members:
        parts = []
        for place, (file, start, _) in enumerate(spans):
            begin, end = taken[number : number + 2, place].tolist()
            parts.append(_records(job, file, start + begin, start + end))
        return _by_rank(job, parts)

    return Tiles(len(cuts) - 1, tile)


def _ranks(
    job: ClusterJob, spans: Sequence[tuple[tuple[int, int], int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Keys and rows of all copies in some spans, without their vectors."""
    keys, rows = [], []
    for file, start, size in spans:
        for at in range(start, start + size, job.tile_rows):
            records = _records(job, file, at, min(at + job.tile_rows, start + size))
            keys.append(records["key"].copy())
            rows.append(records["row"].copy())
    return np.concatenate(keys), np.concatenate(rows)


def _by_rank(job: ClusterJob, parts: list[np.ndarray]) -> Members:
    records = np.concatenate([np.empty(0, job.copy_type), *parts])
    order = np.lexsort((records["row"], records["key"]))
    rows, keys = records["row"][order], records["key"][order]
    return Members(rows, keys, records["vector"][order])


def _records(job: ClusterJob, file: tuple[int, int], start: int, stop: int) -> np.ndarray:
    size = job.copy_type.itemsize
    with open_raw(job.folder.copies(*file)) as copies:
        copies.seek(start * size)
        return np.frombuffer(copies.read((stop - start) * size), job.copy_type)
