"""Queries: `--query` in, the temporary table that holds its rows out, run once a run."""

import hashlib
import json
from typing import TYPE_CHECKING

from pipeline.options import EmbedOptions, UsageError
from transforms.bigquery import PATIENCE, TableName, get_table, table_name, told
from transforms.files import join, read_bytes

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

_DATASET = "_bert_embed"  # the underscore keeps it out of the console's lists
_DAY = 24 * 3600 * 1000
_KEPT_DAYS = 7


def temporary_table(client: "Client", options: EmbedOptions, output: str) -> TableName:
    """The table with a query's rows; the query is run if no attempt of this run did so before.

    The table's name follows from the query and the output folder. While the folder holds a run
    that is not complete, the same command reads the same rows again; they are kept for seven days
    where the dataset is ours. A complete run is found complete, but with `--overwrite` the query
    is run anew.

    Raises:
        UsageError: `--dry_run`, which must not run it.
        ValueError: The query is wrong, or its dataset cannot be used.
    """
    assert options.query is not None
    with told("--query"):
        location = _checked_location(client, options.query)
    name = _name(client, options, output, location)
    with told(f"--temp_dataset {name.dataset}"):
        _make_dataset(client, name, location, given=options.temp_dataset is not None)
    status = _earlier_status(output)
    again = status is None or (status == "done" and options.overwrite)
    if again or get_table(client, name) is None:
        if options.dry_run:
            raise UsageError("--dry_run would have to run the --query to plan; leave it out")
        with told("--query"):
            _run(client, options.query, name, location)
    return name


def _earlier_status(output: str) -> str | None:
    """How the run in a folder stands, None if there is none that can be read."""
    data = read_bytes(join(output, "run.json"))
    try:
        return None if data is None else json.loads(data).get("status")
    except (ValueError, AttributeError):
        return None


def _checked_location(client: "Client", query: str) -> str:
    """Where the query's tables lie; says what is wrong with it before it costs anything."""
    from google.cloud import bigquery

    config = bigquery.QueryJobConfig(dry_run=True, use_query_cache=False)
    job = client.query(query, job_config=config, timeout=PATIENCE)
    if job.statement_type not in (None, "SELECT"):
        raise UsageError(f"--query must be one SELECT, this is {job.statement_type}")
    return job.location or "US"


def _name(client: "Client", options: EmbedOptions, output: str, location: str) -> TableName:
    place = location.lower().replace("-", "_")
    dataset = options.temp_dataset or f"{_DATASET}_{place}"
    if "." not in dataset.replace(":", "."):
        dataset = f"{client.project}.{dataset}"
    digest = hashlib.sha256(f"{options.query}\n{output}".encode()).hexdigest()[:24]
    return table_name(f"{dataset}.query_{digest}", "--temp_dataset")


def _make_dataset(client: "Client", name: TableName, location: str, given: bool) -> None:
    """Makes our own dataset, whose tables expire; one that was named must be there."""
    from google.cloud import bigquery

    path = f"{name.project}.{name.dataset}"
    if given:
        client.get_dataset(path, timeout=PATIENCE)
        return
    dataset = bigquery.Dataset(path)
    dataset.location = location
    dataset.default_table_expiration_ms = _KEPT_DAYS * _DAY
    client.create_dataset(dataset, exists_ok=True, timeout=PATIENCE)


def _run(client: "Client", query: str, name: TableName, location: str) -> None:
    from google.cloud import bigquery

    config = bigquery.QueryJobConfig(
        destination=name.path, write_disposition="WRITE_TRUNCATE", use_query_cache=False
    )
    client.query(query, job_config=config, location=location, timeout=PATIENCE).result()
