"""Checks that a table can hold vectors, and creates it if it does not exist."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from bert.formats.result_files import METADATA_KEY
from storage.errors import InputError
from transforms.bigquery.client import (
    PARTITION_TYPES,
    PATIENCE,
    TableName,
    done_job,
    get_table,
    translate_errors,
)
from transforms.bigquery.schema import Field, mismatch, table_schema, vector_schema
from transforms.bigquery.state import (
    check_vectors,
    describe_before,
    has_rows_of,
    loaded_run,
    row_count,
)
from transforms.bigquery.table_load import TableLoad

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table


def ensure_table(client: "Client", load: TableLoad, kind: str, fields: Sequence[Field]) -> "Table":
    """The table, created if it does not exist; partitioned if its name has a partition.

    Args:
        client: Of the project that runs the jobs.
        load: What is loaded.
        kind: Which of its kinds of vectors.
        fields: Columns of the files.

    Raises:
        ValueError: It exists and cannot hold these fields, or holds other vectors.
    """
    from google.cloud import bigquery

    name = load.table_of(kind)
    found = get_table(client, name)
    if found is None:
        schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
        table = bigquery.Table(name.path, schema=schema)
        table.description = json.dumps({METADATA_KEY: dict(load.vectors)})
        if name.partition:
            partitions = PARTITION_TYPES[len(name.partition)]
            table.time_partitioning = bigquery.TimePartitioning(type_=partitions)
        client.create_table(table, exists_ok=True, timeout=PATIENCE)
        found = client.get_table(name.path, timeout=PATIENCE)
    _check_fields(found, name, fields)
    check_vectors(client, load, kind, found)
    describe_before(client, load, kind, found)
    return found


def dataset_location(client: "Client", name: TableName) -> str:
    """Where a table is stored, and so where its jobs must run."""
    dataset = client.get_dataset(f"{name.project}.{name.dataset}", timeout=PATIENCE)
    return str(dataset.location)


def check_table(
    client: "Client", load: TableLoad, kind: str, extra: pa.Schema | None, files: Sequence[str]
) -> None:
    """Checks that a table can hold vectors, before any work; creates nothing.

    Args:
        client: Of the project that runs the jobs.
        load: What is loaded.
        kind: Which of its kinds of vectors.
        extra: Names and types of the extra columns.
        files: Names of the existing files of that kind.

    Raises:
        ValueError: No such dataset, no permission, another schema or partitioning, other vectors,
            or with `fail` rows that this run did not load.
    """
    name = load.table_of(kind)
    with translate_errors(
        f"--output_table {name}: dataset {name.project}.{name.dataset} cannot be used"
    ):
        dataset_location(client, name)
    fields = table_schema(pa.schema([*vector_schema(kind, load.windows), *(extra or ())]))
    table = get_table(client, name)
    if table is None:
        return
    flag = f"--output_table {name}"
    if table.table_type != "TABLE":
        raise InputError(f"{flag} is a {table.table_type.lower()}, nothing can be loaded into it")
    _check_fields(table, name, fields)
    if name.partition:
        ours, found = PARTITION_TYPES[len(name.partition)], table.time_partitioning
        if found is None or found.type_ != ours:
            raise InputError(
                f"{flag}: ${name.partition} is a partition by {ours.lower()}, but the table is "
                f"{'not partitioned by time' if found is None else 'by ' + found.type_.lower()}"
            )
    if load.disposition == "fail":
        _check_empty(client, load, kind, table, files)
    check_vectors(client, load, kind, table)


def _check_fields(table: "Table", name: TableName, fields: Sequence[Field]) -> None:
    why = mismatch(fields, [each.to_api_repr() for each in table.schema])
    if why is not None:
        raise InputError(
            f"--output_table {name} cannot take these vectors: {why}; choose another table, or "
            "change its columns"
        )


def _check_empty(
    client: "Client", load: TableLoad, kind: str, table: "Table", files: Sequence[str]
) -> None:
    """Rejects a table, or its partition, with rows that this run did not load."""
    name = load.table_of(kind)
    count = row_count(client, name)
    if not count or loaded_run(table) == load.run:
        return
    location = dataset_location(client, name)
    job = done_job(client, location, load.job_name(kind))
    if job is None or not has_rows_of(client, load, kind, files, location, job.job_id):
        raise InputError(
            f"--output_table {name} has {count:,} rows already, and "
            "--write_disposition is fail: choose append or truncate, or another table"
        )
