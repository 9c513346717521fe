"""Opens the outputs of one side of a comparison, and reads, searches and measures its vectors."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.arrays import FINE, conditions, splits_of, unit
from bert_embed.base.errors import InputError, SettingError
from bert_embed.models.heads.head import Kind
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.models.heads.vectors import MultiVector, MultiVectors, SparseVector, SparseVectors
from bert_embed.pipeline.options.commands import COMPARED
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.searched import searchable
from bert_embed.pipeline.texts import with_texts
from bert_embed.results.files import Rows, row_batches
from bert_embed.results.names import kinds_of
from bert_embed.results.outputs import (
    NewestRows,
    Output,
    each_file,
    has_block_records,
    id_hashes,
    open_outputs,
    output_folders,
    vector_settings,
)
from bert_embed.results.run_record import RunRecord
from bert_embed.search.clusters import Assigner
from bert_embed.search.nearest import Hit, nearest
from bert_embed.storage.files import absolute
from bert_embed.transforms.output_folder import OutputFolder

Vector = Any  # of one row: float32 `[width]`, `SparseVector` or `MultiVector`
_MORE = 4  # times as many rows are searched where these are of too few documents


@dataclass(frozen=True)
class Survey:
    """What a pass over all rows of a side finds."""

    unusable: int
    norms: int  # how many there are
    total: float  # of the norms
    least: float
    greatest: float
    clusters: np.ndarray  # int64 `[clusters]`, rows in each; empty where none were asked for


@dataclass(frozen=True)
class Side:
    """The outputs of one side, of which of each document the newest version counts."""

    outputs: list[Output]
    kind: Kind  # of the vectors that are compared

    @property
    def settings(self) -> dict[str, Any]:
        """What the outputs say of their vectors."""
        return self.outputs[0].settings

    @property
    def runs(self) -> list[Run]:
        """The runs, as reports take them."""
        return [
            Run(OutputFolder(output.folder), output.record)
            for output in self.outputs
            if output.record is not None
        ]

    @property
    def record(self) -> RunRecord:
        """The record of the run, or that of the first of several with the results of all."""
        runs = self.runs
        if len(runs) == 1:
            return runs[0].record
        from bert_embed.pipeline.report.content import pooled  # imports Beam

        return pooled(runs)

    @cached_property
    def newest(self) -> NewestRows:
        """Leaves out rows that a later output has."""
        return NewestRows(self.outputs, self.kind.name)

    @cached_property
    def hashes(self) -> np.ndarray:
        """uint64 `[rows]`: the hash of the id of each row."""
        return self.newest.hashes()

    @cached_property
    def documents(self) -> np.ndarray:
        """uint64, in order: the hashes of the ids, each once."""
        return np.unique(self.hashes)

    @property
    def written(self) -> int:
        """Rows in the files, newest or not."""
        records = [run.record for run in self.runs]
        return sum(
            file.rows
            for record in records
            for place in self.kind.places
            if (file := record.numbers.written.get(place))
        )

    def rows_of(self, wanted: np.ndarray) -> dict[int, tuple[Hit, Vector]]:
        """The first row of each of some documents, by the hash of its id.

        `wanted` are uint64 in order. The score of these hits is 0.
        """

        def of_file(number: int, path: Path) -> list[tuple[int, Hit, Vector]]:
            name, first, wanted_rows = f"{path.parent.name}/{path.name}", 0, []
            for batch in self._batches(number, path, ("id", "start", "stop")):
                ids = batch.columns["id"].to_pylist()
                hashes = id_hashes(ids)
                chosen = is_in(hashes, wanted) & self.newest.are_newest(number, ids)
                for row in np.flatnonzero(chosen).tolist():
                    place = batch.columns.slice(row, 1).to_pylist()[0]
                    hit = Hit(0.0, self.outputs[number].folder, name, first + row, **place)
                    wanted_rows.append((int(hashes[row]), hit, _copied(batch.vectors[row])))
                first += len(batch)
            return wanted_rows

        rows: dict[int, tuple[Hit, Vector]] = {}
        for document, hit, vector in itertools.chain.from_iterable(self._each_file(of_file)):
            rows.setdefault(document, (hit, vector))
        return rows

    def is_usable(self, vector: Vector) -> bool:
        """Whether a vector can be a query."""
        if isinstance(vector, SparseVector):
            return bool(len(vector) and np.isfinite(vector.values).all())
        if isinstance(vector, MultiVector):
            return bool(len(vector) and np.isfinite(vector.vectors).all())
        return bool(conditions(vector[None])[0] == FINE)

    def queries(self, vectors: Sequence[Vector]) -> Any:
        """Some vectors of rows as `nearest` takes queries."""
        splits = splits_of(np.array([len(vector) for vector in vectors], np.int64))
        if self.kind.vectors == "sparse":
            indices = np.concatenate([vector.indices for vector in vectors])
            return SparseVectors(splits, indices, np.concatenate([one.values for one in vectors]))
        if self.kind.vectors == "multi":
            return MultiVectors(splits, np.concatenate([vector.vectors for vector in vectors]))
        stacked = np.stack(vectors)
        return unit(stacked) if self.similarity == "cosine" else stacked

    @property
    def similarity(self) -> str:
        """What the vectors are compared by."""
        of_kind = {"sparse": SparseVectors.similarity, "multi": MultiVectors.similarity}
        return of_kind.get(self.kind.vectors) or self.settings.get("similarity", "cosine")

    def neighbours(self, queries: Any, k: int, pool: np.ndarray) -> list[list[Hit]]:
        """The `k` documents of a pool nearest to each query, each by the best of its rows.

        `pool` are the hashes of ids, uint64 in order.
        """
        is_whole = len(self.hashes) == self.written and len(self.documents) == len(pool)
        k = min(k, len(pool))
        most = k
        while True:
            of_outputs = [
                nearest(
                    *(output.folder, output.settings, queries, most, self.kind.name),
                    among=None if is_whole else self._among(number, pool),
                )
                for number, output in enumerate(self.outputs)
            ]
            rankings, is_complete = [], True
            for of_query in zip(*of_outputs, strict=True):
                hits = sorted(itertools.chain(*of_query), key=lambda hit: -hit.score)[:most]
                first: dict[str, Hit] = {}
                for hit in hits:
                    first.setdefault(str(hit.id), hit)
                is_complete &= len(first) >= k or len(hits) < most
                rankings.append(list(first.values())[:k])
            if is_complete:
                return rankings
            most *= _MORE

    def _among(self, number: int, pool: np.ndarray) -> Callable[[Sequence[str | int]], np.ndarray]:
        def among(ids: Sequence[str | int]) -> np.ndarray:
            return is_in(id_hashes(ids), pool) & self.newest.are_newest(number, ids)

        return among

    def survey(self, assigner: Assigner | None) -> Survey:
        """Measures all rows, and counts those of each cluster."""

        def of_file(number: int, path: Path) -> Survey:
            batches = self._batches(number, path, ("id",))
            newest = (self.newest.of(number, rows) for rows in batches)
            return _added([_survey(rows.vectors, assigner) for rows in newest], assigner)

        return _added(list(self._each_file(of_file)), assigner)

    def texts(self, hits: Sequence[Hit]) -> tuple[dict[tuple[str, str, int], str], str | None]:
        """The texts of hits by folder, file and row, as far as they are known; or why not."""
        texts: dict[tuple[str, str, int], str] = {}
        problem = None
        for output in self.outputs:
            few = [hit for hit in hits if hit.folder == output.folder]
            [shown], why = with_texts([few], output.settings, output.record, output.folder)
            problem = problem or (why if few else None)
            for hit in shown:
                if hit.text is not None:
                    texts[hit.folder, hit.file, hit.row] = hit.text
        return texts, problem

    def _batches(self, number: int, path: Path, columns: tuple[str, ...]) -> Iterator[Rows]:
        output = self.outputs[number]
        return row_batches(
            *(path, output.settings),
            kind=self.kind.name,
            columns=columns,
            check_pages=not has_block_records(output.folder),
        )

    def _each_file(self, read: Callable[[int, Path], Any]) -> Iterator[Any]:
        """What a function makes of each file, by the number of its output and its path."""
        for number, output in enumerate(self.outputs):
            yield from each_file(output.folder, self.kind.name, partial(read, number))


def open_side(name: str, by: str | None) -> Side:
    """Opens a side by the name that was given; InputError if it cannot be compared.

    `by` is a kind of vectors, None for the first that can be searched.
    """
    folders = [absolute(folder) for folder in output_folders(name)]
    records = [record_of_run(folder) for folder in folders]
    settings = vector_settings(folders[0], records[0])
    held, kinds = searchable(settings), " and ".join(kinds_of(settings))
    if not held:
        raise InputError(
            f"{name} holds vectors of {kinds}, which have no similarity: compare outputs of "
            f"{', '.join(COMPARED)} vectors"
        )
    kind = held[0] if by is None else by
    if kind not in held:
        raise SettingError("by", f"{by} asks for vectors that {name} lacks, it holds {kinds}")
    return Side(open_outputs(folders, ROW_KINDS[kind].name), ROW_KINDS[kind])


def is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """bool: which of uint64 `values` are among others, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.searchsorted(ordered, values)
    return ordered[np.minimum(at, len(ordered) - 1)] == values


def _copied(vector: Any) -> Vector:
    """A row that keeps no batch in memory."""
    if isinstance(vector, SparseVector):
        return SparseVector(vector.indices.copy(), vector.values.copy(), vector.width)
    if isinstance(vector, MultiVector):
        return MultiVector(vector.vectors.copy())
    return vector.copy()


def _survey(vectors: Any, assigner: Assigner | None) -> Survey:
    """Of some rows."""
    clusters = np.zeros(0 if assigner is None else assigner.clusters, np.int64)
    if isinstance(vectors, SparseVectors):
        lengths = np.diff(vectors.splits)
        squares = np.bincount(
            np.repeat(np.arange(len(vectors)), lengths),
            vectors.values.astype(np.float64) ** 2,
            minlength=len(vectors),
        )
        usable = np.isfinite(squares) & (lengths > 0)
        norms = np.sqrt(squares[usable])
    elif isinstance(vectors, MultiVectors):
        rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.splits))
        fine = conditions(vectors.vectors) == FINE
        usable = np.bincount(rows[fine], minlength=len(vectors)) > 0
        norms = np.sqrt(np.vecdot(*(vectors.vectors[fine].astype(np.float64),) * 2))
    else:
        usable = conditions(vectors) == FINE
        fine_vectors = vectors[usable]
        norms = np.sqrt(np.vecdot(*(fine_vectors.astype(np.float64),) * 2))
        if assigner is not None and assigner.clusters:
            nearest = assigner(fine_vectors).cluster
            clusters = np.bincount(nearest, minlength=assigner.clusters)
    return Survey(
        int(np.count_nonzero(~usable)),
        len(norms),
        float(norms.sum()),
        float(norms.min(initial=np.inf)),
        float(norms.max(initial=-np.inf)),
        clusters,
    )


def _added(surveys: Sequence[Survey], assigner: Assigner | None) -> Survey:
    clusters = np.zeros(0 if assigner is None else assigner.clusters, np.int64)
    return Survey(
        sum(one.unusable for one in surveys),
        sum(one.norms for one in surveys),
        sum(one.total for one in surveys),
        min((one.least for one in surveys), default=np.inf),
        max((one.greatest for one in surveys), default=-np.inf),
        clusters + sum((one.clusters for one in surveys), np.zeros_like(clusters)),
    )
