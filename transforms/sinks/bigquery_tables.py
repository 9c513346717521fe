"""Tables for vectors: whether one can take them, and the table itself if there is none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transforms.bigquery import (
    PARTITION_TYPES,
    PATIENCE,
    TableName,
    done_job,
    get_table,
    told,
)
from transforms.sinks.bigquery_schema import Field, mismatch, table_schema, vector_schema

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table


def ensure_table(
    client: "Client", name: TableName, fields: Sequence[Field], description: str
) -> "Table":
    """The table, made if there is none; with a partition in its name, partitioned by that.

    Args:
        client: Of the project whose jobs will load.
        name: The table, with its partition.
        fields: Of the files that will be loaded.
        description: Of a table that is made.

    Raises:
        ValueError: There is one that cannot take these fields.
    """
    from google.cloud import bigquery

    found = get_table(client, name)
    if found is None:
        schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
        table = bigquery.Table(name.path, schema=schema)
        table.description = description
        if name.partition:
            kind = PARTITION_TYPES[len(name.partition)]
            table.time_partitioning = bigquery.TimePartitioning(type_=kind)
        client.create_table(table, exists_ok=True, timeout=PATIENCE)
        found = client.get_table(name.path, timeout=PATIENCE)
    _check_fields(found, name, fields)
    return found


def dataset_location(client: "Client", name: TableName) -> str:
    """Where a table's data lie, and so where its jobs must run."""
    dataset = client.get_dataset(f"{name.project}.{name.dataset}", timeout=PATIENCE)
    return str(dataset.location)


def check_empty(client: "Client", name: TableName, job: str) -> None:
    """Refuses a table, or its partition, that has rows, unless they are what that job brought.

    Raises:
        ValueError: It has rows.
    """
    if done_job(client, dataset_location(client, name), job) is not None:
        return
    filled = get_table(client, name, decorated=True)
    if filled is not None and filled.num_rows:
        raise ValueError(
            f"--output_table {name} has {filled.num_rows:,} rows already, and "
            "--write_disposition is fail: choose append or truncate, or another table"
        )


def check_table(client: "Client", name: TableName, granularity: str, windows: bool) -> None:
    """Sees that a table can take vectors, before any work; makes nothing yet.

    Args:
        client: Of the project whose jobs will load.
        name: The table, with its partition.
        granularity: `sentence`, `token`, `word` or `span`.
        windows: Whether windows keep vectors of their own.

    Raises:
        ValueError: No such dataset, no permission, another schema or partitioning.
    """
    with told(f"--output_table {name}: dataset {name.project}.{name.dataset} cannot be used"):
        dataset_location(client, name)
    table = get_table(client, name)
    if table is None:
        return
    flag = f"--output_table {name}"
    if table.table_type != "TABLE":
        raise ValueError(f"{flag} is a {table.table_type.lower()}, nothing can be loaded into it")
    _check_fields(table, name, table_schema(vector_schema(granularity, windows)))
    if name.partition:
        wanted, found = PARTITION_TYPES[len(name.partition)], table.time_partitioning
        if found is None or found.type_ != wanted:
            raise ValueError(
                f"{flag}: ${name.partition} is a partition by {wanted.lower()}, but the table is "
                f"{'not partitioned by time' if found is None else 'by ' + found.type_.lower()}"
            )


def _check_fields(table: "Table", name: TableName, fields: Sequence[Field]) -> None:
    why = mismatch(fields, [each.to_api_repr() for each in table.schema])
    if why is not None:
        raise ValueError(
            f"--output_table {name} cannot take these vectors: {why}; choose another table"
        )
