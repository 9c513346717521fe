"""Resolves the BigQuery table that the vectors are loaded into."""

from pipeline.resolve.tables import job_project
from pipeline.run import EmbedRun
from transforms.bigquery import load as bigquery
from transforms.bigquery.client import (
    bigquery_client,
    check_column,
    check_jobs,
    table_name,
    translate_errors,
)
from transforms.bigquery.load import kind_files
from transforms.bigquery.table_load import KindLoad, TableLoad
from transforms.bigquery.tables import check_table


def find_load(run: EmbedRun) -> TableLoad | None:
    """The checked table that takes the vectors of a run; None if they stay in files."""
    options, extra = run.options, run.columns.extra
    if options.output_table is None:
        return None
    name = table_name(options.output_table, "--output_table")
    for column in extra or ():
        check_column(column.name, "extra_columns")
    load = TableLoad(
        output=run.output,
        run=run.fingerprint,
        table=name,
        disposition=options.write_disposition or "append",
        project=job_project(options, name),
        granularities=tuple(run.metadata["granularity"]),
        pieces=run.text_spec.pieces,
        texts=run.text_spec.keep_text,
        most_uris=bigquery.MOST_URIS,
        vectors=run.metadata,
    )
    with bigquery_client(load.project) as client:
        with translate_errors(f"--output_table: jobs of project {load.project} cannot be run"):
            check_jobs(client)
        files = kind_files(load) if load.disposition == "fail" else {}
        for kind in load.granularities:
            with translate_errors(f"--output_table {load.table_of(kind)}"):
                check_table(KindLoad(client, load, kind, list(files.get(kind, ()))), extra)
    return load
