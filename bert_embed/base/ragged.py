"""Computes with ragged columns: flat values, and splits that say where each row begins."""

import numpy as np


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
    lengths = np.diff(row_splits)[rows]
    return places(row_splits[rows], lengths), splits_of(lengths)
