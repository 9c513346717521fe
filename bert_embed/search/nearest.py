"""Finds the vectors of a run that are nearest to queries, exactly, in one pass over its files."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_embed.base.errors import InputError, counted, required
from bert_embed.models.heads.kinds import KINDS
from bert_embed.models.heads.similarities import DENSE, Similarity
from bert_embed.results.columns import python_values
from bert_embed.results.files import row_batches
from bert_embed.results.names import copied_columns
from bert_embed.results.outputs import each_file, has_block_records

_PLACES = ("id", "start", "stop")
_ROWS = 1 << 14  # that are read at a time, without their vectors
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hit:
    """A document, or a window or chunk of one, that is near a query."""

    score: float  # how similar its vector is to the query's
    folder: str  # the output that holds it
    file: str  # name of the file that holds its vector, below the folder
    row: int  # its row in the file
    id: str | int  # the document's id
    # Code point of the text where the window begins; None for a whole document
    start: int | None = None
    stop: int | None = None  # code point after its last, likewise
    text: str | None = None  # the document or window; None where it is not known
    columns: dict[str, Any] = field(default_factory=dict)  # the extra ones, by name

    @property
    def place(self) -> str:
        """The id, and the code points of a window."""
        return str(self.id) if self.start is None else f"{self.id} {self.start}:{self.stop}"


def nearest(
    folder: str,
    settings: dict[str, Any],
    queries: Any,
    k: int,
    kind: str = "sentence",
    among: Callable[[Sequence[str | int]], np.ndarray] | None = None,
    finished: frozenset[str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> list[list[Hit]]:
    """Finds the `k` best hits of each query; of equal ones the first in the input's order.

    The score of dense vectors is their cosine with the query, or what `settings` name as their
    similarity, of sparse ones the dot product, of multi-vectors MaxSim. Neither batches nor threads
    change a result. A vector that is not finite is no hit; a warning says which files hold such
    vectors.

    Args:
        folder: Output of a run.
        settings: What it says of its vectors.
        queries: float32 `[queries, width]`, for cosines of unit length; `SparseVectors` or
            `MultiVectors`.
        k: Most hits of a query.
        kind: The kind of vectors to search, one of `KINDS` that has a similarity.
        among: Says of some ids, bool `[ids]`, whose rows may be hits; None for all.
        finished: That of an `Output`, the parts that are searched; None for all that are finished.
        extra: Arrow types of the extra columns by name: hits get these, and the text that an output
            keeps; None: neither.
    """
    similarity = KINDS[kind].similarity
    if kind == "sentence":
        similarity = DENSE[settings.get("similarity", "cosine")]
    measured = required(similarity, "similarity")(queries)
    scan = _Scan(folder, settings, measured, k, kind, among, extra)
    for hits in each_file(folder, kind, scan, finished):
        scan.keep(hits)
    return scan.best


@dataclass
class _Scan:
    """Finds the hits of one file after the other, and keeps the best of each query, best first."""

    folder: str
    settings: dict[str, Any]
    similarity: Similarity
    k: int
    kind: str
    among: Callable[[Sequence[str | int]], np.ndarray] | None
    extra: Mapping[str, str] | None

    def __post_init__(self) -> None:
        self.best: list[list[Hit]] = [[] for _ in range(len(self.similarity))]
        self._floor = np.full(len(self.similarity), -np.inf)  # below it no hit is among the best
        self._check_pages = not has_block_records(self.folder)

    def keep(self, hits: list[list[Hit]]) -> None:
        """Adds the hits of the next file."""
        for number, new in enumerate(hits):
            if new:
                both = sorted([*self.best[number], *new], key=lambda hit: -hit.score)
                self.best[number] = both[: self.k]
                if len(both) >= self.k:
                    self._floor[number] = self.best[number][-1].score

    def __call__(self, path: Path, file: BinaryIO) -> list[list[Hit]]:
        """The hits of one file that may be among the best."""
        similarity = self.similarity
        scores = [np.empty(0)] * len(similarity)
        rows = [np.empty(0, np.int64)] * len(similarity)
        before, first, not_finite = self._floor.copy(), 0, 0
        floor = before.copy()
        batches = row_batches(
            *(path, self.settings),
            kind=self.kind,
            columns=() if self.among is None else ("id",),
            check_pages=self._check_pages,
            file=file,
        )
        for batch in batches:
            finite = similarity.finite(batch.vectors)
            not_finite += len(batch) - len(finite)
            if self.among is not None:
                finite = finite[self.among(batch.columns["id"].to_pylist())[finite]]
            vectors = batch.vectors[finite] if len(finite) < len(batch) else batch.vectors
            for number, near, exact in similarity.scored(vectors, floor, self.k):
                both = np.append(scores[number], exact)
                order = np.argsort(-both, kind="stable")[: self.k]
                scores[number] = both[order]
                rows[number] = np.append(rows[number], finite[near] + first)[order]
                if len(order) == self.k:
                    floor[number] = max(floor[number], both[order[-1]])
            first += len(batch)
        # Files before have as good ones, which come first.
        better = [some > least for some, least in zip(scores, before, strict=True)]
        scores = [some[is_better] for some, is_better in zip(scores, better, strict=True)]
        rows = [some[is_better] for some, is_better in zip(rows, better, strict=True)]
        name = f"{path.parent.name}/{path.name}"
        if not_finite:
            holds = counted(not_finite, "vector")
            _LOG.warning("%s holds %s with NaN or infinity, which are left out", name, holds)
        places = self._places(path, file, np.unique(np.concatenate(rows)))
        return [
            [
                Hit(score, self.folder, name, row, **places[row])
                for score, row in zip(of_query.tolist(), in_file.tolist(), strict=True)
            ]
            for of_query, in_file in zip(scores, rows, strict=True)
        ]

    def _places(self, path: Path, file: BinaryIO, rows: np.ndarray) -> dict[int, dict[str, Any]]:
        """What a hit says of some rows of a file, int64 in order, beside its score."""
        if not len(rows):  # of most files, as those before had better ones
            return {}
        copied = () if self.extra is None else copied_columns(self.settings, self.extra)
        batches = row_batches(
            *(path, self.settings),
            kind=self.kind,
            columns=(*_PLACES, *copied),
            vectors=False,
            rows=_ROWS,
            types=self.extra,
            chosen=rows,
            file=file,
        )
        places = []
        for batch in batches:
            table = batch.columns
            for name in copied:
                if name not in table.schema.names:
                    said = f"{path.name} has no column {name}, which run.json names"
                    raise InputError(f"{self.folder} is damaged: {said}")
            for values in zip(*map(python_values, table.columns), strict=True):
                row = dict(zip(table.schema.names, values, strict=True))
                columns = {name: row.pop(name) for name in copied}
                text = columns.pop("text") if copied and self.settings.get("keep_text") else None
                places.append(row | {"text": text, "columns": columns})
        return dict(zip(rows.tolist(), places, strict=True))
