"""Groups rows to batches of similar length, and pads them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_embed.arguments import whole_number
from bert_embed.ragged import places

CPU_BATCH_TOKENS = 512  # so that the values between products stay in a core's cache
_LEAST_FILL = 0.9  # a row shorter than this share of its batch's longest would be mostly padding
_FULL_ENOUGH = 512  # tokens: a smaller batch leaves the matrix products too thin to be fast


@dataclass(frozen=True)
class AnyShape:
    """Pads a batch to its longest row, for engines that run every shape equally well."""

    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    equal: bool = False  # rows of a batch are equally long
    shapes: Sequence[tuple[int, int]] = ()

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        return plan_batches(lengths, self.budget, self.equal)

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """Returns the shape as it is."""
        return rows, length


def plan_batches(lengths: np.ndarray, budget: int, equal: bool = False) -> list[np.ndarray]:
    """Row numbers of batches of similar length, int64 `[batch]` each, from `lengths`, int `[rows]`.

    Rows are sorted by length, longest first, equal lengths in their order. A batch holds at most
    `budget` tokens with its padding (a longer row is a batch of its own). Once it holds 512 tokens
    it ends before the first row that is shorter than 0.9 of its longest.

    >>> [batch.tolist() for batch in plan_batches(np.array([3, 9, 3, 8]), budget=18)]
    [[1, 3], [0, 2]]
    """
    budget = whole_number("batch_tokens", budget, least=1)
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
    """Returns some rows as int32 `[batch, longest]`, padded with 0, and where they have values."""
    starts = row_splits[rows]
    lengths = row_splits[rows + 1] - starts
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    padded = np.zeros(inside.shape, np.int32)
    padded[inside] = values[places(starts, lengths)]
    return padded, inside.astype(np.int32)
