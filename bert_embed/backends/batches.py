"""Groups rows to batches, of similar length or of a few fixed shapes, and pads them."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bert_embed.base.arguments import whole_number
from bert_embed.base.arrays import places
from bert_embed.base.errors import SettingError

DEVICE_BATCH_TOKENS = 16384  # of a GPU, or a chip of a TPU: enough to use all of its units
CPU_BATCH_TOKENS = 512  # so that the values between products stay in a core's cache
_LEAST_FILL = 0.9  # a row shorter than this share of its batch's longest would be mostly padding
_FULL_ENOUGH = 512  # tokens: a smaller batch leaves the matrix products too thin to be fast


Shape = tuple[int, int]  # rows, and tokens of a row


@dataclass(frozen=True)
class Batch:
    """Rows that run together, in the shape to which they are padded or packed."""

    rows: np.ndarray  # int64 `[rows]`: their numbers
    shape: Shape

    @property
    def tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class PaddedRows:
    """Rows of a batch, or some of them, int32 `[rows, longest]` each, padded with 0."""

    input_ids: np.ndarray
    mask: np.ndarray  # 0 for padding
    type_ids: np.ndarray  # the segment of each token
    seen: np.ndarray  # 0 for tokens that no token sees, and for padding

    def some(self, rows: np.ndarray) -> "PaddedRows":
        """Returns rows by their numbers."""
        return PaddedRows(
            self.input_ids[rows], self.mask[rows], self.type_ids[rows], self.seen[rows]
        )


@dataclass(frozen=True)
class AnyShape:
    """Pads a batch to its longest row, for engines that run every shape equally well."""

    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    equal: bool = False  # rows of a batch are equally long

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        batches = plan_batches(lengths, self.budget, self.equal)
        return [Batch(rows, (len(rows), int(lengths[rows[0]]))) for rows in batches]

    def ahead(self, batches: Sequence[Batch], everything: bool) -> Sequence[Shape]:
        return ()


def plan_batches(lengths: np.ndarray, budget: int, equal: bool = False) -> list[np.ndarray]:
    """Row numbers of batches of similar length, int64 `[batch]` each, from `lengths`, int `[rows]`.

    Rows are sorted by length, longest first, equal lengths in their order. A batch holds at most
    `budget` tokens with its padding (a longer row is a batch of its own). Once it holds 512 tokens
    it ends before the first row that is shorter than 0.9 of its longest.

    >>> [batch.tolist() for batch in plan_batches(np.array([3, 9, 3, 8]), budget=18)]
    [[1, 3], [0, 2]]
    """
    if budget < 1:  # a Request checks it before
        raise SettingError("batch_tokens", f"must be at least 1, got {budget}")
    lengths = np.asarray(lengths, np.int64)
    missing = lengths.max(initial=0) - lengths
    if missing.max(initial=0) <= np.iinfo(np.uint16).max:
        missing = missing.astype(np.uint16)  # which NumPy sorts in linear time
    order = np.argsort(missing, kind="stable")
    ordered = -lengths[order]  # ascending, so that searchsorted finds the first short row
    batches, start = [], 0
    while start < len(order):
        longest = int(-ordered[start])
        enough = start if equal else start - (-_FULL_ENOUGH // max(longest, 1))
        least = longest if equal else _LEAST_FILL * longest
        short = int(np.searchsorted(ordered, -least, side="right"))
        stop = min(start + max(budget // max(longest, 1), 1), max(short, enough), len(order))
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


_SHORTEST, _LEAST_STEP = 8, 4
_STEPS_AN_OCTAVE = 4
_PARTS = (1, 4)  # a batch is full, or a quarter of that where a length has few rows
_ROWS_STEP = 8  # products of fewer rows leave the device's units idle


@dataclass(frozen=True)
class FixedShapes:
    """The shapes that batches can have: a few lengths of rows, and two sizes for each.

    >>> FixedShapes(budget=256, longest=20).shapes
    [(32, 8), (8, 8), (16, 12), (5, 12), (16, 16), (4, 16), (8, 20), (3, 20)]
    """

    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    longest: int  # most tokens of a row

    def __post_init__(self) -> None:
        whole_number("batch_tokens", self.budget, least=1)

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of rows, ascending: in steps of 4 up to 32, then four lengths an octave."""
        return [
            *itertools.takewhile(self.longest.__gt__, _lengths()),
            self.longest,
        ]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """All shapes, each as number of rows and tokens of a row."""
        return [(rows, length) for length in self.lengths for rows in self.row_counts(length)]

    def row_counts(self, length: int) -> list[int]:
        """Returns the numbers of rows that batches of this length can have, descending."""
        return sorted({_whole(self.budget // part // length) for part in _PARTS}, reverse=True)

    def ahead(self, batches: Sequence[Batch], everything: bool) -> Sequence[Shape]:
        return self.shapes if everything else ()

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """As `plan_batches`; shorter rows complete a batch of a length that has too few."""
        lengths = np.asarray(lengths, np.int64)
        order = np.argsort(-lengths, kind="stable")
        padded = np.searchsorted(self.lengths, lengths[order])
        batches, start = [], 0
        while start < len(order):
            left = int(np.searchsorted(-padded, -padded[start], side="right")) - start
            length = self.lengths[padded[start]]
            counts = self.row_counts(length)
            count = min((count for count in counts if count >= left), default=counts[0])
            batches.append(Batch(order[start : start + count], (count, length)))
            start += count
        return batches


def padded_to(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Pads int32 `[rows, length]` by 0, and by copies of the first row: empty ones divide by 0."""
    rows, length = values.shape
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[:rows, :length] = values
    whole[rows:] = whole[0]
    return whole


def _lengths() -> Iterator[int]:
    length = _SHORTEST
    while True:
        yield length
        length += max(_LEAST_STEP, (1 << length.bit_length() - 1) // _STEPS_AN_OCTAVE)


def _whole(rows: int) -> int:
    return rows // _ROWS_STEP * _ROWS_STEP if rows >= _ROWS_STEP else max(rows, 1)
