"""Reads a BigQuery table as earlier output: its facts, ids and hashes of texts."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.storage.errors import InputError
from bert_embed.transforms.bigquery import client as bigquery
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    bigquery_client,
    looks_like_table,
    open_streams,
    stream_rows,
    translate_errors,
)

_KEY_BYTES = 64  # of an id and a hash, about: a stream has some million rows


def table_name(text: str) -> str | None:
    """`project:dataset.table`, or None if the text does not name a table.

    >>> table_name("bq://my-project.texts.vectors"), table_name("build/out")
    ('my-project:texts.vectors', None)
    """
    if not looks_like_table(text):
        return None
    name = bigquery.table_name(text, "--skip_existing")
    if name.partition:
        raise InputError(
            f"--skip_existing {text} names a partition, which cannot be compared alone: name the "
            "table, or the output folder of the run that filled the partition"
        )
    return str(name)


def table_facts(name: str) -> tuple[int, float, dict[str, Any] | None]:
    """Rows of a table of vectors, its creation in seconds since 1970, its settings or None."""
    parsed = bigquery.table_name(name, "--skip_existing")
    with (
        bigquery_client(parsed.project) as client,
        translate_errors(f"--skip_existing {name} cannot be read"),
    ):
        table = client.get_table(parsed.path, **bigquery.first_request())
    missing = {"id", "text_hash"} - {field.name for field in table.schema}
    if missing:
        raise InputError(
            f"--skip_existing {name} has no column {' and no column '.join(sorted(missing))}; it "
            "must be a table that --output_format bigquery filled"
        )
    created = table.created.timestamp() if table.created else 0.0
    return table.num_rows or 0, created, described_settings(table.description)


def described_settings(description: str | None) -> dict[str, Any] | None:
    """What the vectors of a table are, from its description: JSON with the key `bert_embed`.

    >>> described_settings('{"bert_embed": {"dim": 3}}'), described_settings("my vectors")
    ({'dim': 3}, None)
    """
    try:
        described = json.loads(description or "")
    except ValueError:
        return None
    return described.get(METADATA_KEY) if isinstance(described, dict) else None


def table_streams(name: str) -> list[str]:
    """Streams of ids and hashes of the texts of a table's rows, for `table_columns`."""
    parsed = bigquery.table_name(name, "--skip_existing")
    with (
        bigquery_client(parsed.project) as client,
        translate_errors(f"--skip_existing {name} cannot be read"),
    ):
        size = (client.get_table(parsed.path, timeout=PATIENCE).num_rows or 0) * _KEY_BYTES
    return open_streams(parsed, ["id", "text_hash"], parsed.project, size)


def table_columns(name: str, stream: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    """Ids and int64 hashes of the texts of a stream's rows; InputError if one is null."""
    for batch in stream_rows(stream, f"--skip_existing {name}"):
        if batch["id"].null_count or batch["text_hash"].null_count:
            raise InputError(f"--skip_existing {name} has a null in id or text_hash")
        yield batch["id"].cast(pa.string()), batch["text_hash"].cast(pa.int64()).to_numpy()
