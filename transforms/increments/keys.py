"""Compares keys, which are hashes of ids and texts, in NumPy; a bucket of ids at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bert_embed.transforms.records.columnar import join, take


class _Columns:
    """A dataclass of arrays of one length."""

    DTYPES: ClassVar[tuple[Any, ...]]  # of the columns, in their order

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def take(self, rows: np.ndarray) -> Self:
        """Some rows, by their numbers or a mask."""
        return take(self, rows)

    @classmethod
    def joined(cls, several: Iterable[Self]) -> Self:
        """Rows end to end."""
        return join([cls(*(np.empty(0, dtype) for dtype in cls.DTYPES)), *several])


_C = TypeVar("_C", bound=_Columns)


@dataclass(frozen=True)
class InputKeys(_Columns):
    """The keys of the input, a row a record."""

    DTYPES: ClassVar = (np.uint64, np.int64, np.int64, np.int64)
    id_hash: np.ndarray  # uint64, XXH3 of the id
    text_hash: np.ndarray  # int64, as in the output
    block: np.ndarray  # int64, number of the record's block
    place: np.ndarray  # int64, part and row of the document


@dataclass(frozen=True)
class EarlierKeys(_Columns):
    """The keys of earlier outputs, a row a document; a later output's replace an earlier one's."""

    DTYPES: ClassVar = (np.uint64, np.int64, np.int32)
    id_hash: np.ndarray  # uint64, this and the next as in `InputKeys`
    text_hash: np.ndarray
    output: np.ndarray  # int32, number of the output


_K = TypeVar("_K", InputKeys, EarlierKeys)


@dataclass(frozen=True)
class Places(_Columns):
    """Places of documents in the input: columns of `InputKeys`."""

    DTYPES: ClassVar = (np.int64, np.int64)
    block: np.ndarray
    place: np.ndarray


def in_buckets(keys: _K, buckets: int) -> Iterator[tuple[int, _K]]:
    """Distributes keys to buckets by their ids; all rows of an id are in one bucket."""
    high = keys.id_hash >> np.uint64(32)
    return dealt_out(keys, (high * np.uint64(buckets)) >> np.uint64(32))


def dealt_out(keys: _C, number: np.ndarray) -> Iterator[tuple[int, _C]]:
    """Groups rows by their number, integers `[rows]`."""
    order = np.argsort(number, kind="stable")
    numbers, starts = np.unique(number[order], return_index=True)
    pieces = np.split(order, starts[1:])  # one empty piece where there are no rows at all
    for group, rows in zip(numbers.tolist(), pieces, strict=False):
        yield group, keys.take(rows)


def already_embedded(inputs: InputKeys, earlier: EarlierKeys) -> np.ndarray:
    """bool `[records]`: whether the last output with a record's id has its text, too."""
    last = _last_of_each_id(earlier)
    ids = np.concatenate([last.id_hash, inputs.id_hash])
    texts = np.concatenate([last.text_hash, inputs.text_hash])
    order = np.lexsort((texts, ids))
    ids, texts = ids[order], texts[order]
    begins = np.append(True, (ids[1:] != ids[:-1]) | (texts[1:] != texts[:-1]))[: len(ids)]
    kind = np.empty(len(order), np.int64)
    kind[order] = np.cumsum(begins) - 1
    has_earlier = np.zeros(len(order), bool)
    has_earlier[kind[: len(last)]] = True
    return has_earlier[kind[len(last) :]]


def _last_of_each_id(earlier: EarlierKeys) -> EarlierKeys:
    """The rows of each id in the last output that has it."""
    order = np.lexsort((-earlier.output, earlier.id_hash))
    ids = earlier.id_hash[order]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])
    output = earlier.output[order]
    last = np.repeat(output[starts], np.diff(np.append(starts, len(order))))
    return earlier.take(order[output == last])
