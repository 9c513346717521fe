"""Encodes columns as the bytes of a TFRecord file of tf.train.Example, and decodes them.

Encoding writes the wire format of protocol buffers for all records at once, because a
tf.train.Example for each takes longer than tokenizing its text. The bytes are those of
`SerializeToString(deterministic=True)`. TensorFlow does the decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bert_embed.formats.tfrecord import FOOTER, HEADER, frame
from bert_embed.ragged import splits_of

_LENGTH_DELIMITED = 0x0A  # field 1 of that wire type, with which every level begins
_VALUE, _FLOATS, _INTS = 0x12, 0x12, 0x1A


@dataclass(frozen=True)
class Ints:
    """A feature of whole numbers."""

    values: np.ndarray  # int64 `[numbers]`, all records end to end
    splits: np.ndarray  # int64 `[records + 1]`


@dataclass(frozen=True)
class Floats:
    """A feature with the same number of values in every record: float32 `[records, values]`."""

    values: np.ndarray


@dataclass(frozen=True)
class Bytes:
    """A feature of strings of bytes."""

    values: Sequence[bytes]  # `[strings]`, all records end to end
    splits: np.ndarray | None = None  # int64 `[records + 1]`; None for one string a record


Feature = Ints | Floats | Bytes


def one_int(values: Any) -> Ints:
    """Returns a feature of one whole number for each record, `[records]`."""
    numbers = np.asarray(values).astype(np.int64)
    return Ints(numbers, np.arange(len(numbers) + 1))


def encode_records(features: Mapping[str, Feature]) -> np.ndarray:
    """Returns the bytes, uint8, of a TFRecord file with an Example for each record.

    Args:
        features: At least one, all with the same number of records.
    """
    plans = [_plan(name, features[name]) for name in sorted(features)]
    sizes = np.sum([_nested(plan.entry) for plan in plans], axis=0)
    totals = _nested(sizes)
    starts = splits_of(totals + HEADER + FOOTER)[:-1] + HEADER
    out = np.empty(int(totals.sum()) + len(totals) * (HEADER + FOOTER), np.uint8)
    cursor = _Cursor(out, starts.copy())
    cursor.put(_LENGTH_DELIMITED)
    cursor.put_number(sizes)
    for plan in plans:
        plan.write(cursor)
    frame(out, starts, totals)
    return out


class _Cursor:
    """A position in every record, which advances as the same part of each is written."""

    def __init__(self, out: np.ndarray, at: np.ndarray) -> None:
        self.out, self.at = out, at

    def put(self, *constant: int) -> None:
        self.out[self.at[:, None] + np.arange(len(constant))] = np.array(constant, np.uint8)
        self.at += len(constant)

    def put_number(self, numbers: np.ndarray) -> None:
        sizes = _varint_sizes(numbers)
        _put_varints(self.out, self.at, numbers, sizes)
        self.at += sizes


@dataclass(frozen=True)
class _Plan:
    """The size of a feature's map entry in each record, and a function that writes it."""

    entry: np.ndarray
    write: Callable[[_Cursor], None]


def _plan(name: str, feature: Feature) -> _Plan:
    key = name.encode()
    if isinstance(feature, Bytes):
        tag, payload, fill = _LENGTH_DELIMITED, *_bytes_payload(feature)
        listed = payload
    else:
        packed = _ints_payload(feature) if isinstance(feature, Ints) else _floats_payload(feature)
        tag, (payload, fill) = _INTS if isinstance(feature, Ints) else _FLOATS, packed
        listed = np.where(payload > 0, _nested(payload), 0)  # an empty packed field is left out
    value = _nested(listed)
    entry = 2 + len(key) + _nested(value)

    def write(cursor: _Cursor) -> None:
        cursor.put(_LENGTH_DELIMITED)
        cursor.put_number(entry)
        cursor.put(_LENGTH_DELIMITED, len(key), *key, _VALUE)
        cursor.put_number(value)
        cursor.put(tag)
        cursor.put_number(listed)
        if not isinstance(feature, Bytes):
            _put_packed_header(cursor, payload)
        fill(cursor.out, cursor.at)
        cursor.at += payload

    return _Plan(entry, write)


def _put_packed_header(cursor: _Cursor, payload: np.ndarray) -> None:
    filled = np.flatnonzero(payload > 0)
    inner = _Cursor(cursor.out, cursor.at[filled])
    inner.put(_LENGTH_DELIMITED)
    inner.put_number(payload[filled])
    cursor.at[filled] = inner.at


_Payload = tuple[np.ndarray, Callable[[np.ndarray, np.ndarray], None]]


def _ints_payload(feature: Ints) -> _Payload:
    packed, ends = _varints(feature.values)
    borders = ends[feature.splits]
    return np.diff(borders), _row_copier(packed, borders)


def _floats_payload(feature: Floats) -> _Payload:
    rows, width = feature.values.shape
    packed = np.ascontiguousarray(feature.values, "<f4").view(np.uint8).reshape(-1)
    return np.full(rows, 4 * width), _row_copier(packed, np.arange(rows + 1) * 4 * width)


def _row_copier(
    packed: np.ndarray, borders: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], None]:
    """Returns a function that copies rows that are end to end to the place in each record."""

    def fill(out: np.ndarray, at: np.ndarray) -> None:
        to, source = out.data, packed.data
        for place, (start, stop) in zip(at.tolist(), pairwise(borders.tolist()), strict=True):
            to[place : place + stop - start] = source[start:stop]

    return fill


def _bytes_payload(feature: Bytes) -> _Payload:
    values = feature.values
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    splits = np.arange(len(values) + 1) if feature.splits is None else feature.splits
    ends = splits_of(_nested(lengths))
    payload = np.diff(ends[splits])

    def fill(out: np.ndarray, at: np.ndarray) -> None:
        strings = np.repeat(at - ends[splits[:-1]], np.diff(splits)) + ends[:-1]
        cursor = _Cursor(out, strings)
        cursor.put(_LENGTH_DELIMITED)
        cursor.put_number(lengths)
        view = out.data
        for start, value in zip(cursor.at.tolist(), values, strict=True):
            view[start : start + len(value)] = value

    return payload, fill


def _nested(sizes: np.ndarray) -> np.ndarray:
    """Returns the sizes of fields with their tag and length."""
    return 1 + _varint_sizes(sizes) + sizes


def _varint_sizes(numbers: np.ndarray) -> np.ndarray:
    """Returns the size of each number as varint, int64 `[n]`; negative ones take ten bytes."""
    unsigned = np.asarray(numbers, np.int64).view(np.uint64)
    sizes = np.ones(len(unsigned), np.int64)
    most = int(unsigned.max(initial=0))
    bound = 7
    while most >> bound:
        sizes += unsigned >= np.uint64(1 << bound)
        bound += 7
    return sizes


def _varints(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of numbers, uint8, and where each begins and ends, int64 `[n + 1]`."""
    if len(numbers) == 0 or 0 <= numbers.min() <= numbers.max() < 128:
        return numbers.astype(np.uint8), np.arange(len(numbers) + 1)
    sizes = _varint_sizes(numbers)
    ends = splits_of(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    _put_varints(out, ends[:-1], numbers, sizes)
    return out, ends


def _put_varints(out: np.ndarray, at: np.ndarray, numbers: np.ndarray, sizes: np.ndarray) -> None:
    left = np.asarray(numbers, np.int64).view(np.uint64)
    place = 1
    while True:
        longer = np.flatnonzero(sizes > place)
        low = left.astype(np.uint8) & np.uint8(0x7F)
        low[longer] |= 0x80
        out[at] = low
        if len(longer) == 0:
            return
        at, sizes, left = at[longer] + 1, sizes[longer], left[longer] >> np.uint64(7)
        place += 1


@dataclass(frozen=True)
class Column:
    """A decoded feature, all records end to end."""

    values: np.ndarray  # int64, float32, or bytes objects
    splits: np.ndarray  # int64 `[records + 1]`; a record without the feature has no values

    @property
    def counts(self) -> np.ndarray:
        """int64 `[records]`: number of values of each record."""
        return np.diff(self.splits)

    def first(self, default: Any) -> np.ndarray:
        """Returns the first value of each record, `default` where it has none."""
        values = np.full(len(self.splits) - 1, default, self.values.dtype)
        has = self.counts > 0
        values[has] = self.values[self.splits[:-1][has]]
        return values


def decode_records(
    records: Sequence[bytes], kinds: Mapping[str, type]
) -> tuple[dict[str, Column], np.ndarray]:
    """Parses Examples.

    Args:
        records: Their bytes.
        kinds: The type of each requested feature, `int`, `float` or `bytes`.

    Returns:
        The columns of the records that are such Examples, and int64 `[parsed]`: their numbers.
    """
    readable = np.arange(len(records))
    columns = _parsed(records, kinds)
    if columns is None:
        readable = np.array(_readable(records, 0, kinds), np.int64)
        columns = _parsed([records[row] for row in readable.tolist()], kinds)
        assert columns is not None
    return columns, readable


def decode_with_ids(
    records: Sequence[bytes], kinds: Mapping[str, type]
) -> tuple[dict[str, Column], np.ndarray]:
    """Decodes records as `decode_records`, with an `id` of bytes; integers become digits."""
    columns, readable = decode_records(records, kinds)
    if len(readable) == len(records):
        return columns, readable
    numbered, others = decode_records(records, {**kinds, "id": int})
    if len(others) <= len(readable):
        return columns, readable
    digits = np.array([b"%d" % number for number in numbered["id"].values.tolist()], object)
    return numbered | {"id": replace(numbered["id"], values=digits)}, others


def _readable(records: Sequence[bytes], start: int, kinds: Mapping[str, type]) -> list[int]:
    """Returns the numbers of records that can be parsed, found by halving."""
    if _parsed(records, kinds) is not None:
        return list(range(start, start + len(records)))
    if len(records) == 1:
        return []
    half = len(records) // 2
    left, right = records[:half], records[half:]
    return [*_readable(left, start, kinds), *_readable(right, start + half, kinds)]


def _parsed(records: Sequence[bytes], kinds: Mapping[str, type]) -> dict[str, Column] | None:
    import tensorflow as tf

    types = {int: tf.int64, float: tf.float32, bytes: tf.string}
    features = {
        name: tf.io.RaggedFeature(types[kind], row_splits_dtype=tf.int64)
        for name, kind in kinds.items()
    }
    try:
        parsed = tf.io.parse_example(tf.constant(list(records), tf.string), features)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # its message quotes the bytes
        return None
    return {
        name: Column(ragged.values.numpy(), ragged.row_splits.numpy())
        for name, ragged in parsed.items()
    }


def strings(column: Column) -> list[list[bytes]]:
    """Returns a feature of bytes as a list for each record."""
    values = column.values.tolist()
    return [values[start:stop] for start, stop in pairwise(column.splits.tolist())]
