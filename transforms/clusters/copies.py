"""Writes copies of vectors sorted by cluster, a file each on its own, and reads clusters' members.

No vector passes through a shuffle; a cluster is one range of each of these files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from bert_embed.storage.files import open_raw
from bert_embed.transforms.clusters.job import ClusterJob

_WRITTEN = 4096  # copies that are put together at a time


class CopyWriter:
    """Writes copies of a file's vectors whenever as many are there as a step may hold."""

    def __init__(self, job: ClusterJob, file: int, clusters: int) -> None:
        self._job, self._file, self._clusters = job, file, clusters
        self._members: list[np.ndarray] = []
        self._places: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []

    def add(self, members: np.ndarray, places: np.ndarray) -> None:
        """Adds `job.copy_type` `[rows]`, and int32 `[rows, places]`: their clusters, or -1."""
        self._members.append(members)
        self._places.append(places)
        if sum(map(len, self._members)) >= self._job.copy_rows:
            self._write()

    def finish(self) -> np.ndarray:
        """Writes the last; returns int64 `[segments, clusters]`, the copies of each segment."""
        if any(map(len, self._members)):
            self._write()
        counts = np.array(self._counts, np.int64)
        return counts.reshape(len(self._counts), self._clusters)

    def _write(self) -> None:
        """Writes copies by cluster and in each by rank."""
        members, places = np.concatenate(self._members), np.concatenate(self._places)
        self._members, self._places = [], []
        clusters = places.ravel()
        source = np.repeat(np.arange(len(members)), places.shape[1])
        order = np.lexsort((members["row"][source], members["key"][source], clusters))
        order = order[np.searchsorted(clusters[order], 0) :]
        by_cluster = source[order]

        def write(file: BinaryIO) -> None:
            for at in range(0, len(by_cluster), _WRITTEN):
                file.write(members[by_cluster[at : at + _WRITTEN]].tobytes())

        folder = self._job.folder
        folder.write(folder.copies(self._file, len(self._counts)), write)
        self._counts.append(np.bincount(clusters[order], minlength=self._clusters))


@dataclass(frozen=True)
class ClusterRange:
    """Clusters that follow each other, whose members are read together."""

    number: int  # of the range
    # The files of copies, each as the numbers of its file of vectors and segment
    files: tuple[tuple[int, int], ...]
    starts: np.ndarray  # int64 `[files]`, where the range begins in each
    counts: np.ndarray  # int64 `[files, clusters]`, copies of each cluster in each file


def cluster_ranges(
    files: Sequence[tuple[int, int]], counts: np.ndarray, most: int
) -> Iterator[ClusterRange]:
    """Divides copies, int64 `[files, clusters]`, into ranges of `most` or of one cluster."""
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
        holding = np.flatnonzero(counts[:, first:stop].any(axis=1))
        held_in = tuple(files[file] for file in holding.tolist())
        yield ClusterRange(number, held_in, starts[holding, first], counts[holding, first:stop])


@dataclass(frozen=True)
class Tiles:
    """The members of a cluster, in the order of ranks."""

    count: int  # number of tiles
    tile: Callable[[int], np.ndarray]  # returns one by its number, `job.copy_type` `[members]`


def cluster_tiles(job: ClusterJob, clusters: ClusterRange) -> Iterator[Tiles]:
    """Yields the members of each cluster of a range."""
    if clusters.counts.sum() > job.copy_rows:
        yield _large_cluster(job, clusters)
        return
    stops = clusters.starts + clusters.counts.sum(axis=1)
    spans = zip(clusters.files, clusters.starts.tolist(), stops.tolist(), strict=True)
    of_files = [_records(job, file, start, stop) for file, start, stop in spans]
    ends = np.cumsum(clusters.counts, axis=1)
    for cluster in range(clusters.counts.shape[1]):
        stops, starts = ends[:, cluster], ends[:, cluster] - clusters.counts[:, cluster]
        parts = zip(of_files, starts.tolist(), stops.tolist(), strict=True)
        yield _small_cluster(job, [records[start:stop] for records, start, stop in parts])


def _small_cluster(job: ClusterJob, parts: list[np.ndarray]) -> Tiles:
    members, rows = _by_rank(parts), job.tile_rows
    return Tiles(-(-len(members) // rows), lambda tile: members[tile * rows : (tile + 1) * rows])


def _large_cluster(job: ClusterJob, cluster: ClusterRange) -> Tiles:
    """A cluster that is not held: of each file, a tile is one range, as copies are in order."""
    sizes = cluster.counts.sum(axis=1).tolist()
    spans = list(zip(cluster.files, cluster.starts.tolist(), sizes, strict=True))
    keys, rows = _ranks(job, spans)
    order = np.lexsort((rows, keys))
    file_of = np.repeat(np.arange(len(spans)), sizes)[order]
    cuts = [*range(0, len(order), job.tile_rows), len(order)]
    taken = np.array([np.bincount(file_of[:cut], minlength=len(spans)) for cut in cuts])

    def tile(number: int) -> np.ndarray:
        parts = []
        for place, (file, start, _) in enumerate(spans):
            begin, end = taken[number : number + 2, place].tolist()
            parts.append(_records(job, file, start + begin, start + end))
        return _by_rank(parts)

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


def _by_rank(parts: list[np.ndarray]) -> np.ndarray:
    records = np.concatenate(parts)
    return records[np.lexsort((records["row"], records["key"]))]


def _records(job: ClusterJob, file: tuple[int, int], start: int, stop: int) -> np.ndarray:
    size = job.copy_type.itemsize
    with open_raw(job.folder.copies(*file)) as copies:
        copies.seek(start * size)
        return np.frombuffer(copies.read((stop - start) * size), job.copy_type)
