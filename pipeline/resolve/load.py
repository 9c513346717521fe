"""Resolves the BigQuery table that the vectors are loaded into."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline.options import EmbedOptions
from pipeline.resolve.tables import job_project
from transforms.bigquery import load as bigquery
from transforms.bigquery.client import (
    bigquery_client,
    check_column,
    check_jobs,
    table_name,
    translate_errors,
)
from transforms.bigquery.load import kind_files
from transforms.bigquery.table_load import TableLoad
from transforms.bigquery.tables import check_table


def find_load(
    options: EmbedOptions,
    output: str,
    run: str,
    metadata: Mapping[str, Any],
    windows: bool,
    extra: pa.Schema | None,
) -> TableLoad | None:
    """The checked table that takes the vectors; None if they stay in files.

    Args:
        options: As given.
        output: Absolute folder, or URL.
        run: The run's fingerprint.
        metadata: What the vectors are.
        windows: Whether windows keep vectors of their own.
        extra: Names and types of the columns that pass through.

    Raises:
        ValueError: A table that cannot take them.
    """
    if options.output_table is None:
        return None
    name = table_name(options.output_table, "--output_table")
    for column in extra or ():
        check_column(column.name, "extra_columns")
    load = TableLoad(
        output=output,
        run=run,
        table=name,
        disposition=options.write_disposition or "append",
        project=job_project(options, name),
        granularities=tuple(metadata["granularity"]),
        windows=windows,
        most_uris=bigquery.MOST_URIS,
        vectors=metadata,
    )
    with bigquery_client(load.project) as client:
        with translate_errors(f"--output_table: jobs of project {load.project} cannot be run"):
            check_jobs(client)
        files = kind_files(load) if load.disposition == "fail" else {}
        for kind in load.granularities:
            with translate_errors(f"--output_table {load.table_of(kind)}"):
                check_table(client, load, kind, extra, list(files.get(kind, ())))
    return load
