"""The job of `tokenize`: plan, read, tokenize, write, account."""

from typing import Any

import apache_beam as beam

from pipeline.embed_job import Record, run_graph
from pipeline.embed_run import EmbedRun
from transforms.accounting import AccountBlocks
from transforms.blocks import PlanBlocks
from transforms.sinks.examples import WriteExamples
from transforms.sources import ReadBlocks
from transforms.tokenization import TokenizeBlocks


def build(pipeline: beam.Pipeline, run: EmbedRun, record: dict[str, Any]) -> None:
    """Adds the graph of a run to a pipeline, as `embed_job.build` does."""
    plan = pipeline | "Plan" >> PlanBlocks(run.request)
    read = plan["specs"] | "Read" >> ReadBlocks(
        run.output, run.fingerprint, run.columns, run.part_docs, run.request.block_bytes
    )
    written = (
        read["documents"]
        | "Tokenize" >> TokenizeBlocks(run.bundle.path, run.token_spec)
        | "Write" >> WriteExamples(run.output, run.fingerprint, run.example_files)
    )
    (
        (read["finished"], written)
        | "Reports" >> beam.Flatten()
        | "Account" >> AccountBlocks(plan["planned"])
        | "Record" >> beam.ParDo(Record(run.output, record))
    )


def run_job(run: EmbedRun, record: dict[str, Any]) -> None:
    """Runs the graph and waits for its end, as `embed_job.run_job` does."""
    run_graph(run, record, build)
