"""The main job: plan, read, tokenize, infer, write, account, load."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from pipeline import run_record
from pipeline.dataflow import (
    is_dataflow,
    job_flags,
    model_hints,
    model_threads,
    run_on_dataflow,
)
from pipeline.embed_run import EmbedRun
from pipeline.job_errors import JobGoesOn
from pipeline.job_input import job_input
from pipeline.local_runners import beam_flags, run_pipeline
from pipeline.worker_model import bundle_for_workers
from transforms.accounting import AccountBlocks, AccountError, BlockReport, Verdict
from transforms.inference import BertModelHandler, EmbedBlocks
from transforms.sinks import WriteBlocks
from transforms.sinks.bigquery import LoadTable
from transforms.tokenization import TokenBlock


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
        model_threads(run.options),
        run.bundle.trusted,
        run.options.precision,
        run.options.device,
        run.options.inference_timeout,
    )
    read = job_input(pipeline, run)
    write = WriteBlocks(run.output, run.fingerprint, run.options.output_format, run.metadata)
    embed = EmbedToFiles(EmbedBlocks(handler), write)
    written = read.tokens | "Embed" >> embed.with_resource_hints(**model_hints(run.options))
    (
        (*read.finished, written)
        | "Reports" >> beam.Flatten()
        | "Account" >> AccountBlocks(read.planned)
        | "Load" >> LoadTable(run.load)
        | "Record" >> beam.ParDo(Record(run.output, record), *read.facts)
    )


@dataclass
class EmbedToFiles(beam.PTransform):
    """TokenBlocks to the BlockReports of their written vectors.

    One transform, so that a service that gives the model's step workers of its own writes there,
    too: tokens cross to these, vectors never.

    Attributes:
        embed: Runs the model.
        write: Writes what comes out.
    """

    embed: EmbedBlocks
    write: WriteBlocks

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[BlockReport]:
        return blocks | "Infer" >> self.embed | "Write" >> self.write


def run_job(run: EmbedRun, record: dict[str, Any]) -> None:
    """Runs the graph and waits for its end, on Beam's own local runner unless told otherwise."""
    run_graph(run, record, build)


def run_graph(run: EmbedRun, record: dict[str, Any], build: Callable[..., None]) -> None:
    """Runs what `build` adds to a pipeline, likewise.

    Raises:
        JobGoesOn: The job runs on elsewhere, and shall not be waited for.
    """
    flags = beam_flags(run.options, job_flags(run))
    bundle = bundle_for_workers(run.bundle, run.options)
    work = partial(build, run=replace(run, bundle=bundle), record=record)
    options = PipelineOptions(flags)
    if is_dataflow(run.options):
        pipeline = beam.Pipeline(options=options)
        work(pipeline)
        run_on_dataflow(pipeline, flags)
        return
    run_pipeline(options, work)  # waits for its end unless told otherwise
    if options.view_as(StandardOptions).no_wait_until_finish:
        now = run_record.read_record(run.output)
        if now is not None and now["status"] == "running":
            raise JobGoesOn("asked", f"the job goes on, on {run.options.runner}")


class Record(beam.DoFn):
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
