"""Packs texts into rows of a few lengths: few programs are compiled, and little is padding."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bert_embed.backends.protocol import Batch, Shape
from bert_embed.backends.runner import DEVICE_BATCH_TOKENS
from bert_embed.base.arrays import splits_of

# Tokens of rows, each with the parts of a batch that programs have: all of its rows, an eighth of
# them and so on. Attention takes the square of a row's length, so long rows are for long texts.
_LENGTHS: dict[int, tuple[int, ...]] = {128: (1, 8, 128), 256: (1, 8)}
_LENGTHS_TO_LONG: dict[int, tuple[int, ...]] = {128: (1, 16), 512: (1, 4), 2048: (1,)}
_LONG = 512
_PARTS_OF_LONGEST, _PARTS_OF_LONG, _PARTS_OF_OWN = (1, 8, 32), (1,), (1, 8)
_FEWEST_TOKENS = 3  # of a text: a row has a place for each so many of its tokens
_TOO_MUCH = 0.1  # padding of a call, above which its rows get a length of their own
_STEP = 16  # tokens, in which that length grows


def usual_tokens(device: str, longest: int) -> int:
    """Returns the tokens of a batch of one chip, where texts have at most `longest`.

    A GPU computes twice as many of small models in the time that Python takes for a batch; of long
    rows they would need much memory.
    """
    return DEVICE_BATCH_TOKENS * (2 if device == "gpu" and longest <= _LONG else 1)


def most_texts(length: int) -> int:
    """Returns how many texts a row of so many tokens can hold."""
    return max(length // _FEWEST_TOKENS, 1)


@dataclass(frozen=True)
class PackedRows:
    """Packs texts of at most `longest` tokens; a batch has `budget` tokens, padding included.

    Texts that share a row follow each other in a batch.

    >>> batches = PackedRows(budget=512, longest=128).plan(np.array([100, 60, 60, 28]))
    >>> [(batch.rows.tolist(), batch.shape) for batch in batches]
    [([0, 3], (1, 128)), ([1, 2], (1, 128))]
    """

    compiles: ClassVar[bool] = True
    budget: int
    longest: int
    devices: int = 1  # which share the rows of a batch

    @property
    def shapes(self) -> list[Shape]:
        """The shapes that batches usually have: eight at most."""
        return [shape for length in self._parts for shape in self._of_length(length)]

    @cached_property
    def _parts(self) -> dict[int, tuple[int, ...]]:
        """By the lengths of rows, ascending, the parts of a batch that programs have."""
        longest = max(-(-self.longest // 8) * 8, min(_LENGTHS))
        shorter = _LENGTHS if longest <= _LONG else _LENGTHS_TO_LONG
        of_longest = _PARTS_OF_LONGEST if longest <= _LONG else _PARTS_OF_LONG
        return {one: parts for one, parts in shorter.items() if one < longest} | {
            longest: of_longest
        }

    def _of_length(self, length: int) -> list[Shape]:
        parts = self._parts.get(length, _PARTS_OF_OWN)
        counts = {self._whole(self.budget // part // length) for part in parts}
        return [(count, length) for count in sorted(counts, reverse=True)]

    def _whole(self, rows: int) -> int:
        """Returns the rows of a program: as many on each device."""
        return max(rows // self.devices, 1) * self.devices

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """Returns the batches of int `[texts]` lengths; they depend on nothing else."""
        plans, total = [tuple(self._parts)], int(np.sum(lengths))
        if not (long := plans[0][-1] > _LONG):
            plans.append((plans[0][0], plans[0][-1]))  # a middle length may leave one more batch
        best = min((self._plan(lengths, chosen) for chosen in plans), key=_tokens)
        most = (1 + _TOO_MUCH) * total
        if total > self.budget and _tokens(best) > most:
            # In long rows for several texts attention would cost more than padding does.
            own = _whole_steps(np.max(lengths)) if long else self._own_length(lengths)
            if not long or own * len(lengths) < most:
                best = min(best, self._plan(lengths, (own,)), key=_tokens)
        return best

    def _own_length(self, lengths: np.ndarray) -> int:
        """Returns the row length with the least padding where it is the only one."""
        sample = lengths[:: max(len(lengths) // 1000, 1)]
        candidates = range(_whole_steps(np.max(lengths)), max(self._parts) + 1, _STEP)

        def tokens(length: int) -> int:
            return length * sum(len(rows) for _, rows in _bins(sample, (length,)))

        return min(candidates, key=tokens)

    def _plan(self, lengths: np.ndarray, chosen: Sequence[int]) -> list[Batch]:
        bins: dict[int, list[np.ndarray]] = {}
        for length, rows in _bins(lengths, chosen):
            bins.setdefault(length, []).append(rows)
        batches = []
        for length, of_length in sorted(bins.items(), reverse=True):
            texts = np.concatenate([rows.ravel() for rows in of_length])
            counts = [np.full(len(rows), rows.shape[1]) for rows in of_length]
            splits = splits_of(np.concatenate(counts))
            shapes, start = self._of_length(length), 0
            while left := len(splits) - 1 - start:
                shape = next((shape for shape in shapes if shape[0] <= left), shapes[-1])
                stop = start + min(shape[0], left)
                batches.append(Batch(texts[splits[start] : splits[stop]], shape))
                start = stop
        return batches


def _whole_steps(length: int) -> int:
    return -(-int(length) // _STEP) * _STEP


def _tokens(batches: Sequence[Batch]) -> int:
    return sum(batch.tokens for batch in batches)


def _bins(lengths: np.ndarray, of_rows: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the length of rows, the least that is enough, and their texts, int64 `[rows, texts]`.

    A row begins with the longest text that is left; then comes, again and again, the longest that
    still fits: best fit decreasing. Rows with texts of the same lengths are found at once.
    """
    order = np.argsort(lengths, kind="stable")
    sizes, first, counts = np.unique(lengths[order], return_index=True, return_counts=True)
    known, next_text = sizes.tolist(), dict(zip(sizes.tolist(), first.tolist(), strict=True))
    left = dict(zip(known, counts.tolist(), strict=True))
    while known:
        length = of_rows[bisect.bisect_left(of_rows, known[-1])]
        space, places = length, most_texts(length)
        taken: list[tuple[int, int]] = []  # lengths of texts, and how many of a row have it
        at = len(known)
        while places and (at := bisect.bisect_right(known, space, 0, at) - 1) >= 0:
            size = known[at]
            count = min(left[size], places, space // size if size else places)
            taken.append((size, count))
            space, places = space - count * size, places - count
        rows = min(left[size] // count for size, count in taken)
        parts = []
        for size, count in taken:
            start = next_text[size]
            next_text[size] += rows * count
            parts.append(order[start : next_text[size]].reshape(rows, count))
            left[size] -= rows * count
            if not left[size]:
                known.remove(size)
        yield length, np.concatenate(parts, axis=1)


def placed(lengths: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns row, number within the row, and first token of each text, int64 `[texts]` each.

    Texts of a batch of `PackedRows`, or some of them, in its order: each goes where the one before
    it is, if it fits there. They never need more rows than the batch has.
    """
    splits = splits_of(lengths)
    ends, most = splits[1:].tolist(), most_texts(shape[1])
    firsts = [0]
    while (first := firsts[-1]) < len(ends):
        fitting = bisect.bisect_right(ends, int(splits[first]) + shape[1], first)
        firsts.append(min(fitting, first + most))
    row = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    begun = np.array(firsts)[row]
    return row, np.arange(len(ends)) - begun, splits[:-1] - splits[begun]
