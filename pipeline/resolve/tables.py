"""Resolves the BigQuery table or query that a run reads."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.resolve.queries import query_rows
from bert_embed.pipeline.resolve.table_columns import table_columns
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.run_record import QueryRows
from bert_embed.storage.files import FileInfo
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    TableName,
    bigquery_client,
    get_table,
    table_name,
    translate_errors,
)
from bert_embed.transforms.bigquery.read import TableRequest, block_count
from bert_embed.transforms.records.spec import InputFile

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table


@dataclass(frozen=True)
class TableInput:
    """A table that can be read.

    Attributes:
        request: What to read of it, not yet divided into blocks.
        modified: When it was last changed, seconds since 1970.
        schema: Its columns, as BigQuery describes them.
        expires: Whether it is the result of a query, which BigQuery deletes later.
    """

    request: TableRequest
    modified: float
    schema: tuple[dict[str, Any], ...]
    expires: bool = False

    @property
    def kept(self) -> QueryRows | None:
        """The facts that `run.json` keeps of a table that expires; None for others."""
        if not self.expires:
            return None
        return QueryRows(
            name=self.request.table.path,
            rows=self.request.rows,
            bytes=self.request.bytes,
            modified=self.modified,
            schema=self.schema,
        )

    @property
    def file(self) -> InputFile:
        """The table as an entry of a listing: name, size and time identify its state."""
        path = f"{self.request.table} with {self.request.rows} rows"
        info = FileInfo(path, self.request.bytes, self.modified)
        return InputFile(info, "bigquery", None, self.request.bytes)

    def dealt(self, block_bytes: int) -> TableRequest:
        """The request, divided into blocks of about that size."""
        return replace(self.request, blocks=block_count(self.request.bytes, block_bytes))


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
    name = None
    if options.query is None:
        name = table_name(options.input[0], "--input")
        if name.partition:
            raise UsageError(
                f"--input {options.input[0]} names a partition; select it with --query"
            )
    shown = "--query" if name is None else f"--input {name}"
    with bigquery_client(job_project(options, name)) as client:
        query = options.query
        if options.limit is not None:
            name, query = None, _first_rows(options, name)
        if query is not None:
            name, expired = query_rows(client, query, options, output)
            if expired is not None:
                return _expired_input(client, name, expired, options)
        with translate_errors(f"{shown} cannot be read"):
            assert name is not None
            return _table_input(client, name, shown, options, expires=query is not None)


def _first_rows(options: Options, name: TableName | None) -> str:
    """A query for as many rows of the table, or of the query, as `--limit` says.

    Which rows these are is up to BigQuery. They are kept like those of any query, so that the same
    command continues with the same rows.
    """
    # The query may end with a comment, which only the end of its line ends.
    source = f"`{name.path}`" if name else f"(\n{(options.query or '').rstrip().rstrip(';')}\n)"
    return f"SELECT * FROM {source} LIMIT {options.limit}"


def _table_input(
    client: "Client", name: TableName, shown: str, options: Options, expires: bool
) -> TableInput:
    table = get_table(client, name)
    if table is None:
        raise UsageError(f"{shown}: no such table exists, and no file of that name either")
    if table.table_type not in ("TABLE", "SNAPSHOT"):
        raise UsageError(
            f"{shown} is a {table.table_type.lower()}, which has no rows of its own: read it with "
            f"--query 'SELECT * FROM `{name.path}`'"
        )
    columns = table_columns(options, list(table.schema), shown)
    snapshot, rows = _count(client, name, table)
    request = TableRequest(
        table=name,
        snapshot=snapshot,
        rows=rows,
        bytes=table.num_bytes or 0,
        blocks=1,
        project=client.project,
        columns=columns,
    )
    schema = tuple(field.to_api_repr() for field in table.schema)
    return TableInput(request, table.modified.timestamp(), schema, expires)


def _expired_input(
    client: "Client", name: TableName, kept: QueryRows, options: Options
) -> TableInput:
    """The table as a complete run read it, from which the same fingerprint follows."""
    from google.cloud.bigquery import SchemaField

    fields = [SchemaField.from_api_repr(each) for each in kept.schema]
    request = TableRequest(
        table=name,
        snapshot=kept.modified,
        rows=kept.rows,
        bytes=kept.bytes,
        blocks=1,
        project=client.project,
        columns=table_columns(options, fields, "--query"),
    )
    return TableInput(request, kept.modified, kept.schema, expires=True)


def _count(client: "Client", name: TableName, table: "Table") -> tuple[float, int]:
    """A moment by the service's own clock, and how many rows the table had then.

    The count is a query of its own: the rows that are read later are compared with it.
    """
    now = _one(client, "SELECT CURRENT_TIMESTAMP() AS found", table.location)
    moment = now if isinstance(now, datetime) else datetime.now(UTC)
    at = moment.astimezone(UTC).isoformat(sep=" ")
    rows = _one(
        client,
        f"SELECT COUNT(*) AS found FROM `{name.path}` FOR SYSTEM_TIME AS OF TIMESTAMP '{at}'",
        table.location,
    )
    return moment.timestamp(), int(rows)


def _one(client: "Client", sql: str, location: str | None) -> Any:
    job = client.query(sql, location=location, timeout=PATIENCE)
    return next(iter(job.result())).found
