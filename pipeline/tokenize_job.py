"""The job of `tokenize`: plan, read, tokenize, write, account."""

from typing import Any

import apache_beam as beam

from pipeline.embed_job import Record, run_graph
from pipeline.embed_run import EmbedRun
from pipeline.job_input import job_input
from transforms.accounting import AccountBlocks
from transforms.sinks.examples import WriteExamples


def build(pipeline: beam.Pipeline, run: EmbedRun, record: dict[str, Any]) -> None:
    """Adds the graph of a run to a pipeline, as `embed_job.build` does."""
    read = job_input(pipeline, run)
    written = read.tokens | "Write" >> WriteExamples(run.output, run.fingerprint, run.example_files)
    (
        (*read.finished, written)
        | "Reports" >> beam.Flatten()
        | "Account" >> AccountBlocks(read.planned)
        | "Record" >> beam.ParDo(Record(run.output, record), *read.facts)
    )


def run_job(run: EmbedRun, record: dict[str, Any]) -> None:
    """Runs the graph and waits for its end, as `embed_job.run_job` does."""
    run_graph(run, record, build)
