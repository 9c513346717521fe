"""Table columns: options and a table's schema in, where the fields of its rows stand out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.options import EmbedOptions, UsageError
from transforms.bigquery import check_column
from transforms.sources.columns import Columns
from transforms.sources.extra import OWN_COLUMNS

if TYPE_CHECKING:
    from google.cloud.bigquery import SchemaField

_INTEGERS = ("INTEGER", "INT64")
_LISTED = {
    "STRING": pa.string(),
    "INTEGER": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
}
_TYPES = _LISTED | {
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}


def table_columns(options: EmbedOptions, schema: list["SchemaField"], shown: str) -> Columns:
    """Where the fields stand, each seen to be there and of a type that can be used.

    Args:
        options: As asked.
        schema: Of the table.
        shown: What the table is called in a message.

    Raises:
        UsageError: A column that is not there, or of no use.
        ValueError: A name that no column can have.
    """
    spans = None
    if "span" in options.granularity:
        spans = options.span_columns or ("start", "stop")
    columns = Columns(
        text=options.text_column or "text",
        id=options.id_column or "id",
        text_b=options.text_b_column,
        spans=spans and (spans[0], spans[1]),
    )
    there = {field.name: field for field in schema}
    once, often = ("NULLABLE", "REQUIRED"), ("NULLABLE", "REQUIRED", "REPEATED")
    wanted: list[tuple[str, str | None, tuple[str, ...], tuple[str, ...]]] = [
        ("id_column", columns.id, ("STRING", *_INTEGERS), once),
        ("text_column", columns.text, ("STRING",), often),
        ("text_b_column", columns.text_b, ("STRING",), once),
        *(("span_columns", name, _INTEGERS, often) for name in columns.spans or ()),
    ]
    for flag, name, types, modes in wanted:
        if name is None:
            continue
        check_column(name, flag)
        if name not in there:
            raise UsageError(
                f"--{flag} {name} is no column of {shown}, which has {', '.join(there) or 'none'}"
            )
        kind, mode = there[name].field_type.upper(), there[name].mode.upper()
        if kind not in types or mode not in modes:
            raise UsageError(
                f"--{flag} {name} of {shown} is {kind}{' REPEATED' * (mode == 'REPEATED')}, "
                f"{types[0]} is wanted"
            )
    return replace(columns, extra=_extra_schema(options.extra_columns or (), there, shown))


def _extra_schema(
    asked: Sequence[str], there: Mapping[str, "SchemaField"], shown: str
) -> pa.Schema | None:
    """Names and types of the columns that pass through, as the table has them."""
    fields: dict[str, pa.DataType] = {}
    for word in asked:
        name = check_column(word, "extra_columns")
        if name.lower() in OWN_COLUMNS:
            raise UsageError(f"--extra_columns {name} clashes with the output's own column {name}")
        if name not in there:
            raise UsageError(
                f"--extra_columns {name} is no column of {shown}, which has {', '.join(there)}"
            )
        kind = there[name].field_type.upper()
        often = there[name].mode.upper() == "REPEATED"
        found = (_LISTED if often else _TYPES).get(kind)
        if found is None:
            raise UsageError(
                f"--extra_columns {name} of {shown} is {kind}{' REPEATED' * often}; what passes "
                "through are strings, numbers, booleans, dates, times, decimals and flat lists"
            )
        fields[name] = pa.list_(found) if often else found
    return pa.schema(fields.items()) if fields else None
