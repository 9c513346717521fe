"""Ladder: row lengths in, batches of a few shapes out, for devices that compile each shape."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_SHORTEST, _LEAST_STEP = 8, 4
_STEPS_AN_OCTAVE = 4
_PARTS = (1, 4)  # a batch is full, or a quarter where a rung has few rows
_ROWS_STEP = 8  # products of fewer rows leave the device's units idle


@dataclass(frozen=True)
class Ladder:
    """Every shape that batches of rows can have.

    Attributes:
        budget: Most tokens of a batch, filling included; at least 1. A longer row runs alone.
        longest: Most tokens of a row.

    >>> Ladder(budget=256, longest=20).shapes
    [(32, 8), (8, 8), (16, 12), (5, 12), (16, 16), (4, 16), (8, 20), (3, 20)]
    """

    budget: int
    longest: int

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"--batch_tokens must be at least 1, got {self.budget}")

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of rows, ascending: steps of 4 up to 32, then four an octave."""
        return [*itertools.takewhile(lambda rung: rung < self.longest, _rungs()), self.longest]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """All of them, each as rows and tokens of a row."""
        return [(rows, length) for length in self.lengths for rows in self.row_counts(length)]

    def row_counts(self, length: int) -> list[int]:
        """Numbers of rows that batches of this length may have, descending."""
        return sorted({_whole(self.budget // part // length) for part in _PARTS}, reverse=True)

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """The shape that a batch of `plan`, or a part of one, is filled up to.

        Args:
            rows: Of the batch.
            length: Tokens of its longest row.
        """
        rung = self.lengths[int(np.searchsorted(self.lengths, length))]
        return min(count for count in self.row_counts(rung) if count >= rows), rung

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Groups rows of like length, so that little is filled.

        Rows are sorted by length, longest first, equal lengths in their order. Where a rung has
        not rows enough for a batch, shorter rows fill its places.

        Args:
            lengths: int `[rows]`, tokens of each row, none over `longest`.

        Returns:
            int64 `[batch]` each: row numbers; every row stands in exactly one batch.
        """
        lengths = np.asarray(lengths, np.int64)
        order = np.argsort(-lengths, kind="stable")
        rungs = np.searchsorted(self.lengths, lengths[order])
        batches, start = [], 0
        while start < len(order):
            rung = rungs[start]
            left = int(np.searchsorted(-rungs, -rung, side="right")) - start
            counts = self.row_counts(self.lengths[rung])
            stop = start + min((count for count in counts if count >= left), default=counts[0])
            batches.append(order[start:stop])
            start = stop
        return batches


def filled(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Fills a batch up to a shape.

    Args:
        values: int32 `[batch, longest]`, at least one row.
        shape: At least as large.

    Returns:
        int32 of that shape: zeros behind each row, and further rows like the first, for a row of
        nothing would be a division by zero.
    """
    rows, length = values.shape
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[:rows, :length] = values
    whole[rows:] = whole[0]
    return whole


def _rungs() -> Iterator[int]:
    rung = _SHORTEST
    while True:
        yield rung
        rung += max(_LEAST_STEP, (1 << rung.bit_length() - 1) // _STEPS_AN_OCTAVE)


def _whole(rows: int) -> int:
    return rows // _ROWS_STEP * _ROWS_STEP if rows >= _ROWS_STEP else max(rows, 1)
