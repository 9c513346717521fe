"""The main job: plan, read, tokenize, infer, write, account."""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline import run_record
from pipeline.embed_run import EmbedRun
from pipeline.options import DEFAULT_RUNNER
from transforms.accounting import AccountBlocks, AccountError, Verdict
from transforms.blocks import PlanBlocks
from transforms.inference import BertModelHandler, EmbedBlocks
from transforms.sinks import WriteBlocks
from transforms.sinks.bigquery import LoadTable
from transforms.sources import ReadBlocks
from transforms.sources.bigquery import ReadTable
from transforms.tokenization import TokenizeBlocks


def build(
    pipeline: beam.Pipeline,
    run: EmbedRun,
    record: dict[str, Any],
    handler: BertModelHandler | None = None,
) -> None:
    """Adds the graph of a run to a pipeline.

    Args:
        pipeline: Where to add it.
        run: What to do.
        record: The run's record as `run_record.start` gave it; the graph completes and writes it.
        handler: Runs the model; None for the run's own.
    """
    handler = handler or BertModelHandler(
        run.bundle.path,
        run.bundle.fingerprint,
        run.spec,
        run.text_spec,
        run.options.batch_tokens,
        run.options.threads,
    )
    read = read_input(pipeline, run)
    written = (
        read["documents"]
        | "Tokenize" >> TokenizeBlocks(run.bundle.path, run.text_spec)
        | "Infer" >> EmbedBlocks(handler)
        | "Write"
        >> WriteBlocks(run.output, run.fingerprint, run.options.output_format, run.metadata)
    )
    (
        (read["finished"], written)
        | "Reports" >> beam.Flatten()
        | "Account" >> AccountBlocks(read["planned"])
        | "Load" >> LoadTable(run.load)
        | "Record" >> beam.ParDo(_Record(run.output, record))
    )


def read_input(pipeline: beam.Pipeline, run: EmbedRun) -> dict[str, beam.PCollection]:
    """The run's input as `documents`, with the `finished` reports and the `planned` work."""
    if run.table is not None:
        return pipeline | "Read table" >> ReadTable(
            run.table, run.output, run.fingerprint, run.part_docs
        )
    plan = pipeline | "Plan" >> PlanBlocks(run.request)
    read = plan["specs"] | "Read" >> ReadBlocks(
        run.output, run.fingerprint, run.columns, run.part_docs, run.request.block_bytes
    )
    return read | {"planned": plan["planned"]}


def run_job(run: EmbedRun, record: dict[str, Any]) -> None:
    """Runs the graph and waits for its end, on Beam's own local runner unless told otherwise."""
    flags = list(run.options.beam_args)
    if not any(flag.split("=")[0] == "--runner" for flag in flags):
        flags.append(f"--runner={DEFAULT_RUNNER}")
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        build(pipeline, run, record)


class _Record(beam.DoFn):
    """Writes run.json from the verdict, and fails the job if something was lost."""

    def __init__(self, output: str, record: dict[str, Any]) -> None:
        self._output, self._record = output, record
        self._started = time.time()

    def process(self, verdict: Verdict) -> Iterator[dict[str, Any]]:
        yield run_record.finish(self._output, self._record, verdict, self._started)
        if verdict.problems:
            raise AccountError("; ".join(verdict.problems))
