"""Load: options that name a table for the vectors in, what to load and what to ask of it out."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from bert.result_files import FILE_STEMS, METADATA_KEY
from pipeline.options import EmbedOptions
from pipeline.tables import job_project
from transforms.bigquery import TableName, bigquery_client, table_name, told
from transforms.sinks import bigquery
from transforms.sinks.bigquery import TableLoad
from transforms.sinks.bigquery_tables import check_empty, check_table


def find_load(
    options: EmbedOptions, output: str, run: str, metadata: Mapping[str, Any], windows: bool
) -> TableLoad | None:
    """Where the vectors are loaded, seen to be able to take them; None if they stay in files.

    Args:
        options: As asked.
        output: Absolute folder, or URL.
        run: The run's fingerprint.
        metadata: What the vectors are.
        windows: Whether windows keep vectors of their own.

    Raises:
        ValueError: A table that cannot take them.
    """
    if options.output_table is None:
        return None
    name = table_name(options.output_table, "--output_table")
    load = TableLoad(
        output=output,
        run=run,
        table=name,
        disposition=options.write_disposition or "append",
        project=job_project(options, name),
        granularities=tuple(metadata["granularity"]),
        windows=windows,
        most_uris=bigquery.MOST_URIS,
        description=json.dumps({METADATA_KEY: metadata}),
    )
    with bigquery_client(load.project) as client:
        for kind in load.granularities:
            into = load.table_of(kind)
            with told(f"--output_table {into}"):
                check_table(client, into, kind, windows)
                if load.disposition == "fail":
                    check_empty(client, into, load.job_name(kind))
    return load


def statements(record: Mapping[str, Any]) -> str:
    """SQL to go on with: an index over the vectors of a run's table, and a search in it.

    Args:
        record: The run's record, with its `table`.
    """
    return "\n".join(_statements(record["table"], record["vectors"]))


def _statements(table: Mapping[str, Any], vectors: Mapping[str, Any]) -> Iterator[str]:
    for granularity, destination in table["tables"].items():
        path = TableName(*destination.partition("$")[0].rsplit(".", 2)).path
        if granularity == "sentence":
            width = math.prod(vectors["shape"])
            yield f"-- {path}: vectors of {width} numbers; an index takes 5,000 rows or more"
            yield f"CREATE VECTOR INDEX IF NOT EXISTS embedding_index ON `{path}`(embedding)"
            yield "OPTIONS (index_type = 'IVF', distance_type = 'COSINE');"
            yield "SELECT base.id, distance FROM VECTOR_SEARCH("
            yield f"  TABLE `{path}`, 'embedding',"
            yield f"  (SELECT @query AS embedding),  -- ARRAY<FLOAT64> of {width} numbers"
            yield "  top_k => 10, distance_type => 'COSINE');"
        else:
            width = math.prod(vectors["token_shape"])
            stem = FILE_STEMS[granularity]
            yield f"-- {path}: lists of vectors of {width} numbers"
            yield f"SELECT id, each.* FROM `{path}`, UNNEST({stem}) AS each;"
