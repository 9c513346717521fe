"""Compares keys, which are hashes of ids and texts, in NumPy; a bucket of ids at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bert_embed.transforms.records.columnar import join, take
from bert_embed.transforms.records.skip import ROW_BITS, places


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
    """The keys of the input, a row a record.

    Attributes:
        id_hash: uint64, XXH3 of the id.
        text_hash: int64, as in the output.
        block: int64, the number of the record's block.
        place: int64, part and row of the document; below 0 for a rejected record, see
            `rejected_places`.
    """

    DTYPES: ClassVar = (np.uint64, np.int64, np.int64, np.int64)
    id_hash: np.ndarray
    text_hash: np.ndarray
    block: np.ndarray
    place: np.ndarray


@dataclass(frozen=True)
class EarlierKeys(_Columns):
    """The keys of earlier outputs, a row a document.

    Attributes:
        id_hash, text_hash: As in `InputKeys`.
        output: int32, number of the output; a later one replaces an earlier one.
        file: int32, number of the file in it.
    """

    DTYPES: ClassVar = (np.uint64, np.int64, np.int32, np.int32)
    id_hash: np.ndarray
    text_hash: np.ndarray
    output: np.ndarray
    file: np.ndarray

    @property
    def file_number(self) -> np.ndarray:
        """int64 `[rows]`: one number for the file, as `file_number` gives it."""
        return self.output.astype(np.int64) << ROW_BITS | self.file


_K = TypeVar("_K", InputKeys, EarlierKeys)


@dataclass(frozen=True)
class Places(_Columns):
    """Places of documents in the input: columns of `InputKeys`."""

    DTYPES: ClassVar = (np.int64, np.int64)
    block: np.ndarray
    place: np.ndarray


def file_number(output: int, file: int) -> int:
    """One number for a file of an output."""
    return output << ROW_BITS | file


def rejected_places(part: int, rows: int) -> np.ndarray:
    """int64 `[rows]`: the places of a part's rejected records that have an id, all below 0."""
    return ~places(part, rows)


def in_buckets(keys: _K, buckets: int) -> Iterator[tuple[int, _K]]:
    """Distributes keys to buckets by their ids; all rows of an id are in one bucket."""
    high = keys.id_hash >> np.uint64(32)
    return dealt_out(keys, (high * np.uint64(buckets)) >> np.uint64(32))


def dealt_out(keys: _C, number: np.ndarray) -> Iterator[tuple[int, _C]]:
    """Groups rows by their number, integers `[rows]`."""
    order = np.argsort(number, kind="stable")
    found, starts = np.unique(number[order], return_index=True)
    pieces = np.split(order, starts[1:])  # one empty piece where there are no rows at all
    for each, rows in zip(found.tolist(), pieces, strict=False):
        yield each, keys.take(rows)


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
    there = np.zeros(len(order), bool)
    there[kind[: len(last)]] = True
    return there[kind[len(last) :]] & (inputs.place >= 0)


def _last_of_each_id(earlier: EarlierKeys) -> EarlierKeys:
    """The rows of each id in the last output that has it."""
    order = np.lexsort((-earlier.output, earlier.id_hash))
    starts = _group_starts(earlier.id_hash[order])
    output = earlier.output[order]
    last = np.repeat(output[starts], np.diff(np.append(starts, len(order))))
    return earlier.take(order[output == last])


def _group_starts(values: np.ndarray) -> np.ndarray:
    """int64 `[groups]`, where runs of equal values begin."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])


def removed_ids(inputs: InputKeys, earlier: EarlierKeys) -> EarlierKeys:
    """Ids that no record of the input has, a row each: the first one of the first output."""
    gone = earlier.take(~np.isin(earlier.id_hash, inputs.id_hash))
    order = np.lexsort((gone.file, gone.output, gone.id_hash))
    return gone.take(order[_group_starts(gone.id_hash[order])])


@dataclass(frozen=True)
class Duplicates:
    """Ids that occur more than once.

    Attributes:
        ids: How many such ids.
        surplus: How many records they have beyond one each.
        examples: Block and place of one record of some of them, a document if there is one.
    """

    ids: int = 0
    surplus: int = 0
    examples: tuple[tuple[int, int], ...] = ()


def duplicates(inputs: InputKeys, examples: int) -> Duplicates:
    """Counts ids of records, rejected ones included."""
    order = np.lexsort((inputs.place, inputs.block, inputs.place < 0, inputs.id_hash))
    starts = _group_starts(inputs.id_hash[order])
    counts = np.diff(np.append(starts, len(order)))
    first = inputs.take(order[starts[counts > 1]])
    places_found = sorted(zip(first.block.tolist(), first.place.tolist(), strict=True))
    surplus = int((counts - 1).sum())
    return Duplicates(len(first), surplus, tuple(places_found[:examples]))


def add_duplicates(several: Iterable[Duplicates], examples: int) -> Duplicates:
    """The sum over buckets."""
    listed = list(several)
    return Duplicates(
        sum(each.ids for each in listed),
        sum(each.surplus for each in listed),
        tuple(sorted(place for each in listed for place in each.examples)[:examples]),
    )
