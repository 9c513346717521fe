"""Says what columns vectors have in a BigQuery table, and whether a table can take them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bert_embed.base.errors import InputError
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.columns import is_list, loaded_types

_STANDARD = {"FLOAT": "FLOAT64", "INTEGER": "INT64", "BOOLEAN": "BOOL", "STRUCT": "RECORD"}
_TYPES = (
    (pa.types.is_struct, "RECORD"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_boolean, "BOOL"),
    (pa.types.is_integer, "INT64"),
    (pa.types.is_floating, "FLOAT64"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
)
Field = dict[str, Any]  # as in BigQuery's REST API


def vector_schema(
    kind: str, pieces: str | None, texts: bool, settings: Mapping[str, Any]
) -> pa.Schema:
    """The columns of a file of vectors, of windows or chunks by `pieces`; no extra ones.

    `settings` are what a run says of its vectors.
    """
    facts = {"num_tokens": pa.int32(), "num_tokens_full": pa.int32()}
    facts |= {"truncated": pa.bool_(), "text_hash": pa.int64()}
    if pieces and KINDS[kind].by_row:
        del facts["num_tokens_full"]
        facts |= dict.fromkeys((pieces, "start", "stop"), pa.int32())
    columns = {"id": pa.string(), **loaded_types(KINDS[kind], settings), **facts}
    return pa.schema(columns | ({"text": pa.string()} if texts else {}))


def table_schema(schema: pa.Schema) -> list[Field]:
    """BigQuery's fields for the columns of a file; InputError if it has no type for one."""
    return [_field(field) for field in schema]


def _field(field: pa.Field) -> Field:
    is_required = field.name == "id" or not field.nullable
    kind, mode = field.type, "REQUIRED" if is_required else "NULLABLE"
    if is_list(kind):
        kind, mode = kind.value_type, "REPEATED"
    column: Field = {"name": field.name, "type": _type(field.name, kind), "mode": mode}
    if pa.types.is_struct(kind):
        column["fields"] = [_field(kind.field(n)) for n in range(kind.num_fields)]
    return column


def _type(name: str, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "DATETIME"
    if pa.types.is_decimal(kind):
        whole = kind.precision - kind.scale
        if kind.scale <= 9 and whole <= 29:
            return "NUMERIC"
        if kind.scale <= 38 and whole <= 38:
            return "BIGNUMERIC"
    for is_kind, called in _TYPES:
        if is_kind(kind):
            return called
    why = f"BigQuery has no column for values of type {kind}"
    raise InputError(f"column {name}: {why}; leave it out")


def create_statement(name: str, partition: str, fields: Sequence[Field]) -> list[str]:
    """Lines of SQL that make a table; `partition` is HOUR, DAY, MONTH, YEAR or ""."""
    columns = ",\n".join(f"  {field['name']} {_sql_type(field)}" for field in fields)
    clause = f"\nPARTITION BY TIMESTAMP_TRUNC(_PARTITIONTIME, {partition})" if partition else ""
    return f"CREATE TABLE `{name}` (\n{columns}\n){clause};".splitlines()


def _sql_type(field: Field) -> str:
    """A field's type in SQL.

    >>> _sql_type({"name": "a", "type": "INT64", "mode": "REPEATED"})
    'ARRAY<INT64>'
    """
    kind, mode = field["type"], _mode(field)
    if kind == "RECORD":
        inner = ", ".join(f"{one['name']} {_sql_type(one)}" for one in field["fields"])
        kind = f"STRUCT<{inner}>"
    return f"ARRAY<{kind}>" if mode == "REPEATED" else kind + " NOT NULL" * (mode == "REQUIRED")


def mismatch(ours: Sequence[Field], theirs: Sequence[Field]) -> str | None:
    """Why our fields do not fit a table's, or None; it may have more that can be null."""
    return next(_mismatches(ours, theirs, ""), None)


def _mismatches(ours: Sequence[Field], theirs: Sequence[Field], above: str) -> Iterator[str]:
    columns = {column["name"].lower(): column for column in theirs}
    for wanted in ours:
        name, column = above + wanted["name"], columns.pop(wanted["name"].lower(), None)
        if column is None:
            yield f"it has no column {name}"
            continue
        if _shape(wanted) != _shape(column):
            yield f"its column {name} is {_shape(column)}, {_shape(wanted)} is required"
        if (_mode(column), _mode(wanted)) == ("REQUIRED", "NULLABLE"):
            yield f"its column {name} must have a value, and in the files it may be null"
        yield from _mismatches(wanted.get("fields", ()), column.get("fields", ()), f"{name}.")
    for column in columns.values():
        if _mode(column) == "REQUIRED":
            yield f"its column {above}{column['name']} must have a value, and there is none for it"


def _shape(field: Field) -> str:
    kind = _STANDARD.get(field["type"].upper(), field["type"].upper())
    return f"{kind} REPEATED" if _mode(field) == "REPEATED" else kind


def _mode(field: Field) -> str:
    return (field.get("mode") or "NULLABLE").upper()
