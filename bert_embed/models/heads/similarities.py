"""Scores rows of dense, sparse and multi-vectors against queries, exactly, batch by batch."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from bert_embed.base.arguments import as_list
from bert_embed.base.arrays import cosines, rounding, splits_of, unit
from bert_embed.base.errors import SettingError, counted
from bert_embed.models.heads.vectors import (
    MultiVector,
    MultiVectors,
    SparseVector,
    SparseVectors,
    joined,
)

_LEAST, _MOST = 1e-20, 1e36  # squares of lengths that float32 computes with
# The number of a query, int64 rows of a batch, and their scores, float64
_Scored = tuple[int, np.ndarray, np.ndarray]


class Similarity(Protocol):
    """Scores vectors of one kind; neither batches nor threads change a score."""

    def __init__(self, queries: Any) -> None:
        """Takes the queries' vectors, which are of the same kind."""

    def __len__(self) -> int:
        """How many queries there are."""

    def finite(self, vectors: Any) -> np.ndarray:
        """int64, the rows without NaN and infinity; a NaN would sort before every hit."""

    def scored(self, vectors: Any, floor: np.ndarray, k: int) -> Iterator[_Scored]:
        """For each query the finite rows that may be among the `k` best, and their scores.

        `floor`, float64 `[queries]`, is what a row must reach.
        """


class Cosines:
    """Cosines of dense vectors; queries are float32 `[queries, width]`, of unit length.

    float32 products find the candidates, whose cosines are then computed in float64.
    """

    def __init__(self, queries: np.ndarray) -> None:
        self._queries, self._margin = queries, rounding(queries.shape[1])

    def __len__(self) -> int:
        return len(self._queries)

    def finite(self, vectors: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            suspects = np.flatnonzero(~np.isfinite(np.vecdot(vectors, vectors)))
        bad = suspects[~np.isfinite(vectors[suspects]).all(axis=1)]
        return np.delete(np.arange(len(vectors)), bad)

    def scored(self, vectors: np.ndarray, floor: np.ndarray, k: int) -> Iterator[_Scored]:
        with np.errstate(over="ignore", invalid="ignore"):  # of vectors longer than 1e19
            near = self._near(vectors, floor, k)
        for number in np.flatnonzero(near.any(axis=0)).tolist():
            rows = np.flatnonzero(near[:, number])
            yield number, rows, self.exact(vectors[rows], self._queries[number])

    def _near(self, vectors: np.ndarray, floor: np.ndarray, k: int) -> np.ndarray:
        """bool `[rows, queries]`: the candidates."""
        squares = np.vecdot(vectors, vectors)
        odd = np.flatnonzero((squares < _LEAST) | (squares > _MOST))
        if len(odd):
            vectors = vectors.copy()
            vectors[odd], squares[odd] = unit(vectors[odd]), 1
        products = self._products(vectors) / np.sqrt(squares)[:, None]
        return _reaching(products, floor, k, self._margin)

    def exact(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        """float64 `[rows]`: the scores."""
        return cosines(vectors, query)

    def _products(self, vectors: np.ndarray) -> np.ndarray:
        if len(self._queries) > 1:
            return vectors @ self._queries.T
        # For so little work the threads of a matrix product cost more than they gain.
        return np.vecdot(vectors, self._queries[0])[:, None]


class DotProducts(Cosines):
    """Dot products of dense vectors, of whatever length."""

    def _near(self, vectors: np.ndarray, floor: np.ndarray, k: int) -> np.ndarray:
        margin = self._margin * _longest(vectors) * np.sqrt(np.vecdot(self._queries, self._queries))
        return _reaching(self._products(vectors), floor, k, margin)

    def exact(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        return (vectors.astype(np.float64) * query).sum(axis=1)


class EuclideanDistances(Cosines):
    """Distances of dense vectors, as negative numbers."""

    def _near(self, vectors: np.ndarray, floor: np.ndarray, k: int) -> np.ndarray:
        squares = np.vecdot(self._queries, self._queries)
        rough = 2 * self._products(vectors) - squares - np.vecdot(vectors, vectors)[:, None]
        margin = 2 * self._margin * (_longest(vectors) + np.sqrt(squares)) ** 2
        return _reaching(rough, -(floor**2), k, margin)

    def exact(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        return -np.sqrt(((vectors.astype(np.float64) - query) ** 2).sum(axis=1))


class ManhattanDistances(Cosines):
    """Sums of absolute differences of dense vectors, as negative numbers."""

    def _near(self, vectors: np.ndarray, floor: np.ndarray, k: int) -> np.ndarray:
        exact = np.stack([self.exact(vectors, query) for query in self._queries], axis=1)
        return _reaching(exact, floor, k, 0)

    def exact(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        return -np.abs(vectors.astype(np.float64) - query).sum(axis=1)


DENSE: dict[str, type[Cosines]] = {
    "cosine": Cosines,
    "dot": DotProducts,
    "euclidean": EuclideanDistances,
    "manhattan": ManhattanDistances,
}


class SparseProducts:
    """Dot products of sparse vectors; rows that share no entry with a query have no score."""

    def __init__(self, queries: SparseVectors) -> None:
        # The last place stands for all indices beyond those of the queries.
        size = int(queries.indices.max(initial=-1)) + 2
        self._weights = np.zeros((len(queries), size))
        for number, weights in enumerate(self._weights):
            query = slice(*queries.splits[number : number + 2])
            weights[queries.indices[query]] = queries.values[query]
        self._is_asked = self._weights.any(axis=0)

    def __len__(self) -> int:
        return len(self._weights)

    def finite(self, vectors: SparseVectors) -> np.ndarray:
        return _finite_rows(vectors.splits, np.isfinite(vectors.values))

    def scored(self, vectors: SparseVectors, floor: np.ndarray, k: int) -> Iterator[_Scored]:
        # Few entries are in a query: the others are left out before anything is multiplied.
        at = np.flatnonzero(self._is_asked.take(vectors.indices, mode="clip"))
        rows = np.searchsorted(vectors.splits, at, side="right") - 1
        indices, values = vectors.indices[at], vectors.values[at].astype(np.float64)
        for number, weights in enumerate(self._weights):
            scores = np.bincount(rows, weights[indices] * values, minlength=len(vectors))
            near = np.flatnonzero((scores > 0) & (scores >= floor[number]))
            if len(near):
                yield number, near, scores[near]


class MaxSim:
    """For each token of a query the largest dot product with a token of the row, summed.

    Candidates are found as by `Cosines`. Rows without tokens have no score.
    """

    def __init__(self, queries: MultiVectors) -> None:
        self._queries = queries.rows()
        # What rounding can change a score where the longest token of a row has unit length
        self._margins = [
            rounding(sum(query.shape)) * float(np.sqrt(np.vecdot(query, query)).sum())
            for query in self._queries
        ]

    def __len__(self) -> int:
        return len(self._queries)

    def finite(self, vectors: MultiVectors) -> np.ndarray:
        return _finite_rows(vectors.splits, np.isfinite(vectors.vectors).all(axis=1))

    def scored(self, vectors: MultiVectors, floor: np.ndarray, k: int) -> Iterator[_Scored]:
        filled = np.flatnonzero(np.diff(vectors.splits))
        if not len(filled):
            return
        tokens, starts = vectors.vectors, vectors.splits[filled]
        longest = float(np.sqrt(np.vecdot(tokens, tokens).max()))
        for number, query in enumerate(self._queries):
            sums = np.maximum.reduceat(tokens @ query.T, starts).sum(axis=1)
            margin = self._margins[number] * longest
            near = _reaching(sums[:, None], floor[number : number + 1], k, margin)[:, 0]
            rows = filled[near]
            if len(rows):
                yield number, rows, _max_sims(vectors[rows], query)


def _finite_rows(splits: np.ndarray, are_finite: Any) -> np.ndarray:
    rows = np.searchsorted(splits, np.flatnonzero(~are_finite), side="right") - 1
    return np.delete(np.arange(len(splits) - 1), rows)


def _longest(vectors: np.ndarray) -> float:
    return float(np.sqrt(np.vecdot(vectors, vectors).max(initial=0)))


def _max_sims(vectors: MultiVectors, query: np.ndarray) -> np.ndarray:
    """float64 `[rows]`, of rows that have tokens."""
    wide, starts = vectors.vectors.astype(np.float64), vectors.splits[:-1]
    scores = np.zeros(len(vectors))
    for token in query:
        scores += np.maximum.reduceat((wide * token).sum(axis=1), starts)
    return scores


def _reaching(
    products: np.ndarray, floor: np.ndarray, k: int, margin: float | np.ndarray
) -> np.ndarray:
    """bool `[rows, queries]`: which products may be among the best; a margin for rounding.

    Those that float32 cannot hold may be.
    """
    limits = floor.copy()
    begun = np.isinf(floor)
    if begun.any() and len(products) > k:
        limits[begun] = np.partition(products[:, begun], -k, axis=0)[-k]
    return ~(products < limits - margin)


_OF_KIND: dict[str, type[Similarity]] = {"sparse": SparseProducts, "multi": MaxSim}
_ONE_ROW = ({SparseVector}, {MultiVector})
# Of dense vectors `[..., dim]`, those of one with those of the other
_PAIRS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda one, other: np.vecdot(unit(one), unit(other)),
    "dot": np.vecdot,
    "euclidean": lambda one, other: -np.linalg.norm(one - other, axis=-1),
    "manhattan": lambda one, other: -np.abs(one - other).sum(axis=-1),
}


def similarity_matrix(one: Any, other: Any, dense: str) -> np.ndarray:
    """Does what `Encoder.similarity` says; `dense` is how dense vectors are compared."""
    first, second = _same_kind(one, other)
    if not isinstance(first, np.ndarray):
        scores = np.zeros((len(first), len(second)), np.float32)
        floor = np.full(len(first), -np.inf)
        for number, rows, values in _OF_KIND[first.kind](first).scored(second, floor, len(second)):
            scores[number, rows] = values
        return scores
    if dense in ("euclidean", "manhattan"):
        negated = [_PAIRS[dense](vector, second) for vector in first]
        return np.array(negated, np.float32).reshape(len(first), len(second))
    if dense == "cosine":
        first, second = unit(first), unit(second)
    return first @ second.T


def similarity_pairs(one: Any, other: Any, dense: str) -> np.ndarray:
    """Does what `Encoder.similarity_pairwise` says."""
    first, second = _same_kind(one, other)
    if len(first) != len(second):
        raise SettingError(
            "other", f"must be {counted(len(first), 'vector')} as the first, got {len(second)}"
        )
    if isinstance(first, np.ndarray):
        return _PAIRS[dense](first, second).astype(np.float32)
    rows = (slice(row, row + 1) for row in range(len(first)))
    pairs = [similarity_matrix(first[row], second[row], dense)[0, 0] for row in rows]
    return np.array(pairs, np.float32)


def _same_kind(one: Any, other: Any) -> tuple[Any, Any]:
    """Both as `SparseVectors`, `MultiVectors` or float32 `[rows, dim]`; SettingError if not."""
    first, second = _ragged(one), _ragged(other)
    kinds = [getattr(vectors, "kind", "dense") for vectors in (first, second)]
    if kinds == ["dense", "dense"]:
        first, second = _numbers("one", first), _numbers("other", second)
        widths = first.shape[1], second.shape[1]
    elif kinds[0] == kinds[1]:
        widths = first.width, second.width
    else:
        raise SettingError("other", f"must be {kinds[0]} vectors as the first, got {kinds[1]} ones")
    if widths[0] != widths[1] and (kinds[0] == "dense" or all(widths)):
        raise SettingError("other", f"must be vectors of {widths[0]} numbers, got {widths[1]}")
    return first, second


def _ragged(vectors: Any) -> Any:
    """Rows or one of them as rows, and a SciPy array as sparse vectors; all else as it is."""
    if isinstance(vectors, list | tuple) and {*map(type, vectors)} in _ONE_ROW:
        return joined([_ragged(vector) for vector in vectors])
    if isinstance(vectors, SparseVector):
        splits = splits_of(np.array([len(vectors)]))
        return SparseVectors(splits, vectors.indices, vectors.values, vectors.width)
    if isinstance(vectors, MultiVector):
        return MultiVectors(splits_of(np.array([len(vectors)])), vectors.vectors)
    if hasattr(vectors, "tocsr") and vectors.ndim <= 2:
        rows = (vectors.reshape(1, -1) if vectors.ndim == 1 else vectors).tocsr()
        splits, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        return SparseVectors(splits, indices, rows.data.astype(np.float32), rows.shape[1])
    return vectors


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        vectors = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        try:  # a column of vectors, as pandas, Polars and Arrow have it
            vectors = np.asarray(as_list(values), np.float32)
        except (TypeError, ValueError) as error:
            raise SettingError(
                name, "must be vectors, numbers [vectors, dim] or [dim]; encode texts first"
            ) from error
    vectors = vectors[None] if vectors.ndim == 1 else vectors
    if vectors.ndim != 2:
        raise SettingError(name, f"must be numbers [vectors, dim] or [dim], got {vectors.shape}")
    return vectors
