"""Checks that a table can hold vectors, and creates it if it does not exist."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.storage.errors import InputError
from bert_embed.storage.plurals import counted
from bert_embed.transforms.bigquery.client import (
    PARTITION_TYPES,
    PATIENCE,
    done_job,
    get_table,
    translate_errors,
)
from bert_embed.transforms.bigquery.schema import Field, mismatch, table_schema
from bert_embed.transforms.bigquery.state import (
    check_vectors,
    describe_before,
    has_rows_of,
    loaded_run,
    row_count,
)
from bert_embed.transforms.bigquery.table_load import KindLoad

if TYPE_CHECKING:
    from google.cloud.bigquery import Table


def ensure_table(target: KindLoad, fields: Sequence[Field]) -> "Table":
    """The table, created with these fields if it does not exist; partitioned if its name says so.

    Raises:
        ValueError: It exists and cannot hold these fields, or holds other vectors.
    """
    from google.cloud import bigquery

    client, name = target.client, target.name
    found = get_table(client, name)
    if found is None:
        schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
        table = bigquery.Table(name.path, schema=schema)
        table.description = json.dumps({METADATA_KEY: dict(target.load.vectors)})
        if name.partition:
            partitions = PARTITION_TYPES[len(name.partition)]
            table.time_partitioning = bigquery.TimePartitioning(type_=partitions)
        client.create_table(table, exists_ok=True, timeout=PATIENCE)
        found = client.get_table(name.path, timeout=PATIENCE)
    _check_fields(found, target, fields)
    check_vectors(target, found)
    describe_before(target, found)
    return found


def check_table(target: KindLoad, extra: pa.Schema | None) -> None:
    """Checks that a table can hold vectors and extra columns, before any work; creates nothing.

    Raises:
        ValueError: No such dataset, no permission, another schema or partitioning, other vectors,
            or with `fail` rows that this run did not load.
    """
    name = target.name
    with translate_errors(
        f"--output_table {name}: dataset {name.project}.{name.dataset} cannot be used"
    ):
        _ = target.location  # asks the service
    more = () if extra is None or target.load.is_rag else extra
    fields = table_schema(pa.schema([*target.columns, *more]))
    table = get_table(target.client, name)
    if table is None:
        return
    flag = f"--output_table {name}"
    if table.table_type != "TABLE":
        raise InputError(f"{flag} is a {table.table_type.lower()}, nothing can be loaded into it")
    _check_fields(table, target, fields)
    if name.partition:
        ours, found = PARTITION_TYPES[len(name.partition)], table.time_partitioning
        if found is None or found.type_ != ours:
            raise InputError(
                f"{flag}: ${name.partition} is a partition by {ours.lower()}, but the table is "
                f"{'not partitioned by time' if found is None else 'by ' + found.type_.lower()}"
            )
    if target.load.disposition == "fail":
        _check_empty(target, table)
    check_vectors(target, table)


def _check_fields(table: "Table", target: KindLoad, fields: Sequence[Field]) -> None:
    why = mismatch(fields, [each.to_api_repr() for each in table.schema])
    if why is not None:
        raise InputError(
            f"--output_table {target.name} cannot take these vectors: {why}; choose another "
            "table, or change its columns"
        )


def _check_empty(target: KindLoad, table: "Table") -> None:
    """Rejects a table, or its partition, with rows that this run did not load."""
    count = row_count(target.client, target.name)
    if not count or loaded_run(table) == target.load.run:
        return
    job = done_job(target.client, target.location, target.job_name)
    if job is None or not has_rows_of(target, job.job_id):
        raise InputError(
            f"--output_table {target.name} has {counted(count, 'row')} already, and "
            "--write_disposition is fail: choose append or truncate, or another table"
        )
