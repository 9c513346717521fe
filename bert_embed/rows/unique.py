"""Finds equal rows of tokens, so that the model computes each once."""

import functools
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bert_embed.ragged import take_rows

if TYPE_CHECKING:
    from bert_embed.rows.build import Rows

_PIECE_TOKENS = 1 << 16  # their sums fit into a core's cache
_FACTOR, _TOKEN_SHIFT = 0xBF58476D1CE4E5B9, np.uint64(0x9E3779B97F4A7C15)


def unique_rows(rows: "Rows", key: np.ndarray) -> tuple["Rows", np.ndarray]:
    """Keeps one of several equal rows, so that each runs once.

    Args:
        rows: Rows of a block.
        key: int32 `[tokens]`, what must agree in equal rows.

    Returns:
        The distinct rows, and int32 `[rows]`, which of these each row equals.
    """
    first, row = distinct_rows(key, rows.row_splits)
    if len(first) == len(row):
        return rows, row
    at, splits = take_rows(rows.row_splits, first)
    types = None if rows.token_type_ids is None else rows.token_type_ids[at]
    return type(rows)(rows.input_ids[at], splits, types, rows.truncated[first]), row


def distinct_rows(input_ids: np.ndarray, row_splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds equal rows.

    Rows are grouped by length and a 64-bit sum over their tokens, then compared token by token
    where that sum repeats, so that a collision never merges two rows.

    Args:
        input_ids: int32 `[tokens]`, with [CLS] and [SEP]; these determine where a second text
            begins, and so the type ids.
        row_splits: int64 `[rows + 1]`; none is empty.

    Returns:
        int64 `[distinct]`, the first row of each kind in order, and int32 `[rows]`, which of these
        each row equals.
    """
    every = np.arange(len(row_splits) - 1)
    sums = _row_sums(input_ids, row_splits)
    ordered = np.sort(sums)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(repeated) == 0:
        return every, every.astype(np.int32)
    kind = np.searchsorted(repeated, sums)
    alike = np.flatnonzero(repeated[np.minimum(kind, len(repeated) - 1)] == sums)
    _, first, kind = np.unique(kind[alike], return_index=True, return_inverse=True)
    leader = every.copy()
    leader[alike] = alike[first][kind]
    for row in alike[leader[alike] != alike].tolist():
        if not _equal(input_ids, row_splits, row, int(leader[row])):
            leader[row] = row
    is_first = leader == every
    number = np.cumsum(is_first) - 1
    return np.flatnonzero(is_first), number[leader].astype(np.int32)


def _row_sums(input_ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
    """uint64 `[rows]`: the sum of each row's tokens, each times a power for its place in the row.

    Powers count from the start of a piece of rows, so the places in each row are not computed; the
    powers of the inverse then correct each sum.
    """
    borders = np.searchsorted(row_splits, np.arange(0, int(row_splits[-1]), _PIECE_TOKENS))
    pieces = pairwise(np.unique([*borders, len(row_splits) - 1]).tolist())
    sums = [np.empty(0, np.uint64)]
    for first, last in pieces:
        splits = row_splits[first : last + 1] - row_splits[first]
        powers, inverses = _powers(1 << int(splits[-1]).bit_length())
        mixed = input_ids[row_splits[first] : row_splits[last]].astype(np.uint64)
        mixed += _TOKEN_SHIFT
        mixed *= powers[: len(mixed)]
        sums.append(np.add.reduceat(mixed, splits[:-1]) * inverses[splits[:-1]])
    return np.concatenate(sums)


@functools.lru_cache(maxsize=4)
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The powers of an odd number from 0 on, and those of its inverse, uint64 `[count]` each."""
    factors = np.ones((2, count), np.uint64)
    factors[:, 1:] = np.array([[_FACTOR], [pow(_FACTOR, -1, 1 << 64)]], np.uint64)
    powers, inverses = np.multiply.accumulate(factors, axis=1)
    return powers, inverses


def _equal(input_ids: np.ndarray, row_splits: np.ndarray, left: int, right: int) -> bool:
    one = input_ids[row_splits[left] : row_splits[left + 1]]
    other = input_ids[row_splits[right] : row_splits[right + 1]]
    return np.array_equal(one, other)
