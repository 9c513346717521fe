"""Finds the vectors of a run that are nearest to queries, exactly, in one pass over its files."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.engines.cores import available_cores
from bert_embed.formats.result_files import row_batches
from bert_embed.results import has_block_records, vector_files
from bert_embed.storage.files import is_remote
from bert_embed.storage.parallel import in_parallel
from bert_embed.storage.plurals import counted
from bert_embed.vectors import cosines, rounding

_PLACES = ("id", "start", "stop")
_PLACE_ROWS = 1 << 16  # that are read at a time, without their vectors
_TINY = np.finfo(np.float32).tiny
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hit:
    """A document, or a window or chunk of one, that is near a query."""

    score: float  # cosine of its vector and the query's
    folder: str  # the output that holds it
    file: str  # name of the file that holds its vector, below the folder
    row: int  # its row in the file
    id: str | int  # the document's id
    # Code point of the text where the window begins; None for a whole document
    start: int | None = None
    stop: int | None = None  # code point after its last, likewise
    text: str | None = None  # the document or window; None where it is not known

    @property
    def place(self) -> str:
        """The id, and the code points of a window."""
        return str(self.id) if self.start is None else f"{self.id} {self.start}:{self.stop}"


def nearest(folder: str, settings: dict[str, Any], queries: np.ndarray, k: int) -> list[list[Hit]]:
    """Finds the `k` best cosines of each query; of equal ones the first in the input's order.

    float32 products find the candidates, whose cosines are then computed in float64. So neither
    batches nor threads change a result. A vector that is not finite is no hit; a warning says
    which files hold such vectors. Queries are float32 `[queries, width]`, of unit length.
    """
    scan = _Scan(folder, settings, queries, k, not has_block_records(folder))
    files = vector_files(folder, partial=True)
    # A copy of a store's file exists until the next one is requested.
    scanned = map(scan, files) if is_remote(folder) else in_parallel(scan, files, available_cores())
    for hits in scanned:
        scan.keep(hits)
    return scan.best


def ids_among(folder: str, settings: dict[str, Any], ids: set[str]) -> set[str]:
    """Returns those of some ids, as text, whose vectors an output has."""
    present: set[str] = set()
    for path in vector_files(folder, partial=True):
        for batch in row_batches(path, settings, vectors=False, rows=_PLACE_ROWS):
            present.update(ids.intersection(map(str, batch.columns["id"].to_pylist())))
    return present


class _Scan:
    """Finds the hits of one file after the other, and keeps the best of each query, best first."""

    def __init__(
        self, folder: str, settings: dict[str, Any], queries: np.ndarray, k: int, check_pages: bool
    ) -> None:
        self._folder = folder
        self._settings, self._check_pages = settings, check_pages
        self._queries, self._k = queries, k
        self.best: list[list[Hit]] = [[] for _ in queries]
        self._floor = np.full(len(queries), -np.inf)  # below it no hit is among the best
        self._margin = rounding(queries.shape[1])

    def keep(self, hits: list[list[Hit]]) -> None:
        """Adds the hits of the next file."""
        for number, new in enumerate(hits):
            if new:
                both = sorted([*self.best[number], *new], key=lambda hit: -hit.score)
                self.best[number] = both[: self._k]
                if len(both) >= self._k:
                    self._floor[number] = self.best[number][-1].score

    def __call__(self, path: Path) -> list[list[Hit]]:
        """The hits of one file that may be among the best."""
        scores = [np.empty(0)] * len(self._queries)
        rows = [np.empty(0, np.int64)] * len(self._queries)
        floor, first, not_finite = self._floor.copy(), 0, 0
        for batch in row_batches(path, self._settings, columns=(), check_pages=self._check_pages):
            finite = _finite_rows(batch.vectors)
            not_finite += len(batch) - len(finite)
            vectors = batch.vectors[finite] if len(finite) < len(batch) else batch.vectors
            for number, near, exact in self._candidates(vectors, floor):
                both = np.append(scores[number], exact)
                order = np.argsort(-both, kind="stable")[: self._k]
                scores[number] = both[order]
                rows[number] = np.append(rows[number], finite[near] + first)[order]
                if len(order) == self._k:
                    floor[number] = max(floor[number], both[order[-1]])
            first += len(batch)
        name = f"{path.parent.name}/{path.name}"
        if not_finite:
            holds = counted(not_finite, "vector")
            _LOG.warning("%s holds %s with NaN or infinity, which are left out", name, holds)
        places = self._places(path, np.unique(np.concatenate(rows)))
        return [
            [
                Hit(score, self._folder, name, row, **places[row])
                for score, row in zip(of_query.tolist(), in_file.tolist(), strict=True)
            ]
            for of_query, in_file in zip(scores, rows, strict=True)
        ]

    def _places(self, path: Path, rows: np.ndarray) -> dict[int, dict[str, Any]]:
        """Ids, and code points of windows, of some rows of a file, int64 in order."""
        batches = row_batches(
            path, self._settings, columns=_PLACES, vectors=False, rows=_PLACE_ROWS, chosen=rows
        )
        places = [place for batch in batches for place in batch.columns.to_pylist()]
        return dict(zip(rows.tolist(), places, strict=True))

    def _candidates(
        self, vectors: np.ndarray, floor: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """For each query the rows that may be among its best, and their cosines."""
        lengths = np.sqrt(np.vecdot(vectors, vectors))
        products = self._products(vectors) / np.maximum(lengths, _TINY)[:, None]
        limits = floor.copy()
        begun = np.isinf(floor)
        if begun.any() and len(vectors) > self._k:
            limits[begun] = np.partition(products[:, begun], -self._k, axis=0)[-self._k]
        near = products >= limits - self._margin
        for number in np.flatnonzero(near.any(axis=0)).tolist():
            rows = np.flatnonzero(near[:, number])
            yield number, rows, cosines(vectors[rows], self._queries[number])

    def _products(self, vectors: np.ndarray) -> np.ndarray:
        if len(self._queries) > 1:
            return vectors @ self._queries.T
        # For so little work the threads of a matrix product cost more than they gain.
        return np.vecdot(vectors, self._queries[0])[:, None]


def _finite_rows(vectors: np.ndarray) -> np.ndarray:
    """The numbers of the rows without NaN and infinity; a NaN would sort before every hit."""
    suspects = np.flatnonzero(~np.isfinite(np.vecdot(vectors, vectors)))
    bad = suspects[~np.isfinite(vectors[suspects]).all(axis=1)]
    return np.delete(np.arange(len(vectors)), bad)
