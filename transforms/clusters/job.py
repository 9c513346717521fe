"""Defines ClusterJob, what the steps of `cluster` and `dedup` do, and what each file became."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from bert_embed.clusters.keep import WHICH_TO_KEEP
from bert_embed.clusters.neighbours import TILE, member_type
from bert_embed.formats.number_types import output_dtype
from bert_embed.formats.output_files import file_name, output_name
from bert_embed.formats.result_files import row_batches
from bert_embed.results import has_block_records, open_vectors
from bert_embed.storage.files import open_raw, size_of
from bert_embed.transforms.clusters.folder import ClusterFolder
from bert_embed.vectors import conditions

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
    conditions: np.ndarray  # int8 `[rows]`, as `bert_embed.vectors.conditions` gives them


def vector_rows(job: ClusterJob, file: VectorFile) -> Iterator[VectorRows]:
    """Reads a file of vectors in batches; InputError if it is not the file that the run wrote."""
    first, at = file.number << _FILE_BITS, 0
    check_pages = not has_block_records(file.folder)
    superseded = job.folder.superseded_rows(file.number) if file.superseded else None
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
