"""Runs the `--query` of a run once and names the temporary table that holds its rows."""

import hashlib
from typing import TYPE_CHECKING

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.outputs.run_record import record_of_output
from bert_embed.run_record import QueryRows
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    TableName,
    get_table,
    table_name,
    translate_errors,
)

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

_DATASET = "_bert_embed"  # the underscore keeps it out of the console's lists
_KEPT_DAYS = 7


def query_rows(
    client: "Client", query: str, options: Options, output: str
) -> tuple[TableName, QueryRows | None]:
    """The table with the rows of a query, which runs unless an earlier attempt of this run did it.

    The table's name follows from the query and the output folder. While the folder holds an
    unfinished run, the same command reads the same rows again; our own dataset keeps them for
    seven days. Of a complete run that has outlived its rows, the second value is what run.json
    says of them; else it is None.
    """
    with translate_errors("--query"):
        location = _checked_location(client, query)
    name = _name(client, query, output, location)
    with translate_errors("--query"):
        exists = get_table(client, name) is not None
    record = record_of_output(options, output)
    expired = record.query_rows if record and not exists and not options.overwrite else None
    if record is not None and expired is not None and expired.name == name.path:
        if record.is_done:
            return name, expired
        raise UsageError(
            f"--output {options.output} holds an unfinished run whose rows have expired: BigQuery "
            f"keeps them for {_KEPT_DAYS} days; --overwrite starts again with the query"
        )
    if not exists or record is None or (record.is_done and options.overwrite):
        if options.dry_run:
            what = "the --query" if options.limit is None else "a query for --limit"
            raise UsageError(f"--dry_run would have to run {what} to plan; leave --dry_run out")
        with translate_errors("--query"):
            _make_dataset(client, name, location)
            _run(client, query, name, location)
    return name, None


def _checked_location(client: "Client", query: str) -> str:
    """The location of the query's tables; checks the query before it costs anything."""
    from google.cloud import bigquery

    config = bigquery.QueryJobConfig(dry_run=True, use_query_cache=False)
    job = client.query(query, job_config=config, timeout=PATIENCE)
    if job.statement_type not in (None, "SELECT"):
        raise UsageError(f"--query must be one SELECT, this is {job.statement_type}")
    return job.location or "US"


def _name(client: "Client", query: str, output: str, location: str) -> TableName:
    dataset = f"{client.project}.{_DATASET}_{location.lower().replace('-', '_')}"
    digest = hashlib.sha256(f"{query}\n{output}".encode()).hexdigest()[:24]
    return table_name(f"{dataset}.query_{digest}", "--query")


def _make_dataset(client: "Client", name: TableName, location: str) -> None:
    """Creates our own dataset, whose tables expire."""
    from google.cloud import bigquery

    dataset = bigquery.Dataset(f"{name.project}.{name.dataset}")
    dataset.location = location
    dataset.default_table_expiration_ms = _KEPT_DAYS * 24 * 3600 * 1000
    client.create_dataset(dataset, exists_ok=True, timeout=PATIENCE)


def _run(client: "Client", query: str, name: TableName, location: str) -> None:
    from google.cloud import bigquery

    config = bigquery.QueryJobConfig(
        destination=name.path, write_disposition="WRITE_TRUNCATE", use_query_cache=False
    )
    client.query(query, job_config=config, location=location, timeout=PATIENCE).result()
