"""Tables: options that name tables of BigQuery in, what to read and to load out, checked."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipeline.options import EmbedOptions, UsageError
from pipeline.queries import temporary_table
from pipeline.table_columns import table_columns
from transforms.bigquery import (
    PATIENCE,
    TableName,
    bigquery_client,
    get_table,
    looks_like_table,
    table_name,
    told,
)
from transforms.block_spec import InputFile
from transforms.files import FileInfo
from transforms.sources.bigquery import TableRequest, block_count

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table

_PROJECT_FLAG = re.compile(r"--project=(.+)")


@dataclass(frozen=True)
class TableInput:
    """A table that can be read.

    Attributes:
        request: What to read of it; its blocks are still to be counted.
        modified: When it was last changed, seconds since 1970.
    """

    request: TableRequest
    modified: float

    @property
    def file(self) -> InputFile:
        """As an entry of a listing: name, size and time tell one state of it from another."""
        path = f"{self.request.table} with {self.request.rows} rows"
        info = FileInfo(path, self.request.bytes, self.modified)
        return InputFile(info, "bigquery", None, self.request.bytes)

    def dealt(self, block_bytes: int) -> TableRequest:
        """What to read, dealt into blocks of about that size."""
        return replace(self.request, blocks=block_count(self.request.bytes, block_bytes))


def names_table(options: EmbedOptions) -> bool:
    """Whether the input is a table or a query, not files."""
    if options.query is not None or options.input_format == "bigquery":
        return True
    if options.input_format is not None:
        return False
    return any(looks_like_table(each) for each in options.input)


def job_project(options: EmbedOptions, table: TableName | None) -> str:
    """Whose jobs read, query and load: `--project`, else the table's own project.

    Raises:
        UsageError: There is neither.
    """
    words = " ".join(options.beam_args).replace("--project ", "--project=").split()
    found = [match[1] for word in words if (match := _PROJECT_FLAG.fullmatch(word))]
    if found:
        return found[-1]
    if table is None:
        raise UsageError("--query needs --project, the project that runs it and pays for it")
    return table.project


def find_input(options: EmbedOptions, output: str) -> TableInput | None:
    """The table to read, the query's result if there is a query; None if the input is files.

    Raises:
        UsageError: Flags that cannot go together, or columns that are not there.
        ValueError: A table that is not there, or may not be read.
    """
    if not names_table(options):
        return None
    _check_flags(options)
    name = None
    if options.query is None:
        name = table_name(options.input[0], "--input")
        if name.partition:
            raise UsageError(f"--input {options.input[0]} names a partition; select it by --query")
    with bigquery_client(job_project(options, name)) as client:
        if name is None:
            name, shown = temporary_table(client, options, output), "--query"
        else:
            shown = f"--input {name}"
        with told(f"{shown} cannot be read"):
            return _table_input(client, name, shown, options)


def _table_input(
    client: "Client", name: TableName, shown: str, options: EmbedOptions
) -> TableInput:
    table = get_table(client, name)
    if table is None:
        raise UsageError(f"{shown}: there is no such table, and no file of that name either")
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
    return TableInput(request, table.modified.timestamp())


def _check_flags(options: EmbedOptions) -> None:
    if options.query is None and options.temp_dataset is not None:
        raise UsageError("--temp_dataset is for the rows of a --query, give that, too")
    if options.query is not None and options.input:
        raise UsageError("--query cannot go with --input, give only one")
    if options.query is None and len(options.input) > 1:
        raise UsageError(
            "--input takes one table of BigQuery and nothing beside it; a --query can join several"
        )
    if options.limit is not None:
        raise UsageError(
            "--limit is for files, the rows of a table have no order; use a --query with "
            "ORDER BY and LIMIT"
        )
    if options.pair_separator is not None:
        raise UsageError("--pair_separator is for plain text; --text_b_column is for tables")


def _count(client: "Client", name: TableName, table: "Table") -> tuple[float, int]:
    """A moment by the service's own clock, and how many rows the table had then.

    The count is a query of its own: it is what the rows that are read later are held against.
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
