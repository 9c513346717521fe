"""Resolves the BigQuery table or query that a run reads, and which of its columns are what."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.resolve.columns import check_extra_name, named_columns
from bert_embed.pipeline.resolve.queries import query_rows
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.run_record import QueryRows
from bert_embed.storage.files import FileInfo
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    TableName,
    bigquery_client,
    check_column,
    get_table,
    table_name,
    translate_errors,
)
from bert_embed.transforms.bigquery.read import TableRequest
from bert_embed.transforms.read.columns import SPANS, Columns, no_column
from bert_embed.transforms.read.extra import CAN_BE
from bert_embed.transforms.records.spec import InputFile

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

_INTEGERS = ("INTEGER", "INT64")
_KINDS: dict[str, tuple[str, ...]] = {
    "id_column": ("STRING", *_INTEGERS),
    "text_column": ("STRING",),
    "text_b_column": ("STRING",),
    SPANS: _INTEGERS,
}
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


@dataclass(frozen=True)
class TableInput:
    """A table that can be read, its request not yet divided into blocks."""

    request: TableRequest
    query_rows: QueryRows | None  # of the rows of a query, which expire; else None
    file: InputFile  # as an entry of a listing: name, size and time identify its state


def job_project(options: Options, table: TableName | None) -> str:
    """The project that runs jobs and pays: `--project`, else the table's own project."""
    project = BeamFlags.of(options.beam_args)["project"] or (table and table.project)
    if not project:
        raise UsageError("--query requires --project, the project that runs it and pays for it")
    return str(project)


def find_input(options: Options, output: str) -> TableInput | None:
    """The table to read, the query's result if there is a query; None if the input is files."""
    if not options.reads_table:
        return None
    name, query, expired = None, options.query, None
    if query is None:
        name = table_name(options.input[0], "--input")
        if name.partition:
            raise UsageError(
                f"--input {options.input[0]} names a partition; select it with --query"
            )
    shown = "--query" if name is None else f"--input {name}"
    with bigquery_client(job_project(options, name)) as client:
        if options.limit is not None:
            query = _first_rows(options, name)
        if query is not None:
            name, expired = query_rows(client, query, options, output)
        with translate_errors(f"{shown} cannot be read"):
            assert name is not None
            facts = expired or _facts(client, name, shown)
            # A complete run whose rows expired keeps its fingerprint, and reads nothing.
            snapshot, rows = _count(client, name) if not expired else (facts.modified, facts.rows)
        project = client.project
    columns = _table_columns(options, facts.schema, shown)
    facts = replace(facts, rows=rows)
    request = TableRequest(name, snapshot, rows, facts.bytes, project, columns)
    info = FileInfo(f"{name} with {rows} rows", facts.bytes, facts.modified)
    file = InputFile(info, "bigquery", None, facts.bytes)
    return TableInput(request, None if query is None else facts, file)


def _first_rows(options: Options, name: TableName | None) -> str:
    """A query for `--limit` rows, kept as any query's, so that a run goes on with the same."""
    # The query may end with a comment, which only the end of its line ends.
    source = f"`{name.path}`" if name else f"(\n{(options.query or '').rstrip().rstrip(';')}\n)"
    return f"SELECT * FROM {source} LIMIT {options.limit}"


def _facts(client: "Client", name: TableName, shown: str) -> QueryRows:
    """Size, time and schema of a table, its rows not yet counted."""
    table = get_table(client, name)
    if table is None:
        raise UsageError(f"{shown}: no such table exists, and no file of that name either")
    if table.table_type not in ("TABLE", "SNAPSHOT"):
        raise UsageError(
            f"{shown} is a {table.table_type.lower()}, which has no rows of its own: read it with "
            f"--query 'SELECT * FROM `{name.path}`'"
        )
    schema = tuple(field.to_api_repr() for field in table.schema)
    return QueryRows(name.path, 0, table.num_bytes or 0, table.modified.timestamp(), schema)


def _count(client: "Client", name: TableName) -> tuple[float, int]:
    """A moment by the service's own clock, and how many rows the table had then."""
    now = _one(client, "SELECT CURRENT_TIMESTAMP() AS found")
    moment = now if isinstance(now, datetime) else datetime.now(UTC)
    at = moment.astimezone(UTC).isoformat(sep=" ")
    rows = f"SELECT COUNT(*) AS found FROM `{name.path}` FOR SYSTEM_TIME AS OF TIMESTAMP '{at}'"
    return moment.timestamp(), int(_one(client, rows))


def _one(client: "Client", sql: str) -> Any:
    return next(iter(client.query(sql, timeout=PATIENCE).result())).found


def _table_columns(options: Options, schema: tuple[dict[str, Any], ...], shown: str) -> Columns:
    """The columns that the options name, of usable types; `shown` names the table."""
    columns = replace(named_columns(options), id=options.id_column or "id")
    present = {field["name"]: _type_and_mode(field) for field in schema}
    required = {name: flag for flag, name in reversed(columns.requested)}
    for name, flag in required.items():
        kind, often = _present(present, flag, name, shown)
        types = _KINDS[flag]
        if kind not in types or (often and flag in ("id_column", "text_b_column")):
            raise UsageError(
                f"--{flag} {name} of {shown} is {kind}{' REPEATED' * often}; it must be {types[0]}"
            )
    extra: dict[str, pa.DataType] = {}
    for name in options.extra_columns or ():
        check_extra_name(check_column(name, "extra_columns"), options.keep_text)
        kind, often = _present(present, "extra_columns", name, shown)
        value_type = (_LISTED if often else _TYPES).get(kind)
        if value_type is None:
            raise UsageError(
                f"--extra_columns {name} of {shown} is {kind}{' REPEATED' * often}; {CAN_BE}"
            )
        extra[name] = pa.list_(value_type) if often else value_type
    id_type = "int64" if present[columns.id or "id"][0] in _INTEGERS else "string"
    return replace(columns, extra=pa.schema(extra.items()) if extra else None, id_type=id_type)


def _type_and_mode(field: dict[str, Any]) -> tuple[str, bool]:
    """A column's type, and whether it is REPEATED."""
    return field["type"].upper(), field.get("mode", "").upper() == "REPEATED"


def _present(
    present: dict[str, tuple[str, bool]], flag: str, name: str, shown: str
) -> tuple[str, bool]:
    check_column(name, flag)
    if name not in present:
        raise no_column(flag, name, f"no column of {shown}", present)
    return present[name]
