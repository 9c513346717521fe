"""Reads the rows of Parquet files and parses them into documents."""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.parquet_file import open_parquet
from bert_embed.storage.errors import InputError, StorageError, required
from bert_embed.storage.file_info import FileInfo
from bert_embed.storage.files import open_listed
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.read.columns import Columns, text_fields
from bert_embed.transforms.read.parsed import (
    BadRecord,
    Documents,
    Record,
    documents_of,
    record_of,
)
from bert_embed.transforms.read.parts import parts_in_order
from bert_embed.transforms.read.tables.parquet_types import as_strings, check_schema, plain_type
from bert_embed.transforms.read.text import INVALID_UTF8, positions
from bert_embed.transforms.records.read_part import ReadPart
from bert_embed.transforms.records.rejected import BadRecordError
from bert_embed.transforms.records.spec import BlockSpec, Footer, InputFile, RowGroup, Slice

_FOOTERS_AT_ONCE = 16
_MOST_BATCH_ROWS = 65_536
_LEAST_ROW_BYTES = 8  # equal texts may need almost no bytes in a dictionary
_MOST_BATCH_BYTES = 32 << 20  # of the columns that are read, by the mean of their rows
# A page is decompressed as a whole, and programs end one after some MiB, but look only every 1024
# rows. A column of large values in a large row group may be one page, of which memory holds copies.
_MOST_CHUNK_BYTES, _MOST_MEAN_BYTES = 256 << 20, 256 << 10
_BUFFER = 1 << 20  # of a column; without one all of it is read at once


@dataclass(frozen=True)
class Rows:
    """Some neighbouring rows of one file, the requested columns from row `first` on."""

    file: int
    path: str
    first: int
    table: pa.Table

    @property
    def count(self) -> int:
        return self.table.num_rows

    @property
    def size(self) -> int:
        return self.table.num_rows

    def cut(self, most: int) -> tuple["Rows", "Rows | None"]:
        if self.count <= most:
            return self, None
        rest = replace(self, first=self.first + most, table=self.table.slice(most))
        return replace(self, table=self.table.slice(0, most)), rest


def with_footers(files: Sequence[InputFile], text_column: str) -> Generator[InputFile, None, None]:
    """The files; those of Parquet with their footers, and the number of rows as `stop`."""

    def described(file: InputFile) -> InputFile:
        return _with_footer(file, text_column) if file.format == "parquet" else file

    yield from in_parallel(described, files, _FOOTERS_AT_ONCE)


def _with_footer(file: InputFile, text_column: str) -> InputFile:
    with _open(file.info) as opened:
        metadata, schema = opened.metadata, opened.schema_arrow
        paths = [metadata.schema.column(n).path for n in range(metadata.num_columns)]
        whole = text_column in schema.names
        names = (text_column,) if whole else text_fields(text_column)
        fields = tuple(f"{name}." for name in names)
        of_text = [n for n, path in enumerate(paths) if f"{path}.".startswith(fields)]
        groups = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            size = sum(group.column(n).total_uncompressed_size for n in of_text)
            groups.append(RowGroup(group.num_rows, max(size, _LEAST_ROW_BYTES * group.num_rows)))
    return replace(file, stop=metadata.num_rows, footer=Footer(schema, tuple(groups)))


@contextmanager
def _open(info: FileInfo) -> Iterator[pq.ParquetFile]:
    try:
        with open_listed(info) as raw:
            yield open_parquet(raw, _BUFFER)
    except StorageError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{info.path} cannot be read as Parquet: {error}") from error


def read_row_parts(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int
) -> Iterator[ReadPart[Rows]]:
    """Reads a block of rows, closing a part at `part_docs` rows or about `block_bytes` of text."""
    most = part_docs
    if len(spec.slices) == 1:  # others are small
        most = min(most, _rows_of_bytes(spec.slices[0], columns, block_bytes))
        with _open(spec.slices[0].info) as file:
            most = min(most, _batch_rows(file.metadata, spec.slices[0], columns))
    every = (_read_rows(piece, columns, most) for piece in spec.slices)
    yield from parts_in_order(chain.from_iterable(every), most)


def _rows_of_bytes(piece: Slice, columns: Columns, size: int) -> int:
    file = _with_footer(InputFile(piece.info, "parquet", None, 0), columns.text)
    groups = required(file.footer, "footer").groups
    touched, _ = _touched([group.rows for group in groups], piece)
    total = sum(groups[number].size for number in touched)
    return max(1, sum(groups[number].rows for number in touched) * size // max(total, 1))


def _touched(counts: Sequence[int], piece: Slice) -> tuple[list[int], int]:
    """The row groups, by their numbers of rows, with rows of a slice; and their first row."""
    stops = [0, *accumulate(counts)]
    touched = [
        number
        for number, (start, stop) in enumerate(pairwise(stops))
        if start < piece.stop and stop > piece.start
    ]
    return touched, stops[touched[0]] if touched else 0


def _read_rows(piece: Slice, columns: Columns, batch_rows: int) -> Iterator[Rows]:
    if piece.stop <= piece.start:
        return
    with _open(piece.info) as file:
        check_schema(piece.info.path, file.schema_arrow, columns)
        groups, at = _touched(_group_rows(file.metadata), piece)
        _check_values(piece.info.path, file.metadata, groups, columns)
        size = min(batch_rows, _MOST_BATCH_ROWS, _batch_rows(file.metadata, piece, columns))
        for batch in file.iter_batches(size, row_groups=groups, columns=columns.names):
            start, stop = max(at, piece.start), min(at + batch.num_rows, piece.stop)
            if start < stop:
                table = pa.Table.from_batches([batch.slice(start - at, stop - start)])
                strings = [as_strings(column) for column in table.columns]
                rows = pa.Table.from_arrays(strings, table.column_names)
                yield Rows(piece.file, piece.info.path, start, rows)
            at += batch.num_rows
            if at >= piece.stop:
                return
    raise InputError(
        f"{piece.info.path} cannot be read as Parquet: its pages end at row {at:,}, its footer "
        f"promises {piece.stop:,}"
    )


def _group_rows(metadata: pq.FileMetaData) -> list[int]:
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def _chunk_bytes(
    metadata: pq.FileMetaData, group: int, columns: Columns
) -> Iterator[tuple[str, int]]:
    """The requested columns of a row group, leaf by leaf, with their bytes, not compressed."""
    of_group = metadata.row_group(group)
    for number in range(of_group.num_columns):
        column = of_group.column(number)
        name = column.path_in_schema
        if any(f"{name}.".startswith(f"{wanted}.") for wanted in columns.names):
            yield name, column.total_uncompressed_size


def _batch_rows(metadata: pq.FileMetaData, piece: Slice, columns: Columns) -> int:
    """How many rows of the row groups of a slice fill a batch, at least 1."""
    counts = _group_rows(metadata)
    rows = [
        counts[group] * _MOST_BATCH_BYTES // max(1, sum(size for _, size in sizes))
        for group in _touched(counts, piece)[0]
        if (sizes := list(_chunk_bytes(metadata, group, columns)))
    ]
    return max(1, min(rows, default=_MOST_BATCH_ROWS))


def _check_values(
    path: str, metadata: pq.FileMetaData, groups: Sequence[int], columns: Columns
) -> None:
    """InputError where a column of a row group cannot be read in pieces of limited memory."""
    for group in groups:
        rows = metadata.row_group(group).num_rows
        for name, size in _chunk_bytes(metadata, group, columns):
            if size > _MOST_CHUNK_BYTES and size > rows * _MOST_MEAN_BYTES:
                raise InputError(
                    f"{path} has {size >> 20:,} MiB in {rows:,} values of {name} in one row group, "
                    f"values as large are read from row groups of at most "
                    f"{_MOST_CHUNK_BYTES >> 20} MiB: write it with fewer rows a row group"
                )


def parse_rows(rows: Rows, columns: Columns) -> Documents:
    """Parses rows; those that give no document are rejected."""
    places = positions(rows.path, np.arange(rows.first, rows.first + rows.count))
    plain = replace(columns, extra=None)
    documents, numbers = documents_of(_documents(rows, plain), places, plain)
    if columns.extra is None:
        return documents
    table = rows.table.select(columns.extra.names).take(pa.array(numbers))
    unfit: Counter[str] = Counter()
    for at, name in enumerate(table.column_names):
        if not _is_valid(table[name]):  # strings that are not UTF-8
            values = _values(table[name])
            kept = [None if _is_invalid(value) else value for value in values]
            unfit[name] = sum(map(_is_invalid, values))
            table = table.set_column(at, name, pa.array(kept, columns.extra.field(name).type))
    return replace(documents, extra=table.cast(columns.extra), unfit=unfit)


def _documents(rows: Rows, columns: Columns) -> Iterator[Record | BadRecord]:
    names = columns.names
    values = [_values(rows.table[name]) for name in names]
    invalid = _invalid_rows(rows.table.select(names))
    for number, row in enumerate(zip(*values, strict=True)):
        fields = dict(zip(names, row, strict=True))
        try:
            if number in invalid:
                raise BadRecordError(INVALID_UTF8)
            yield record_of(fields, columns)
        except BadRecordError as error:
            record = orjson.dumps(fields, default=_shown).decode()
            value = fields[columns.id] if columns.id else None
            yield BadRecord(
                str(error), record, None if value is None else _shown(value), error.detail
            )


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; a string that is not UTF-8 stays bytes."""
    if _is_valid(column):
        values = column.to_pylist()
        whole = pa.types.is_decimal(column.type) and column.type.scale == 0
        # Snowflake writes its integers as decimals.
        return [None if value is None else int(value) for value in values] if whole else values
    kind = plain_type(column.type)
    is_list = kind is not None and pa.types.is_list(kind)
    raw = column.cast(kind).cast(pa.list_(pa.binary()) if is_list else pa.binary())
    return [_decoded(value) for value in raw.to_pylist()]


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _invalid_rows(table: pa.Table) -> set[int]:
    """The rows with a string that is not UTF-8."""
    columns = [column for column in table.columns if not _is_valid(column)]
    return {
        row for column in columns for row, value in enumerate(_values(column)) if _is_invalid(value)
    }


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_invalid(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, list) and bytes in map(type, value))


def _shown(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
