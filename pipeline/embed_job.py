"""The main job: plan, read, tokenize, infer, write, account."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline import run_record
from pipeline.embed_run import EmbedRun
from pipeline.options import DEFAULT_RUNNER
from pipeline.worker_model import bundle_for_workers
from transforms.accounting import AccountBlocks, AccountError, Verdict
from transforms.blocks import PlanBlocks
from transforms.increments import CompareKeys
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
        run.bundle.trusted,
    )
    read, facts = read_input(pipeline, run)
    written = (
        read["documents"]
        | "Tokenize" >> TokenizeBlocks(run.bundle.path, run.text_spec, run.bundle.fingerprint)
        | "Infer" >> EmbedBlocks(handler)
        | "Write"
        >> WriteBlocks(run.output, run.fingerprint, run.options.output_format, run.metadata)
    )
    (
        (*read["finished"], written)
        | "Reports" >> beam.Flatten()
        | "Account" >> AccountBlocks(read["planned"])
        | "Load" >> LoadTable(run.load)
        | "Record" >> beam.ParDo(_Record(run.output, record), *facts)
    )


def read_input(pipeline: beam.Pipeline, run: EmbedRun) -> tuple[dict[str, Any], list[Any]]:
    """The run's `documents`, reports that are `finished`, the `planned` work; facts of its keys."""
    if run.table is not None:
        read = pipeline | "Read table" >> ReadTable(
            run.table, run.output, run.fingerprint, run.part_docs
        )
        return read | {"finished": (read["finished"],)}, []
    plan = pipeline | "Plan" >> PlanBlocks(run.request, run.fingerprint)
    specs, facts = plan["specs"], []
    if run.keys is not None:
        compared = specs | "Keys" >> CompareKeys(run.keys)
        specs, facts = compared["specs"], [beam.pvalue.AsList(compared["facts"])]
    read = specs | "Read" >> ReadBlocks(
        run.output, run.fingerprint, run.columns, run.part_docs, run.request.block_bytes
    )
    finished = (plan["finished"], read["finished"])
    return {**read, "finished": finished, "planned": plan["planned"]}, facts


def run_job(run: EmbedRun, record: dict[str, Any]) -> None:
    """Runs the graph and waits for its end, on Beam's own local runner unless told otherwise."""
    flags = list(run.options.beam_args)
    if not any(flag.split("=")[0] == "--runner" for flag in flags):
        flags.append(f"--runner={DEFAULT_RUNNER}")
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        bundle = bundle_for_workers(run.bundle, run.options)
        build(pipeline, replace(run, bundle=bundle), record)


class _Record(beam.DoFn):
    """Writes run.json from the verdict, and fails the job if something was lost."""

    def __init__(self, output: str, record: dict[str, Any]) -> None:
        self._output, self._record = output, record
        self._started = time.time()

    def process(
        self, verdict: Verdict, facts: Sequence[dict[str, Any]] = ()
    ) -> Iterator[dict[str, Any]]:
        record = self._record
        for fact in facts:
            record = record | fact
        yield run_record.finish(self._output, record, verdict, self._started)
        if verdict.problems:
            raise AccountError("; ".join(verdict.problems))
