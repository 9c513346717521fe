"""Resolves which columns of a BigQuery table hold text, id and extra columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.resolve.columns import check_extra_name, named_columns
from bert_embed.transforms.bigquery.client import check_column
from bert_embed.transforms.read.columns import Columns, no_column
from bert_embed.transforms.read.extra import CAN_BE

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


def table_columns(options: Options, schema: list["SchemaField"], shown: str) -> Columns:
    """The columns that the options name; each exists and has a usable type.

    They are compared with the table's schema; messages show the table as `shown`.
    """
    columns = replace(named_columns(options), id=options.id_column or "id")
    present = {field.name: field for field in schema}
    once, often = ("NULLABLE", "REQUIRED"), ("NULLABLE", "REQUIRED", "REPEATED")
    required: list[tuple[str, str | None, tuple[str, ...], tuple[str, ...]]] = [
        ("id_column", columns.id, ("STRING", *_INTEGERS), once),
        ("text_column", columns.text, ("STRING",), often),
        ("text_b_column", columns.text_b, ("STRING",), once),
        *(("span_columns", name, _INTEGERS, often) for name in columns.spans or ()),
    ]
    for flag, name, types, modes in required:
        if name is None:
            continue
        check_column(name, flag)
        if name not in present:
            raise no_column(flag, name, f"no column of {shown}", present)
        kind, mode = present[name].field_type.upper(), present[name].mode.upper()
        if kind not in types or mode not in modes:
            raise UsageError(
                f"--{flag} {name} of {shown} is {kind}{' REPEATED' * (mode == 'REPEATED')}; "
                f"it must be {types[0]}"
            )
    is_number = present[columns.id or "id"].field_type.upper() in _INTEGERS
    return replace(
        columns,
        extra=_extra_schema(options.extra_columns or (), present, shown, options.writes_texts),
        id_type="int64" if is_number else "string",
    )


def _extra_schema(
    words: Sequence[str], present: Mapping[str, "SchemaField"], shown: str, keep_text: bool
) -> pa.Schema | None:
    """Names and types of the extra columns, as the table declares them."""
    fields: dict[str, pa.DataType] = {}
    for word in words:
        name = check_column(word, "extra_columns")
        check_extra_name(name, keep_text)
        if name not in present:
            raise no_column("extra_columns", name, f"no column of {shown}", present)
        kind = present[name].field_type.upper()
        often = present[name].mode.upper() == "REPEATED"
        value_type = (_LISTED if often else _TYPES).get(kind)
        if value_type is None:
            raise UsageError(
                f"--extra_columns {name} of {shown} is {kind}{' REPEATED' * often}; {CAN_BE}"
            )
        fields[name] = pa.list_(value_type) if often else value_type
    return pa.schema(fields.items()) if fields else None
