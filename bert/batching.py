"""Batches: row lengths in, the row numbers that run together and their padded arrays out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LEAST_FILL = 0.9  # a row shorter than this share of its batch's longest would be mostly padding
_FULL_ENOUGH = 512  # tokens: a smaller batch leaves the matrix products too thin to be fast


@dataclass(frozen=True)
class AnyShape:
    """Batches as long as their longest row, for engines that take every shape alike.

    Attributes:
        budget: Most tokens of a batch, filling included; at least 1. A longer row runs alone.
        equal: Whether the rows of a batch are equally long.
    """

    budget: int
    equal: bool = False
    shapes: Sequence[tuple[int, int]] = ()

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        """See `plan_batches`."""
        return plan_batches(lengths, self.budget, self.equal)

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """Returns the shape as it is."""
        return rows, length


def plan_batches(lengths: np.ndarray, budget: int, equal: bool = False) -> list[np.ndarray]:
    """Groups rows of like length, so that little is padded.

    Rows are sorted by length, longest first, equal lengths in their order. A batch holds at most
    `budget` tokens with its padding (a longer row runs alone), and ends before a row that is
    under 0.9 of its longest, once it holds 512 tokens.

    Args:
        lengths: int `[rows]`, tokens of each row.
        budget: Most padded tokens of a batch; at least 1.
        equal: Whether the rows of a batch must be of one length.

    Returns:
        int64 `[batch]` each: row numbers; every row stands in exactly one batch.

    >>> [batch.tolist() for batch in plan_batches(np.array([3, 9, 3, 8]), budget=18)]
    [[1, 3], [0, 2]]
    """
    if budget < 1:
        raise ValueError(f"--batch_tokens must be at least 1, got {budget}")
    lengths = np.asarray(lengths, np.int64)
    missing = lengths.max(initial=0) - lengths
    if missing.max(initial=0) <= np.iinfo(np.uint16).max:
        missing = missing.astype(np.uint16)  # which NumPy sorts in linear time
    order = np.argsort(missing, kind="stable")
    ordered = -lengths[order]  # ascending, so that searchsorted finds the first short row
    batches, start = [], 0
    while start < len(order):
        longest = max(int(-ordered[start]), 1)
        enough = start if equal else start - (-_FULL_ENOUGH // longest)
        least = longest if equal else _LEAST_FILL * longest
        short = int(np.searchsorted(ordered, -least, side="right"))
        stop = min(start + max(budget // longest, 1), max(short, enough), len(order))
        batches.append(order[start:stop])
        start = stop
    return batches


def pad_rows(
    values: np.ndarray, row_splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lays some rows of a flat array under each other, filled up with zeros.

    Args:
        values: int32 `[tokens]`, all rows end to end.
        row_splits: int64 `[all rows + 1]`, where each begins and ends.
        rows: int64 `[batch]`, the rows wanted.

    Returns:
        int32 `[batch, longest]`, and int32 of that shape: 1 where a value stands, 0 for filling.
    """
    starts = row_splits[rows]
    lengths = row_splits[rows + 1] - starts
    longest = int(lengths.max(initial=0))
    columns = np.arange(longest, dtype=np.int32)
    mask = (columns[None, :] < lengths.astype(np.int32)[:, None]).astype(np.int32)
    if longest == 0:
        return np.zeros(mask.shape, np.int32), mask
    values = np.ascontiguousarray(values, np.int32)
    # Each row with what follows it is taken as one piece; what is not its own is zeroed after.
    ends = len(values) - longest
    pieces = np.ndarray((ends + 1,), f"V{longest * 4}", values, strides=(4,))
    padded = pieces[np.minimum(starts, ends)].view(np.int32).reshape(mask.shape)
    for row in np.flatnonzero(starts > ends).tolist():  # behind the last ones nothing follows
        padded[row, : lengths[row]] = values[starts[row] : starts[row] + lengths[row]]
    padded *= mask
    return padded, mask
