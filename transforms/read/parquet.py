"""Reads Parquet files: which columns can be used, as which types, the documents in them."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any, BinaryIO, Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bert_embed.base.arrays import sums_of
from bert_embed.base.errors import InputError, SettingError, is_passing, required
from bert_embed.base.threads import in_parallel
from bert_embed.results.columns import is_list, open_parquet
from bert_embed.storage.files import open_listed, read_bytes
from bert_embed.storage.local import REPLACED, FileInfo, refuse_pointer
from bert_embed.transforms.parts import (
    BadRecordError,
    BlockSpec,
    Content,
    Footer,
    InputFile,
    ReadPart,
    RowGroup,
    Slice,
)
from bert_embed.transforms.read.columns import (
    SOME_LACK,
    Columns,
    check_is_there,
    partitions,
    text_fields,
    within_object,
)
from bert_embed.transforms.read.lines import INVALID_UTF8, decoded, parts_in_order, positions
from bert_embed.transforms.read.records import (
    CAN_BE,
    PRINTED,
    UNFIT,
    Documents,
    Record,
    documents_of,
    fitting,
    in_range,
    loaded_type,
    record_of,
    shown,
    type_name,
)
from bert_embed.transforms.read.streams import packed_as

_NUMBER_BYTES = 8
# DuckDB's INTERVAL is 12 bytes to Arrow, and a pandas.Period a number of months or days.
_NO_VALUE, _PERIOD = pa.month_day_nano_interval(), b"pandas.period"
_SCALARS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
)
_LISTED = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string),
    pa.types.is_null,  # where all lists are empty
)
REQUIRED = {
    "text_column": "must be a string, or a list of strings",
    "text_b_column": "must be a string",
    "chunk_context": "must be a string",
    "id_column": "must be a string or an integer (pandas makes integers with nulls double, write "
    "them as Int64)",
    "extra_columns": f"a column has one type in all files of a run, and {CAN_BE}",
}


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of an extra column in the output; None if the column cannot be passed through.

    A dictionary becomes the type of its values, every kind of string, UUIDs and bytes `string`, and
    every kind of list, of numbers, booleans or strings, `list`; an extension, such as JSON, what it
    is stored as; instants with an offset are those of UTC, as Polars opens no file with the zone
    "+05:30" or "Z". All other types stay.

    >>> plain_type(pa.timestamp("us", "+05:30")), plain_type(pa.timestamp("us", "Asia/Tokyo"))
    (TimestampType(timestamp[us, tz=UTC]), TimestampType(timestamp[us, tz=Asia/Tokyo]))
    >>> plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    >>> plain_type(pa.struct([("a", pa.int64())])) is None
    True
    """
    kind = _stored(kind)
    if is_text(kind):
        return pa.string()
    if is_list(kind):
        inner = (
            kind.value_type if pa.types.is_null(kind.value_type) else plain_type(kind.value_type)
        )
        listed = inner is not None and any(is_kind(inner) for is_kind in _LISTED)
        return pa.list_(inner) if listed else None
    if pa.types.is_timestamp(kind) and kind.tz and kind.tz[0] in "+-Z":
        return pa.timestamp(kind.unit, "UTC")
    return kind if any(is_kind(kind) for is_kind in _SCALARS) else None


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type of a dictionary's values, or that in which an extension is stored; UUIDs stay."""
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and kind != pa.uuid():
        return _stored(kind.storage_type)
    return kind


def promoted(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type that holds the values of columns of all these types; None if none does.

    >>> promoted([pa.int32(), pa.float64()]), promoted([pa.int64(), pa.string()])
    (DataType(double), None)
    """
    listed = [*kinds]
    is_mixed = pa.uint64() in listed and any(map(pa.types.is_signed_integer, listed))
    # Beside these Arrow has no room for large integers
    if any(map(pa.types.is_decimal, listed)) or (
        is_mixed and all(map(pa.types.is_integer, listed))
    ):
        listed = [*map(_as_decimal, listed)]
    schemas = [pa.schema([("", kind)]) for kind in dict.fromkeys(listed)]
    try:
        kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
    decimals = [pa.types.is_decimal(schema.field(0).type) for schema in schemas]
    return None if any(decimals) and not pa.types.is_decimal(kind) else kind


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    whole = pa.types.is_integer(kind)
    return pa.decimal128(len(str(2**kind.bit_width)), 0) if whole else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings, in any layout, also one that does not say so, or UUIDs."""
    kind = _stored(kind)
    return kind in (pa.string(), pa.large_string(), pa.string_view(), pa.uuid()) or is_binary(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Whether values are bytes: some programs write strings without saying that they are text."""
    plain = kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    return plain or pa.types.is_fixed_size_binary(kind)


def as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes and UUIDs as strings, which may not be UTF-8, other types as `_stored`."""
    if (plain := _without_view(column.type)) != column.type:
        # A cast by Arrow 25 lacks an offset.
        return as_strings(pa.chunked_array([pa.array(column.to_pylist(), plain)]))
    if pa.types.is_dictionary(column.type):
        return as_strings(column.cast(column.type.value_type))
    if isinstance(column.type, pa.BaseExtensionType) and column.type != pa.uuid():
        stored = [chunk.storage for chunk in column.chunks]
        return as_strings(pa.chunked_array(stored, column.type.storage_type))
    inner = column.type.value_type if is_list(column.type) else None
    is_extension = isinstance(inner, pa.BaseExtensionType) and inner != pa.uuid()
    if inner in (pa.string_view(), pa.binary_view()) or is_extension:
        return column.cast(plain_type(column.type) or pa.list_(_stored(inner)))
    if pa.uuid() in (column.type, inner):
        texts = fitting(column.to_pylist(), "list_string" if inner else "string")
        return pa.chunked_array([pa.array(texts, plain_type(column.type))])
    if not is_binary(column.type) and column.type != pa.string_view():  # Arrow takes no rows of it
        return column
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


def row_bytes(table: pa.Table) -> np.ndarray:
    """About how many bytes the values of each row have, int64 `[rows]`, of columns `as_strings`."""
    total = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        sizes = [_value_bytes(chunk) for chunk in column.chunks]
        total += np.concatenate(sizes) if sizes else 0
    return total


def _value_bytes(values: pa.Array) -> np.ndarray:
    """The bytes of each value, int64 `[values]`; of a null 0."""
    kind = values.type
    if is_list(kind):
        lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        return sums_of(_value_bytes(values.flatten()), lengths)
    if pa.types.is_dictionary(kind):
        sizes = pa.array(_value_bytes(values.dictionary)).take(values.indices)
    elif is_text(kind) and kind != pa.uuid():
        if kind in (pa.string_view(), pa.binary_view()):  # binary_length takes none
            values = values.cast(pa.string() if kind == pa.string_view() else pa.binary())
        sizes = pc.binary_length(values)
    else:
        return np.full(len(values), _NUMBER_BYTES)
    return sizes.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def check_schema(path: str, schema: pa.Schema, columns: Columns) -> None:
    """Raises SettingError if a file lacks a requested column, or its type cannot be read."""
    for flag, name in columns.requested:
        kind, cure = type_of(schema, name), SOME_LACK if flag == "extra_columns" else ""
        count = max(schema.names.count(name), kind is not None)
        check_is_there(flag, name, path, count, schema.names, cure)
        if kind is not None and not _is_readable(flag, name, kind, columns):
            fields = [field.name for field in kind] if pa.types.is_struct(kind) else ()
            cure = as_text(name, kind) or within_object(name, fields)
            raise SettingError(flag, f"{name} of {path} is {kind}; {REQUIRED[flag]}{cure}")


def as_text(name: str, kind: pa.DataType) -> str:
    """How a column of lengths of time can be read, for people; nothing for other types."""
    if kind != _NO_VALUE and not pa.types.is_duration(kind):
        return ""
    ways = f"{name}.astype(str) in pandas, {name}::varchar in SQL"
    return f"; write periods, intervals and durations as text, {ways}"


def type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a column, or of the field of a struct (`meta.year`); None if there is not one."""
    if name in schema.names:
        number = schema.get_field_index(name)
        return None if number < 0 else _without_view(schema.field(number).type)
    within: Any = schema
    for field in name.split("."):
        if isinstance(within, pa.DataType) and pa.types.is_null(within):
            return within  # of structs that are all missing
        is_there = isinstance(within, pa.Schema) or pa.types.is_struct(within)
        if not is_there or within.get_field_index(field) < 0:
            return None
        within = within.field(within.get_field_index(field)).type
    return _without_view(within)


def _without_view(kind: pa.DataType) -> pa.DataType:
    """The type of lists, if this is of views of them, which Arrow writes as it does lists."""
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return pa.list_(kind.value_type) if is_view else kind


def _column(batch: pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """A column, or the field of a struct, as `as_strings`."""
    first, *fields = [name] if name in batch.schema.names else name.split(".")
    column = batch.column(first)
    return as_strings(pa.chunked_array([pc.struct_field(column, fields) if fields else column]))


def _is_readable(flag: str, name: str, kind: pa.DataType, columns: Columns) -> bool:
    if pa.types.is_null(kind):  # all its values are missing
        return True
    if kind == _NO_VALUE:
        return False
    if flag == "id_column":
        whole = pa.types.is_decimal(kind) and kind.scale == 0
        return is_text(kind) or pa.types.is_integer(kind) or whole
    if flag == "extra_columns":
        wanted = required(columns.extra, "extra columns").field(name).type
        if type_name(wanted) is not None:  # of which values of any type are made, or do not fit
            return plain_type(kind) is not None or wanted == pa.string()
        held = plain_type(kind) or kind
        return promoted([loaded_type(held) if columns.loads else held, wanted]) == wanted
    can_be_list = flag == "text_column" and len(columns.texts) == 1
    listed = kind.value_type if is_list(kind) and can_be_list else kind
    has_words = listed is not kind  # which are read as they are
    return is_text(listed) and not (has_words and (is_binary(listed) or listed == pa.uuid()))


_FOOTERS_AT_ONCE = 16
_MOST_BATCH_ROWS = 65_536
_LEAST_ROW_BYTES = 8  # equal texts may need almost no bytes in a dictionary
_MOST_BATCH_BYTES = 32 << 20  # of the columns that are read, by the mean of their rows
# A page is decompressed as a whole, and programs end one after some MiB, but look only every 1024
# rows. A column of large values in a large row group may be one page, of which memory holds copies.
_MOST_CHUNK_BYTES, _MOST_MEAN_BYTES = 256 << 20, 256 << 10
_MOST_BLIND_ROWS = 32  # in a batch of a larger row group: a few rows may have most of its bytes
_TABLE_BYTES = 8 << 20  # of smaller batches that are joined
_LISTED_BYTES = 8  # of a value in a list, for which a file may need less than a bit
_POINTER_BYTES = 1 << 10  # a larger file is no pointer of Git LFS
_BUFFER = 1 << 20  # of a column; without one all of it is read at once


@dataclass(frozen=True)
class ParquetRows(Content):
    """Some neighbouring rows of one file, the requested columns from row `first` on."""

    first: int
    table: pa.Table

    @property
    def count(self) -> int:
        return self.table.num_rows

    size = count

    @property
    def memory(self) -> np.ndarray:
        return row_bytes(self.table)

    def cut(self, most: int) -> tuple[Self, Self | None]:
        if self.count <= most:
            return self, None
        rest = replace(self, first=self.first + most, table=self.table.slice(most))
        return replace(self, table=self.table.slice(0, most)), rest


def with_footers(files: Sequence[InputFile], text_column: str) -> Generator[InputFile, None, None]:
    """The files; those of Parquet with their footers, and the number of rows as `stop`."""

    def described(file: InputFile) -> InputFile:
        if file.format != "parquet":
            return file
        with _open(file.info) as (_, opened):
            footer = _footer(opened, text_column)
        return replace(file, stop=footer.rows, footer=footer)

    yield from in_parallel(described, files, _FOOTERS_AT_ONCE)


def _footer(file: pq.ParquetFile, text_column: str) -> Footer:
    metadata, schema = file.metadata, file.schema_arrow
    leaves = [metadata.schema.column(n) for n in range(metadata.num_columns)]
    whole = text_column in schema.names
    names = (text_column,) if whole else text_fields(text_column)
    fields = tuple(f"{name}." for name in names)
    of_text = [n for n, leaf in enumerate(leaves) if f"{leaf.path}.".startswith(fields)]
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        size = sum(group.column(n).total_uncompressed_size for n in of_text)
        groups.append(RowGroup(group.num_rows, max(size, _LEAST_ROW_BYTES * group.num_rows)))
    no_values = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}
    for field in schema:
        named = getattr(field.type, "extension_name", "").encode()
        if _PERIOD in (named, (field.metadata or {}).get(b"ARROW:extension:name")):
            no_values.add(field.name)
    shown = [field.with_type(_NO_VALUE) if field.name in no_values else field for field in schema]
    # What pandas says of its index differs from file to file, and pyarrow 21 cannot hash it.
    return Footer(pa.schema(shown), tuple(groups))


@contextmanager
def _open(info: FileInfo) -> Iterator[tuple[BinaryIO, pq.ParquetFile]]:
    try:
        with open_listed(info) as raw:
            yield raw, open_parquet(raw, _BUFFER)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if is_passing(error):
            raise
        if info.size < _POINTER_BYTES:
            refuse_pointer(info.path, read_bytes(info.path) or b"")
        with open_listed(info) as raw:
            if packed_as(raw.read(_POINTER_BYTES)):
                raise InputError(
                    f"{info.path} is compressed as a whole, unpack it: Parquet is"
                ) from error
        raise InputError(f"{info.path} cannot be read as Parquet: {error}") from error


def read_row_parts(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int
) -> Iterator[ReadPart[ParquetRows]]:
    """Reads a block of rows, closing a part at `part_docs` rows or about `block_bytes` of text."""
    most = part_docs
    if len(spec.slices) == 1:  # others are small
        with _open(spec.slices[0].info) as (_, file):
            groups = _footer(file, columns.text).groups
        touched, _ = _touched([group.rows for group in groups], spec.slices[0])
        size = sum(groups[number].size for number in touched)
        rows = sum(groups[number].rows for number in touched)
        most = min(most, max(1, rows * block_bytes // max(size, 1)))
    every = (_read_rows(piece, columns, most) for piece in spec.slices)
    yield from parts_in_order(chain.from_iterable(every), most)


def _touched(counts: Sequence[int], piece: Slice) -> tuple[list[int], int]:
    """The row groups, by their numbers of rows, with rows of a slice; and their first row."""
    stops = [0, *accumulate(counts)]
    touched = [
        number
        for number, (start, stop) in enumerate(pairwise(stops))
        if start < piece.stop and stop > piece.start
    ]
    return touched, stops[touched[0]] if touched else 0


def _read_rows(piece: Slice, columns: Columns, batch_rows: int) -> Iterator[ParquetRows]:
    if piece.stop <= piece.start:
        return
    path = piece.info.path
    with _open(piece.info) as (raw, file):
        if piece.rows not in (None, file.metadata.num_rows):
            raise InputError(
                f"{path} had {piece.rows:,} rows when it was listed and has "
                f"{file.metadata.num_rows:,}; {REPLACED}"
            )
        check_schema(path, file.schema_arrow, columns)
        footer = file.metadata
        counts = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        groups, at = _touched(counts, piece)
        rows = min(_batch_rows(piece.info, raw, file, groups, columns), batch_rows)
        held: list[pa.Table] = []
        size = 0
        for batch in file.iter_batches(rows, row_groups=groups, columns=columns.names):
            start, stop = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
            at += batch.num_rows
            if start < stop:
                inside = batch.slice(start, stop - start)
                names = [name for name in columns.names if type_of(inside.schema, name)]
                held.append(pa.table([_column(inside, name) for name in names], names))
                size += held[-1].nbytes
            is_end = at >= piece.stop
            if held and (is_end or size >= _TABLE_BYTES):
                table = pa.concat_tables(held).combine_chunks()
                yield ParquetRows(piece.file, path, min(at, piece.stop) - len(table), table)
                held, size = [], 0
            if is_end:
                return
    raise InputError(
        f"{path} cannot be read as Parquet: its pages end at row {at:,}, its footer promises "
        f"{piece.stop:,}"
    )


def _batch_rows(
    info: FileInfo, raw: BinaryIO, file: pq.ParquetFile, groups: Sequence[int], columns: Columns
) -> int:
    """How many rows of some row groups to read at once.

    InputError where a column cannot be read in pieces of limited memory.
    """
    rows = _MOST_BATCH_ROWS
    for group in groups:
        leaves = _leaves(file.metadata, group, columns)
        for leaf in leaves:
            size = leaf.least if leaf.is_listed else leaf.stored
            if size > _MOST_CHUNK_BYTES and size > leaf.rows * _MOST_MEAN_BYTES:
                raise InputError(
                    f"{info.path} has {size >> 20:,} MiB in {leaf.rows:,} values of {leaf.path} in "
                    "one row group, values as large are read from row groups of at most "
                    f"{_MOST_CHUNK_BYTES >> 20} MiB: write it with fewer rows a row group"
                )
        if sum(leaf.stored for leaf in leaves) > _MOST_CHUNK_BYTES:
            rows = min(rows, _MOST_BLIND_ROWS)
        mean = sum(leaf.least / max(1, leaf.rows) for leaf in leaves)
        repeated = _repeated_bytes(info, raw, file, group, leaves)
        rows = min(rows, max(1, int(_MOST_BATCH_BYTES // max(1, mean, repeated))))
    return rows


@dataclass(frozen=True)
class _Leaf:
    """A requested column of a row group, or the leaf of one: its values, as the footer says."""

    path: str
    rows: int
    values: int  # of all rows; at least 1 of each
    stored: int  # bytes, not compressed
    least: int  # bytes that the values have in memory, whatever was saved by repeating some
    is_listed: bool
    repeats: bool  # whether some may be strings or bytes that a dictionary repeats


def _leaves(metadata: pq.FileMetaData, group: int, columns: Columns) -> list[_Leaf]:
    of_group, leaves = metadata.row_group(group), []
    for number in range(of_group.num_columns):
        chunk, declared = of_group.column(number), metadata.schema.column(number)
        path = chunk.path_in_schema
        if any(f"{path}.".startswith(f"{wanted}.") for wanted in columns.names):
            kind, is_listed = chunk.physical_type, declared.max_repetition_level > 0
            width = _LISTED_BYTES if is_listed else 0
            width = declared.length if kind == "FIXED_LEN_BYTE_ARRAY" else width
            of_bytes = kind == "BYTE_ARRAY" and declared.logical_type.type != "DECIMAL"
            repeats = of_bytes and any("DICTIONARY" in encoding for encoding in chunk.encodings)
            values, stored = chunk.num_values, chunk.total_uncompressed_size
            facts = of_group.num_rows, values, stored, max(stored, width * values)
            leaves.append(_Leaf(path, *facts, is_listed, repeats))
    return leaves


def _repeated_bytes(
    info: FileInfo, raw: BinaryIO, file: pq.ParquetFile, group: int, leaves: Sequence[_Leaf]
) -> int:
    """The most bytes of a row whose values are the largest of the row group's dictionaries.

    In a list that is a row of the mean length; InputError where a longer one could have too much.
    """
    total = 0
    for leaf in leaves:
        if not leaf.repeats or leaf.stored * leaf.values <= _MOST_BATCH_BYTES:
            continue
        largest, whole = _dictionary_bytes(raw, file, group, leaf)
        in_a_row = leaf.values - leaf.rows + 1 if leaf.is_listed else 1
        if whole > _MOST_CHUNK_BYTES:
            raise InputError(
                f"{info.path} has a dictionary of {whole >> 20:,} MiB in {leaf.path}, at most "
                f"{_MOST_CHUNK_BYTES >> 20} MiB are read: write it without dictionaries"
            )
        is_endless = largest >= _MOST_MEAN_BYTES and largest * in_a_row > _MOST_CHUNK_BYTES
        if leaf.is_listed and is_endless:
            raise InputError(
                f"{info.path} has a value of {largest >> 10:,} KiB in {leaf.path}, which its "
                "dictionary can repeat in a list without end: write it without dictionaries"
            )
        total += largest * -(-leaf.values // leaf.rows)
    return total


def _dictionary_bytes(
    raw: BinaryIO, file: pq.ParquetFile, group: int, leaf: _Leaf
) -> tuple[int, int]:
    """The largest value of a dictionary and all of them, in bytes, from the first row with any."""
    reader = open_parquet(raw, _BUFFER, metadata=file.metadata, read_dictionary=[leaf.path])
    try:
        for batch in reader.iter_batches(1, row_groups=[group], columns=[leaf.path]):
            values = batch.column(0)
            while not pa.types.is_dictionary(values.type):
                values = values.flatten()
            if len(values.dictionary):
                sizes = row_bytes(pa.table([values.dictionary], ["values"]))
                return int(sizes.max()), int(sizes.sum())
    except pa.ArrowNotImplementedError:
        # A list that goes beyond what the dictionary was filled with, or an encoding without one.
        return _MOST_MEAN_BYTES - 1, 0
    return 0, 0


def parse_rows(rows: ParquetRows, columns: Columns) -> Documents:
    """Parses rows; those that give no document are rejected."""
    places = positions(rows.path, np.arange(rows.first, rows.first + rows.count))
    plain = replace(columns, extra=None)
    documents, numbers = documents_of(_documents(rows, plain), places, plain)
    if columns.extra is None:
        return documents
    unfit: Counter[str] = Counter()
    extra = []
    for name, kind in zip(columns.extra.names, columns.extra.types, strict=True):
        if name in rows.table.column_names:
            values, lost = _extra_values(rows.table[name].take(pa.array(numbers)), kind)
        else:
            text = pa.array([partitions(rows.path).get(name)], pa.string())
            value, lost = _extra_values(pa.chunked_array([text]), kind)
            values, lost = pa.repeat(value[0], len(numbers)), lost * len(numbers)
        extra.append(values)
        unfit += Counter({name: lost})
    return replace(documents, extra=pa.Table.from_arrays(extra, schema=columns.extra), unfit=unfit)


def _extra_values(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, int]:
    """The values of a column as a type, null for those that do not fit; and how many those are."""
    types, given, name = pa.types, column.type, type_name(kind)
    is_integer = types.is_integer(given)
    is_number = is_integer or types.is_floating(given)
    # Arrow takes all numbers for microseconds, for days, or for true, and digits as 0x1A
    differs = is_text(given) and kind != pa.string()
    differs |= is_number and (types.is_temporal(kind) or types.is_boolean(kind))
    lost = 0
    if name == "string" and types.is_temporal(given):
        column, lost = in_range(column.combine_chunks(), PRINTED)
    with suppress(pa.ArrowException):
        if not (differs or types.is_struct(given)):
            column.validate(full=True)  # strings may not be UTF-8
            return column.cast(options=pc.CastOptions(kind, allow_time_truncate=True)), lost
    is_rounded = is_integer and types.is_floating(kind)
    is_decimal = name is not None and types.is_decimal(given)
    values: list[Any] = _values(column.cast(pa.string()) if is_decimal else column)
    if name is not None and not is_rounded:
        values = fitting((UNFIT if _is_invalid(value) else value for value in values), name)
    else:
        for row, value in enumerate(values):
            values[row] = UNFIT
            with suppress(pa.ArrowException):
                values[row] = pa.scalar(value, column.type).cast(kind).as_py()
    fit = [None if value is UNFIT else value for value in values]
    return pa.chunked_array([pa.array(fit, kind)]), sum(value is UNFIT for value in values)


def _documents(rows: ParquetRows, columns: Columns) -> Iterator[Record | BadRecordError]:
    names = [name for name in columns.names if name in rows.table.column_names]
    values = [_values(rows.table[name]) for name in names]
    all_valid = all(_is_valid(rows.table[name]) for name in names)
    for row in zip(*values, strict=True):
        fields = dict(zip(names, row, strict=True))
        try:
            if not all_valid and any(map(_is_invalid, row)):
                raise BadRecordError(INVALID_UTF8)
            yield record_of(fields, columns)
        except BadRecordError as error:
            record = orjson.dumps(fields, default=shown).decode()
            value = fields[columns.id] if columns.id else None
            unread = value is None or isinstance(value, bytes)  # which is then nobody's id
            yield error.of(record, None if unread else str(value))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; a string that is not UTF-8 stays bytes."""
    if _is_valid(column):
        values = column.to_pylist(maps_as_pydicts="lossy")  # the last of equal keys counts
        whole = pa.types.is_decimal(column.type) and column.type.scale == 0
        # Snowflake writes its integers as decimals, which JSON may be unable to hold.
        return [None if value is None else f"{value:f}" for value in values] if whole else values
    kind = plain_type(column.type)
    is_list = kind is not None and pa.types.is_list(kind)
    raw = column.cast(kind).cast(pa.list_(pa.binary()) if is_list else pa.binary())
    return [_decoded(value) for value in raw.to_pylist()]


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return None if value is None else decoded(value)


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_invalid(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, list) and bytes in map(type, value))
