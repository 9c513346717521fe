"""Encodes columns as TFRecord files of tf.train.Example, with checksums, and decodes them.

A record is its length (8 bytes, little-endian), the masked CRC32C of the length, its bytes, and the
masked CRC32C of the bytes, as tensorflow/core/lib/io/record_writer.h describes it.

Encoding writes the wire format of protocol buffers, as a tf.train.Example for each record takes
longer than tokenizing its text. The bytes are those of `SerializeToString(deterministic=True)`.
TensorFlow does the decoding.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import InputError, required
from bert_embed.models.heads.head import EMBEDDING, Kind, Settings, Type
from bert_embed.results.columns import FACTS, INTEGERS, Columns, WantedColumns
from bert_embed.results.names import output_dtype

HEADER, FOOTER = 12, 4  # bytes before and after a record
_LARGEST = 1 << 28  # of a record; a larger one is no document but an attack on memory
_MASK_DELTA = 0xA282EAD8


class Record(NamedTuple):
    """A record of a file."""

    offset: int  # where its framing begins, in decompressed bytes
    data: bytes | None  # its bytes; None where the checksum differs


def masked_crc(data: bytes) -> int:
    """Returns the checksum of bytes as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def is_framed(start: bytes) -> bool:
    """Whether a file's first bytes are the length of a TFRecord and its CRC."""
    return len(start) >= 12 and struct.unpack_from("<I", start, 8)[0] == masked_crc(start[:8])


def framed(data: bytes) -> bytes:
    """Returns a record with its framing."""
    return _framed_length(len(data)) + data + struct.pack("<I", masked_crc(data))


@lru_cache(1 << 14)
def _framed_length(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc(length))


def unframed(pieces: Iterable[bytes]) -> Iterator[list[Record]]:
    """Yields the records that each piece of a file's decompressed bytes completes.

    InputError, with the offset, where a length is damaged or the file ends within a record.
    """
    held, offset = b"", 0
    for piece in pieces:
        held = held + piece if held else piece
        records, used = _whole_records(held, offset)
        offset, held = offset + used, held[used:]
        if records:
            yield records
    if held:
        raise InputError(f"it ends within the record at byte {offset}")


def _whole_records(data: bytes, offset: int) -> tuple[list[Record], int]:
    records = []
    at = 0
    while len(data) - at >= HEADER:
        size, crc = struct.unpack_from("<QI", data, at)
        if masked_crc(data[at : at + 8]) != crc or size > _LARGEST:
            raise InputError(f"the length of the record at byte {offset + at} is damaged")
        stop = at + HEADER + size
        if stop + FOOTER > len(data):
            break
        record = data[at + HEADER : stop]
        (crc,) = struct.unpack_from("<I", data, stop)
        records.append(Record(offset + at, record if masked_crc(record) == crc else None))
        at = stop + FOOTER
    return records, at


# Tags of length-delimited fields: every level begins with field 1
_BYTES, _VALUE, _FLOATS, _INTS = 0x0A, 0x12, 0x12, 0x1A


@dataclass(frozen=True)
class FeatureColumn:
    """A feature of Examples, all records end to end."""

    values: Any  # of int64 or float32; or bytes objects, to encode as a list, decoded as an array
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


def one_each(values: Any) -> FeatureColumn:
    """Returns a feature with one value for each record."""
    return FeatureColumn(values, np.arange(len(values) + 1))


def encode_records(features: Mapping[str, FeatureColumn]) -> bytes:
    """Returns a TFRecord file with an Example for each record; each feature has all records."""
    entries = [_entries(name, features[name]) for name in sorted(features)]
    records = (b"".join(of_record) for of_record in zip(*entries, strict=True))
    return b"".join(framed(_head(_BYTES, len(record)) + record) for record in records)


def _entries(name: str, feature: FeatureColumn) -> list[bytes]:
    """The map entry of a feature in each record."""
    key = _head(_BYTES, len(name.encode())) + name.encode()
    tag, values = _values(feature)

    @cache
    def before(size: int) -> bytes:
        """What precedes so many bytes of values; an empty packed field is left out."""
        head = _head(_BYTES, size) if tag != _BYTES and size else b""
        head = _head(tag, len(head) + size) + head
        head = key + _head(_VALUE, len(head) + size) + head
        return _head(_BYTES, len(head) + size) + head

    return [before(len(of_record)) + of_record for of_record in values]


def _values(feature: FeatureColumn) -> tuple[int, list[bytes]]:
    """The tag of a list of values, and those of each record as they are stored."""
    splits = feature.splits
    if isinstance(feature.values, list):
        strings = [_head(_BYTES, len(value)) + value for value in feature.values]
        if (feature.counts != 1).any():
            strings = [b"".join(strings[start:stop]) for start, stop in pairwise(splits.tolist())]
        return _BYTES, strings
    if feature.values.dtype.kind == "f":
        tag, packed = _FLOATS, np.ascontiguousarray(feature.values, "<f4")
        borders = 4 * splits.astype(np.int64)
    else:
        packed, ends = _varints(feature.values)
        tag, borders = _INTS, ends[splits]
    data = packed.tobytes()
    return tag, [data[start:stop] for start, stop in pairwise(borders.tolist())]


@lru_cache(1 << 14)
def _head(tag: int, size: int) -> bytes:
    head = [tag]
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size])


def _varints(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns bytes, uint8, ten of a negative number, and where each ends, int64 `[n + 1]`."""
    if len(numbers) == 0 or 0 <= numbers.min() <= numbers.max() < 128:
        return numbers.astype(np.uint8), np.arange(len(numbers) + 1)
    left = np.asarray(numbers, np.int64).view(np.uint64)
    sizes = np.ones(len(left), np.int64)
    bound = 7
    while int(left.max()) >> bound:
        sizes += left >= np.uint64(1 << bound)
        bound += 7
    ends = splits_of(sizes)
    out, at = np.empty(int(ends[-1]), np.uint8), ends[:-1]
    while len(left):
        last = left < 128
        out[at] = np.where(last, left, left & np.uint64(127) | np.uint64(128))
        at, left = at[~last] + 1, left[~last] >> np.uint64(7)
    return out, ends


def decode_records(
    records: Sequence[bytes], kinds: Mapping[str, type]
) -> tuple[dict[str, FeatureColumn], np.ndarray]:
    """Parses the features of Examples that `kinds` names: each is of `int`, `float` or `bytes`.

    Returns the columns of the records that are such Examples, and int64 `[parsed]`: their numbers.
    """
    readable = np.arange(len(records))
    columns = _parsed(records, kinds)
    if columns is None:
        readable = np.array(_readable(records, 0, kinds), np.int64)
        readable_records = [records[row] for row in readable.tolist()]
        columns = required(_parsed(readable_records, kinds), "column of readable Examples")
    return columns, readable


def decode_with_ids(
    records: Sequence[bytes], kinds: Mapping[str, type]
) -> tuple[dict[str, FeatureColumn], np.ndarray]:
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


def _parsed(records: Sequence[bytes], kinds: Mapping[str, type]) -> dict[str, FeatureColumn] | None:
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
        name: FeatureColumn(ragged.values.numpy(), ragged.row_splits.numpy())
        for name, ragged in parsed.items()
    }


def write_tfrecord(file: BinaryIO, table: pa.Table, kind: Kind, settings: Settings) -> None:
    """Writes a table of vectors of texts.

    `embedding` is a list of floats; other numbers are the little-endian bytes of one string, which
    `tf.io.decode_raw` takes. A sparse vector is two lists, `indices` and `values`, a score a float.
    The other features have the names of Parquet columns.
    """
    dtype, table = output_dtype(settings), table.combine_chunks()
    columns = {name: table[name].chunk(0) for name in table.column_names}
    features = {name: _feature(name, column, dtype) for name, column in columns.items()}
    file.write(encode_records(features))


def _feature(name: str, column: pa.Array, dtype: str) -> FeatureColumn:
    if pa.types.is_string(column.type):
        return one_each(column.fill_null("").cast(pa.binary()).to_pylist())
    if pa.types.is_list(column.type):
        return FeatureColumn(column.values.to_numpy(), column.offsets.to_numpy())
    if name != EMBEDDING:
        return one_each(column.to_numpy(zero_copy_only=False))
    numbers, width = column.values.to_numpy(), column.type.list_size
    if dtype == "float32":
        return FeatureColumn(numbers, np.arange(len(column) + 1) * width)
    little = numbers.reshape(len(column), width).astype(numbers.dtype.newbyteorder("<"))
    return one_each([row.tobytes() for row in little])


_FEATURES = {"float32": float, "int32": int}  # by the numbers of a column; bytes for others
_NUMBERS = dict.fromkeys((*FACTS, *INTEGERS), pa.int32())  # columns by name, with their types
_NUMBERS |= {"truncated": pa.bool_(), "text_hash": pa.int64()}
_BUFFER = 1 << 20  # bytes of a file that are read at a time


def read_tfrecord(source: BinaryIO, wanted: WantedColumns) -> Iterator[Columns]:
    """Yields the wanted columns of some rows at a time, as far as Examples have them."""
    # In the order of the other formats, of which outputs are exported together
    kinds: dict[str, type] = {"id": bytes, **dict.fromkeys(_NUMBERS, int), "text": bytes}
    kinds = {feature: kind for feature, kind in kinds.items() if wanted.has(feature)}
    types = wanted.stored
    numbers = {name: _FEATURES.get(one.numbers, bytes) for name, one in types.items()}
    records = chain.from_iterable(unframed(iter(lambda: source.read(_BUFFER), b"")))
    while batch := [record.data for record in islice(records, wanted.rows)]:
        whole = [record for record in batch if record is not None]
        features, readable = decode_records(whole, kinds | numbers)
        if len(readable) < len(batch):
            raise InputError("a record's checksum differs, or it is not a tf.train.Example")
        columns = {name: _arrow(features[name], one) for name, one in types.items()}
        for feature, kind in kinds.items():
            column = features[feature].values
            if len(column) and kind is int:
                columns[feature] = pa.array(column).cast(_NUMBERS[feature])
            elif len(column):
                columns[feature] = pa.array([text.decode() for text in column.tolist()])
        if "id" in columns and "id" in wanted.types:
            columns["id"] = columns["id"].cast(pa.type_for_alias(wanted.types["id"]))
        yield columns


def _arrow(feature: FeatureColumn, described: Type) -> pa.Array:
    """A column of vectors, whose numbers are in bytes where Examples have no such type."""
    values, little = feature.values, np.dtype(described.numbers).newbyteorder("<")
    if described.numbers not in _FEATURES:
        values = np.frombuffer(b"".join(values.tolist()), little)
    array = pa.array(values, pa.type_for_alias(described.numbers))
    if described.ragged:
        return pa.ListArray.from_arrays(pa.array(feature.splits, pa.int32()), array)
    if described.width:
        return pa.FixedSizeListArray.from_arrays(array, described.width)
    return array


def count_tfrecord(file: BinaryIO) -> int:
    """Returns the number of records of a file."""
    return sum(map(len, unframed(iter(lambda: file.read(_BUFFER), b""))))
