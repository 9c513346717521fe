"""Finds the vectors of a run that are nearest to queries, exactly, in one pass over its files."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.engines.cores import available_cores
from bert_embed.formats.result_files import SentencePlace, read_ids, read_places, sentence_batches
from bert_embed.results import has_reports, is_remote, vector_files
from bert_embed.storage.parallel import in_parallel
from bert_embed.storage.plurals import counted

_ROWS = 1024  # vectors of a batch: few enough to stay in the processor's cache
_TINY = np.finfo(np.float32).tiny
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hit:
    """A document, or a window of one where windows were kept, that is near a query.

    Attributes:
        score: Cosine of its vector and the query's.
        file: Name of the file that holds its vector, below the folder.
        at: The document's id, and the window's place in it.
        text: The document or window, None where it is not known.
        folder: The output that holds it.
    """

    score: float
    file: str
    at: SentencePlace
    text: str | None = None
    folder: str = ""

    @property
    def place(self) -> str:
        """The id, and the code points of a window.

        >>> Hit(0.5, "f", SentencePlace("a")).place, Hit(0.5, "f", SentencePlace("a", 7, 9)).place
        ('a', 'a 7:9')
        """
        at = self.at
        return str(at.id) if at.start is None else f"{at.id} {at.start}:{at.stop}"


def nearest(folder: str, settings: dict[str, Any], queries: np.ndarray, k: int) -> list[list[Hit]]:
    """Finds the `k` best cosines of each query; of equal ones the first in the input's order.

    float32 products find the candidates, whose cosines are then computed in float64. So neither
    batches nor threads change a result. A vector that is not finite is no hit; a warning says
    which files hold such vectors.

    Args:
        folder: Output folder of a run, local or gs://.
        settings: The description of its vectors.
        queries: float32 `[queries, width]`, of unit length.
        k: Number of hits.
    """
    scan = _Scan(folder, settings, queries, k, not has_reports(folder))
    files = vector_files(folder, partial=True)
    # A file of Cloud Storage exists until the next one is requested.
    found = map(scan, files) if is_remote(folder) else in_parallel(scan, files, available_cores())
    for hits in found:
        scan.keep(hits)
    return scan.best


def ids_among(folder: str, settings: dict[str, Any], ids: set[str]) -> set[str]:
    """Returns those of some ids whose vectors an output has.

    Args:
        folder: As `nearest` takes it.
        settings: Likewise.
        ids: The ids as text, also where they are numbers.
    """
    found: set[str] = set()
    for path in vector_files(folder, partial=True):
        for some in read_ids(path, settings):
            found.update(ids.intersection(map(str, some)))
    return found


class _Scan:
    """Finds the hits of one file after the other, and keeps the best.

    Attributes:
        best: The hits of each query so far, best first.
    """

    def __init__(
        self, folder: str, settings: dict[str, Any], queries: np.ndarray, k: int, check_pages: bool
    ) -> None:
        self._folder = folder
        self._settings, self._check_pages = settings, check_pages
        self._queries, self._k = queries, k
        self.best: list[list[Hit]] = [[] for _ in queries]
        self._floor = np.full(len(queries), -np.inf)  # below it no hit is among the best
        # Twice what rounding can change a product of float32 vectors and its division.
        self._margin = 2 * (queries.shape[1] + 8) * float(np.finfo(np.float32).eps)

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
        for batch in sentence_batches(path, self._settings, _ROWS, self._check_pages):
            rows_there = _finite_rows(batch.vectors)
            not_finite += len(batch.vectors) - len(rows_there)
            vectors = batch.vectors[rows_there] if not_finite else batch.vectors
            for number, near, exact in self._candidates(vectors, floor):
                both = np.append(scores[number], exact)
                order = np.argsort(-both, kind="stable")[: self._k]
                scores[number] = both[order]
                rows[number] = np.append(rows[number], rows_there[near] + first)[order]
                if len(order) == self._k:
                    floor[number] = max(floor[number], both[order[-1]])
            first += len(batch.vectors)
        wanted = np.unique(np.concatenate(rows))
        at = dict(zip(wanted.tolist(), read_places(path, self._settings, wanted), strict=True))
        name = f"{path.parent.name}/{path.name}"
        if not_finite:
            holds = counted(not_finite, "vector")
            _LOG.warning("%s holds %s with NaN or infinity, which are left out", name, holds)
        return [
            [
                Hit(score, name, at[row], folder=self._folder)
                for score, row in zip(some.tolist(), where.tolist(), strict=True)
            ]
            for some, where in zip(scores, rows, strict=True)
        ]

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


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """float64 `[rows]`, each the same whatever rows are beside it; 0 for a vector of zeros.

    Args:
        vectors: float32 `[rows, width]`.
        query: float32 `[width]`, of unit length.
    """
    wide = vectors.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1))
    return (wide * query).sum(axis=1) / np.maximum(lengths, _TINY)
