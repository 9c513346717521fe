"""Parquet types: which columns of a file can be a text, an id or passed through, and as what."""

import pyarrow as pa

from transforms.sources.columns import Columns

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


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type as which a column is passed through; None where it cannot be.

    A dictionary becomes the type of its values, every kind of string `string`, and every kind of
    list, of numbers, booleans or strings, `list`. All other types stay what they are.

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
    """Whether values are strings, in whatever layout."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of fixed or any length."""
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def check_schema(path: str, schema: pa.Schema, columns: Columns) -> None:
    """Sees that a file has every column that was asked for, of a type that will do.

    Raises:
        ValueError: It has not; the flag, the column and its type are named.
    """
    for flag, name in columns.asked:
        number = schema.get_field_index(name)
        if number < 0:
            doubled = name in schema.names
            found = "more than once" if doubled else f", which has {', '.join(schema.names)}"
            raise ValueError(
                f"--{flag} {name} is {'in' if doubled else 'no column of'} {path}"
                f"{' ' if doubled else ''}{found}"
            )
        kind = schema.field(number).type
        if not _will_do(flag, name, kind, columns):
            raise ValueError(f"--{flag} {name} of {path} is {kind}; {_WANTED[flag]}")


_WANTED = {
    "text_column": "wanted is a string, or a list of strings",
    "text_b_column": "wanted is a string",
    "id_column": "wanted is a string or an integer",
    "span_columns": "wanted is an integer, or a list of integers",
    "extra_columns": "the files of a run have one type for each column, and what passes through "
    "are strings, numbers, booleans, dates, times, decimals and flat lists",
}


def _will_do(flag: str, name: str, kind: pa.DataType, columns: Columns) -> bool:
    if flag == "id_column":
        return is_text(kind) or pa.types.is_integer(kind)
    if flag == "extra_columns":
        assert columns.extra is not None
        return plain_type(kind) == columns.extra.field(name).type
    listed = kind.value_type if is_list(kind) and flag != "text_b_column" else kind
    return pa.types.is_integer(listed) if flag == "span_columns" else is_text(listed)
