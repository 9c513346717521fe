"""Computes with columns, ragged ones as flat values and splits, and with matrices of vectors.

A vector's length and cosines are the same whatever rows are beside it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import xxhash

_Record = TypeVar("_Record")


class SameValues:
    """A data class, made with `eq=False`, that is equal to one with the same values, NaN as NaN.

    Python's own comparison of two arrays has no one answer, and is an error.
    """

    __hash__ = None  # type: ignore[assignment]  # of what can change, as of a list

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(map(_same, vars(self).values(), vars(other).values()))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and bool(one == other)


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """Returns XXH3 (64 bits, seed 0) of each text's UTF-8, uint64 `[texts]`.

    Of 10^8 texts hardly two have the same; among a billion there is a collision in one of 37 cases.
    """
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(text.encode()) for text in texts], np.uint64)


def first_of_equal(*columns: np.ndarray) -> np.ndarray:
    """Returns which rows differ from the one before in some column, bool `[rows]`.

    >>> first_of_equal(np.array([1, 1, 2, 2]), np.array([0, 0, 0, 3])).tolist()
    [True, False, True, True]
    """
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def splits_of(lengths: np.ndarray) -> np.ndarray:
    """Returns where each row begins and ends, int64 `[rows + 1]`, from lengths, int `[rows]`.

    >>> splits_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def places(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the ranges `[start, start + length)` end to end, int64 `[sum of lengths]`.

    >>> places(np.array([7, 1]), np.array([2, 3])).tolist()
    [7, 8, 1, 2, 3]
    """
    shifts = np.asarray(starts, np.int64) - splits_of(lengths)[:-1]
    return np.arange(int(np.sum(lengths)), dtype=np.int64) + np.repeat(shifts, lengths)


def sums_of(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the sum of each row's values, int64 `[rows]`; 0 for an empty row.

    >>> sums_of(np.array([1, 2, 3]), np.array([2, 0, 1])).tolist()
    [3, 0, 3]
    """
    sums = np.zeros(len(lengths), np.int64)
    filled = np.flatnonzero(lengths)
    if len(filled):
        sums[filled] = np.add.reduceat(values, splits_of(lengths)[filled], dtype=np.int64)
    return sums


def take_rows(row_splits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of the values of some rows, int64, and the splits of these rows alone."""
    starts = row_splits[rows]
    lengths = row_splits[rows + 1] - starts
    return places(starts, lengths), splits_of(lengths)


def take(record: _Record, rows: np.ndarray) -> _Record:
    """Takes rows, int64 `[taken]`, or a mask where all are arrays, of each column of a dataclass.

    Columns are NumPy arrays, Arrow arrays and tables, lists, records, of which a ragged one has
    `splits`, and dicts of them; what is none of these stays.
    """
    columns: Any = record
    taken = {name: take_column(column, rows) for name, column in vars(record).items()}
    return replace(columns, **taken)


def take_column(column: Any, rows: np.ndarray) -> Any:
    """Takes rows of one column, None where there is none."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    if isinstance(column, dict):
        return {name: take_column(one, rows) for name, one in column.items()}
    if hasattr(column, "splits"):
        at, splits = take_rows(column.splits, rows)
        return replace(take(replace(column, splits=None), at), splits=splits)
    return column.take(rows) if hasattr(column, "to_pylist") else column  # the former of Arrow


_ROWS = 4096  # vectors that are held as float64 at a time
_TINY = np.finfo(np.float64).tiny
FINE, ZERO, NOT_FINITE = 0, 1, 2
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")  # distances count as negative numbers


def weighted_means(vectors: np.ndarray, splits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns float32 `[ranges, width]`, the mean of each range of vectors; one stays as it is."""
    merged = vectors[splits[:-1]]
    for number in np.flatnonzero(np.diff(splits) > 1):
        several = slice(splits[number], splits[number + 1])
        merged[number] = np.average(vectors[several], axis=0, weights=weights[several])
    return merged


def conditions(vectors: np.ndarray) -> np.ndarray:
    """Says which of float32 `[rows, width]` are `FINE`, `ZERO` or `NOT_FINITE`, int8 `[rows]`."""
    finite = np.isfinite(vectors).all(axis=1)
    zero = ~vectors.any(axis=1)
    return np.select([~finite, zero], [NOT_FINITE, ZERO], FINE).astype(np.int8)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales finite `[rows, width]` to float32 of unit length; zeros stay zeros."""
    scaled = np.empty(vectors.shape, np.float32)
    for at in range(0, len(vectors), _ROWS):
        wide = vectors[at : at + _ROWS].astype(np.float64)
        scaled[at : at + _ROWS] = wide / _lengths(wide)[:, None]
    return scaled


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Scales `[..., width]` to unit length within float32; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Returns float64 `[rows]`: of vectors and a query of unit length; 0 for a vector of zeros."""
    wide = vectors.astype(np.float64)
    return (wide * query).sum(axis=1) / _lengths(wide)


def pair_cosines(
    left: np.ndarray, left_rows: np.ndarray, right: np.ndarray, right_rows: np.ndarray
) -> np.ndarray:
    """Returns the cosines of pairs of rows of two matrices, float64 `[pairs]`, at most 1."""
    scores = np.empty(len(left_rows))
    for at in range(0, len(left_rows), _ROWS):
        pairs = slice(at, at + _ROWS)
        first = left[left_rows[pairs]].astype(np.float64)
        second = right[right_rows[pairs]].astype(np.float64)
        products = (first * second).sum(axis=1)
        scores[pairs] = products / (_lengths(first) * _lengths(second))
    return np.minimum(scores, 1.0)


def rounding(width: int) -> float:
    """Returns twice what rounding can change a product of float32 vectors of unit length."""
    return 2 * (width + 8) * float(np.finfo(np.float32).eps)


def _lengths(wide: np.ndarray) -> np.ndarray:
    return np.maximum(np.sqrt((wide * wide).sum(axis=1)), _TINY)
