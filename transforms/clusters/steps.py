"""The steps of `cluster` and `dedup`: centroids, clusters of documents, near-duplicates.

No vector passes through a shuffle: copies of them are sorted by cluster, which is one range of each
copied file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from bert_embed.base.arrays import FINE, NOT_FINITE, ZERO, unit
from bert_embed.base.errors import required
from bert_embed.results.parquet import open_parquet
from bert_embed.search.clusters import (
    PAIR,
    Assigner,
    Decided,
    NearPairs,
    decide,
    find_pairs,
    in_sample,
    rank_keys,
    sample_share,
    train,
)
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.job import (
    AssignedFile,
    ClusterFolder,
    ClusterJob,
    VectorFile,
    VectorRows,
    place_of,
    vector_rows,
)


def write_sample(job: ClusterJob, file: VectorFile) -> int:
    """Writes the sample of a file, unless an earlier attempt did; returns the file's number."""
    file, folder = VectorFile(*file), job.folder
    done = size_of(folder.centroids) is not None
    if not done and size_of(folder.sample(file.number)) is None:
        sample = _file_sample(job, file)
        folder.write_array(folder.sample(file.number), sample)
    return file.number


def _file_sample(job: ClusterJob, file: VectorFile) -> np.ndarray:
    """The vectors of a file that are in the sample, float32 `[rows, width]`, of unit length."""
    share = sample_share(job.rows, job.n_clusters)
    chosen = [np.empty((0, job.width), np.float32)]
    for batch in vector_rows(job, file):
        sampled = in_sample(batch.rows, share, job.seed) & (batch.conditions == FINE)
        chosen.append(unit(batch.vectors[sampled]))
    return np.concatenate(chosen)


def write_centroids(job: ClusterJob, files: Sequence[int]) -> str:
    """Writes the centroids of all samples, unless an earlier attempt did; returns their path."""
    folder = job.folder
    if size_of(folder.centroids) is None:
        samples = [folder.read_array(folder.sample(number)) for number in sorted(files)]
        sample = np.concatenate([np.empty((0, job.width), np.float32), *samples])
        del samples
        centroids = train(sample, job.n_clusters, job.seed)
        folder.write_array(folder.centroids, centroids)
    return folder.centroids


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


def assign_file(job: ClusterJob, file: VectorFile, assigner: Assigner) -> AssignedFile:
    """Writes the clusters of a file's vectors, then copies if duplicates are searched."""
    copies = CopyWriter(job, file.number, assigner.clusters)
    id_type = pa.type_for_alias(job.vectors.get("id_type", "string"))
    tables = [_cluster_table([], np.empty(0, np.int32), np.empty(0, np.float32), id_type)]
    inertia, beyond, conditions = 0.0, 0, np.zeros(3, int)
    for batch in vector_rows(job, file):
        fine = np.flatnonzero(batch.conditions == FINE)
        assigned = assigner(batch.vectors[fine])
        # -1 and NaN for a vector without a direction
        cluster = np.full(len(batch.ids), -1, np.int32)
        distance = np.full(len(batch.ids), np.nan, np.float32)
        cluster[fine], distance[fine] = assigned.cluster, assigned.distance
        tables.append(_cluster_table(batch.ids, cluster, distance, id_type))
        conditions += np.bincount(batch.conditions, minlength=3)
        inertia += float(assigned.distance.sum(dtype=np.float64))
        beyond += int(assigned.beyond.sum())
        if job.threshold is not None:
            places = np.column_stack([assigned.cluster, assigned.visits])
            copies.add(_members(job, batch, fine, assigned.distance), places)
    table = pa.concat_tables(tables).combine_chunks()
    path = job.folder.clusters(file.result)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": ["cluster"]}
    size = job.folder.write(path, lambda out: pq.write_table(table, out, **options))
    cluster = table["cluster"].to_numpy()
    assigned_file = AssignedFile(
        number=file.number,
        name=file.result,
        folder=file.folder,
        source=file.name,
        superseded=file.superseded,
        size=size,
        rows=len(cluster),
        zero=int(conditions[ZERO]),
        not_finite=int(conditions[NOT_FINITE]),
        inertia=inertia,
        beyond=beyond,
        sizes=np.bincount(cluster[cluster >= 0], minlength=assigner.clusters),
        copies=copies.finish(),
    )
    assigned_file.save(job.folder)
    return assigned_file


def _cluster_table(
    ids: list[Any], cluster: np.ndarray, distance: np.ndarray, id_type: pa.DataType
) -> pa.Table:
    columns = {"id": pa.array(ids, id_type), "cluster": cluster, "distance": distance}
    return pa.table(columns)


def _members(
    job: ClusterJob, batch: VectorRows, fine: np.ndarray, distances: np.ndarray
) -> np.ndarray:
    """`job.copy_type` `[fine]`: the vectors that have a direction, as they are compared."""
    chances = np.empty(0)
    if job.which_to_keep == "random":
        hashes = [
            xxhash.xxh3_64_intdigest(str(batch.ids[row]).encode(), job.seed)
            for row in fine.tolist()
        ]
        chances = np.array(hashes, np.uint64) / 2.0**64
    members = np.empty(len(fine), job.copy_type)
    members["row"], members["vector"] = batch.rows[fine], batch.vectors[fine]
    members["key"] = rank_keys(job.which_to_keep, distances, chances)
    return members


# Columns of which many rows have the same value
_REPEATED = ["kept_id", "output", "file", "kept_output", "kept_file"]


def ranges_of(job: ClusterJob, assigned_files: Sequence[AssignedFile]) -> list[ClusterRange]:
    """The ranges of clusters to search, whatever the order of the files."""
    ordered = sorted(assigned_files, key=attrgetter("number"))
    segments = [(file.number, segment) for file in ordered for segment in range(len(file.copies))]
    if not segments:
        return []
    counts = np.concatenate([file.copies for file in ordered])
    return list(cluster_ranges(segments, counts, job.copy_rows))


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


def remove_duplicates(
    job: ClusterJob, assigned_files: Sequence[AssignedFile]
) -> tuple[Decided, int, int]:
    """Which rows are removed, by the pairs that `write_pairs` wrote; pairs, and searches for them.

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
            return decided, len(pairs), searches
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
    by_number = {file.number: file for file in assigned_files}
    names = {number: file.name for number, file in by_number.items()}
    shown, at = np.unique(decided.kept, return_inverse=True)
    kept_ids, kept_places = _ids_of(job, names, shown), _places(job, by_number, shown)
    files, _ = place_of(decided.removed)
    removed_ids = []
    for number in names:
        in_file = np.flatnonzero(files == number)
        rows = pa.array(at[in_file])
        ids = _ids_of(job, names, decided.removed[in_file])
        table = pa.table(
            {
                "id": ids,
                "kept_id": kept_ids.take(rows),
                "score": decided.scores[in_file],
                **_places(job, by_number, decided.removed[in_file]),
                **{f"kept_{name}": column.take(rows) for name, column in kept_places.items()},
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
    count, (files, places) = 0, place_of(removed)
    for number, assigned_file in by_number.items():
        shares = pc.is_in(_all_ids(job, assigned_file.name), ids).to_numpy()
        count += int(np.delete(shares, places[files == number]).sum())
    return count


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
            of_file = np.delete(left, job.folder.read_array(job.folder.superseded(number)))[of_file]
        in_files.append(of_file)
    columns = {"output": pa.array(outputs, pa.string()), "file": pa.array(names, pa.string())}
    return columns | {"row": pa.array(np.concatenate(in_files))}


def _ids_of(job: ClusterJob, names: dict[int, str], rows: np.ndarray) -> pa.Array:
    """The ids of rows, which are in order."""
    files, places = place_of(rows)
    kind = pa.type_for_alias(job.vectors.get("id_type", "string"))
    columns = [pa.chunked_array([pa.array([], kind)])]
    for number in np.unique(files).tolist():
        columns.append(_all_ids(job, names[number]).take(pa.array(places[files == number])))
    return pa.chunked_array(
        [chunk for column in columns for chunk in column.chunks]
    ).combine_chunks()


def _all_ids(job: ClusterJob, name: str) -> pa.ChunkedArray:
    """The ids of a file of the result."""
    with open_raw(job.folder.clusters(name)) as raw, open_parquet(raw) as file:
        return file.read(columns=["id"])["id"]
