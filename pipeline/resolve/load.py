"""Resolves the BigQuery table that the vectors are loaded into."""

import hashlib
import json
from dataclasses import replace

from bert_embed.bundle.cache import cache_folder
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.resolve.tables import job_project
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.storage.files import join
from bert_embed.transforms.bigquery import load as bigquery
from bert_embed.transforms.bigquery.client import (
    bigquery_client,
    check_column,
    check_jobs,
    table_name,
    translate_errors,
)
from bert_embed.transforms.bigquery.tables import KindTable, TableLoad


def with_folder(options: Options) -> Options:
    """Fills in where the files that a table is loaded from are kept, if `--output` does not say.

    Its name depends on the input and the table, so the same command continues its run.
    """
    if options.output or not options.loads_table:
        return options
    decisive = [options.input, options.query, options.output_table]
    name = "loads/" + hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
    place = BeamFlags.of(options.beam_args)["temp_location"] or str(cache_folder())
    return replace(options, output=join(place, name))


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
        again=options.overwrite,
    )
    with bigquery_client(load.project) as client:
        with translate_errors(f"--output_table: jobs of project {load.project} cannot be run"):
            check_jobs(client)
        for kind in load.granularities:
            with translate_errors(f"--output_table {load.table_of(kind)}"):
                KindTable(client, load, kind).check(extra)
    return load
