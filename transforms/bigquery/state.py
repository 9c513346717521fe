"""Finds out what a table holds: how many rows, which vectors, and whether those of a run.

The table as it is now decides whether a run is loaded, because its rows may have been deleted,
replaced or dropped since a job loaded them. Rows are counted by reading one, because the count in
a table's metadata is late.
"""

import datetime
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from bert_embed.formats.output_files import KINDS
from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.run_record import Load
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import join, open_raw
from bert_embed.transforms.bigquery.client import PATIENCE, TableName, get_table
from bert_embed.transforms.bigquery.earlier_table import described_settings
from bert_embed.transforms.bigquery.table_load import KindLoad, TableLoad
from bert_embed.transforms.records.same_vectors import difference

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, SchemaField, Table

_SAMPLE_FILES, _SAMPLE_ROWS = 10, 100
_JOB_LABEL, _RUN_LABEL, _ROWS_LABEL = "bert_embed_job", "bert_embed_run", "bert_embed_rows"


def row_count(client: "Client", name: TableName) -> int:
    """Rows of a table, or of its partition; 0 if there is none."""
    from google.api_core.exceptions import NotFound
    from google.cloud.bigquery import SchemaField

    try:
        return _first_row(client, name, SchemaField("id", "STRING"))[1]
    except NotFound:
        return 0


def _first_row(client: "Client", name: TableName, column: "SchemaField") -> tuple[Any, int]:
    """A column's value in a row, None if there is no row; and how many rows there are."""
    from google.cloud.bigquery import TableReference

    rows = client.list_rows(
        TableReference.from_string(name.destination),
        selected_fields=[column],
        max_results=1,
        timeout=PATIENCE,
    )
    first = next(iter(rows), None)
    return None if first is None else first[0], int(rows.total_rows or 0)


def has_rows_of(target: KindLoad, job_id: str, modified: str | None = None) -> bool:
    """Whether a table holds the rows that a job loaded now, and with `truncate` no others.

    `modified` is when the table was last changed after that, ISO 8601; None if not recorded.
    """
    table = get_table(target.client, target.name)
    if table is None:
        return False
    count = row_count(target.client, target.name)
    replaces = target.load.disposition == "truncate"
    labels = table.labels.get(_JOB_LABEL), table.labels.get(_ROWS_LABEL)
    alike = labels == (job_id, str(count))
    unchanged = alike and table.modified.isoformat() == modified
    if unchanged or (alike and modified is None and not replaces):
        return True
    if not count or (replaces and not alike):
        return False
    if table.require_partition_filter:  # our query has no filter; do not risk loading twice
        return not replaces
    sample = dict(_sample(target))
    found = _found(target, sample) if sample else 0
    return found == len(sample) if replaces else found > 0


def _sample(target: KindLoad) -> Iterator[tuple[str, int]]:
    """Ids of some rows of some files, and the hashes of their texts."""
    for name in target.files[:: max(1, -(-len(target.files) // _SAMPLE_FILES))]:
        with open_raw(join(target.load.output, name)) as file:
            columns = ["id", "metadata" if target.load.is_rag else "text_hash"]
            for batch in pq.ParquetFile(file).iter_batches(_SAMPLE_ROWS, columns=columns):
                ids, hashes = (column.to_pylist() for column in batch.columns)
                if target.load.is_rag:
                    pairs = [{each["key"]: each["value"] for each in row} for row in hashes]
                    hashes = [int(row["text_hash"]) for row in pairs]
                yield from zip(ids, hashes, strict=True)
                break


def _found(target: KindLoad, sample: Mapping[str, int]) -> int:
    """How many of these ids the table holds with one of these hashes."""
    from google.cloud import bigquery

    same_text = "text_hash IN UNNEST(@hashes)"
    if target.load.is_rag:
        same_text = (
            "EXISTS(SELECT 1 FROM UNNEST(metadata) AS each WHERE each.key = 'text_hash' "
            "AND CAST(each.value AS INT64) IN UNNEST(@hashes))"
        )
    sql = (
        f"SELECT COUNT(DISTINCT id) FROM `{target.name.path}` "
        f"WHERE id IN UNNEST(@ids) AND {same_text}"
    )
    config = bigquery.QueryJobConfig(
        query_parameters=[
            bigquery.ArrayQueryParameter("ids", "STRING", list(sample)),
            bigquery.ArrayQueryParameter("hashes", "INT64", list(sample.values())),
        ]
    )
    job = target.client.query(sql, job_config=config, location=target.location, timeout=PATIENCE)
    return int(next(iter(job.result()))[0])


def check_vectors(target: KindLoad, table: "Table") -> None:
    """Checks that vectors can be added to those that stay in a table.

    Raises:
        ValueError: They are of another kind, or the table is being replaced.
    """
    if not _staying_rows(target):
        return
    flag = f"--output_table {target.name}"
    if _is_pending(table.description):
        raise InputError(
            f"{flag}: a run that replaces its rows has not finished; run its command again, or "
            "choose --write_disposition truncate"
        )
    settings = described_settings(table.description)
    if settings is None:
        _check_length(target, table)
        return
    free = ("granularity", *(("token_shape", "word_pooling") if target.kind == "sentence" else ()))
    differs = difference(settings, target.load.vectors, free)
    if differs is not None:
        raise InputError(
            f"{flag} holds other vectors than this run would add: {differs}; choose another "
            "table, or --write_disposition truncate to replace them"
        )


def _staying_rows(target: KindLoad) -> int:
    """How many rows of the whole table stay there when a run is loaded."""
    count = row_count(target.client, replace(target.name, partition=""))
    if target.load.disposition != "truncate":
        return count
    return count - row_count(target.client, target.name)


def _check_length(target: KindLoad, table: "Table") -> None:
    """Compares lengths of vectors, all that is known of a table without our description."""
    is_sentence = target.kind == "sentence"
    column = "embedding" if is_sentence else KINDS[target.kind]
    field = next(field for field in table.schema if field.name.lower() == column)
    value = _first_row(target.client, replace(target.name, partition=""), field)[0]
    if not is_sentence:
        value = value[0]["embedding"] if value else None
    length = math.prod(target.load.vectors["shape" if is_sentence else "token_shape"])
    if value and len(value) != length:
        raise InputError(
            f"--output_table {target.name} holds vectors of {len(value):,} numbers, this run makes "
            f"{length:,}; choose another table, or --write_disposition truncate to replace them"
        )


def describe_before(target: KindLoad, table: "Table") -> None:
    """Describes a table before a load: that its rows are being replaced, or what is loaded.

    A description that somebody else wrote stays.
    """
    if not _is_ours(table.description) or _staying_rows(target):
        return
    settings = described_settings(table.description)
    if settings is not None and difference(settings, target.load.vectors) is None:
        return
    replaces = row_count(target.client, target.name) > 0
    _update(target, description=_description(None if replaces else target.load))


def note_load(target: KindLoad, job: Any, documents: int, now: bool) -> Load:
    """Labels a table with its last load; returns the load for the run's record."""
    client, load, name = target.client, target.load, target.name
    table, count = client.get_table(name.path, timeout=PATIENCE), row_count(client, name)
    labels = {_RUN_LABEL: load.run, _JOB_LABEL: job.job_id, _ROWS_LABEL: str(count)}
    changes: dict[str, Any] = {"labels": table.labels | labels}
    if _is_pending(table.description):
        changes["description"] = _description(load)
    _update(target, **changes)
    table = client.get_table(name.path, timeout=PATIENCE)
    ended = job.ended or datetime.datetime.now(datetime.UTC)
    return Load(
        job=job.job_id,
        documents=documents,
        ended=ended.isoformat(timespec="seconds"),
        table_rows=count,
        modified=table.modified.isoformat(),
        now=now,
    )


def loaded_run(table: "Table") -> str | None:
    """Fingerprint of the run that was loaded last, if it is known."""
    return table.labels.get(_RUN_LABEL)


def _update(target: KindLoad, **changes: Any) -> None:
    from google.cloud.bigquery import Table

    table = Table(target.name.path)
    for field, value in changes.items():
        setattr(table, field, value)
    target.client.update_table(table, list(changes), timeout=PATIENCE)


def _description(load: TableLoad | None) -> str:
    return json.dumps({METADATA_KEY: None if load is None else dict(load.vectors)})


def _is_ours(description: str | None) -> bool:
    return (
        not description or _is_pending(description) or described_settings(description) is not None
    )


def _is_pending(description: str | None) -> bool:
    """Whether a load that replaces all rows has begun and not ended."""
    return description == _description(None)
