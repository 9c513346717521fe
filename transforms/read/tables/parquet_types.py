"""Decides which Parquet columns can be texts, ids, spans or extra columns, and of which type."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.ragged import sums_of
from bert_embed.storage.errors import SettingError, required
from bert_embed.transforms.read.columns import SPANS, Columns, no_column
from bert_embed.transforms.read.extra import CAN_BE
from bert_embed.transforms.records.columnar import is_list

_NUMBER_BYTES = 8
_SCALARS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
)
_LISTED = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string)
_REQUIRED = {
    "text_column": "must be a string, or a list of strings",
    "text_b_column": "must be a string",
    "id_column": "must be a string or an integer (pandas makes integers with nulls double, write "
    "them as Int64)",
    SPANS: "must be an integer, or a list of integers",
    "extra_columns": f"a column has one type in all files of a run, and {CAN_BE}",
}


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of an extra column in the output; None if the column cannot be passed through.

    A dictionary becomes the type of its values, every kind of string, UUIDs and bytes `string`, and
    every kind of list, of numbers, booleans or strings, `list`. All other types stay.

    >>> plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    >>> plain_type(pa.struct([("a", pa.int64())])) is None
    True
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_text(kind):
        return pa.string()
    if is_list(kind):
        inner = plain_type(kind.value_type)
        listed = inner is not None and any(is_kind(inner) for is_kind in _LISTED)
        return pa.list_(inner) if listed else None
    return kind if any(is_kind(kind) for is_kind in _SCALARS) else None


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings, in any layout, also one that does not say so, or UUIDs."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    strings = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return strings or kind in (pa.string_view(), pa.uuid()) or is_binary(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Whether values are bytes: some programs write strings without saying that they are text."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests) or kind == pa.binary_view()


def as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes and UUIDs as strings, which may not be UTF-8, dictionaries as their values."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == pa.uuid():
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
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
        number = schema.get_field_index(name)
        if number < 0:
            if name in schema.names:
                raise SettingError(flag, f"{name} is in {path} more than once")
            raise no_column(flag, name, f"not a column of {path}", schema.names)
        kind = schema.field(number).type
        if not _is_readable(flag, name, kind, columns):
            raise SettingError(flag, f"{name} of {path} is {kind}; {_REQUIRED[flag]}")


def _is_readable(flag: str, name: str, kind: pa.DataType, columns: Columns) -> bool:
    if pa.types.is_null(kind):  # all its values are missing
        return True
    if flag == "id_column":
        whole = pa.types.is_decimal(kind) and kind.scale == 0
        return is_text(kind) or pa.types.is_integer(kind) or whole
    if flag == "extra_columns":
        return plain_type(kind) == required(columns.extra, "extra columns").field(name).type
    can_be_list = flag == SPANS or (flag == "text_column" and len(columns.texts) == 1)
    listed = kind.value_type if is_list(kind) and can_be_list else kind
    return pa.types.is_integer(listed) if flag == SPANS else is_text(listed)
