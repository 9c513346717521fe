"""Runs a job on the runner that its options name."""

from collections.abc import Callable, Sequence

import apache_beam as beam

from bert_embed.pipeline.runner_options import RunnerOptions
from bert_embed.pipeline.runners.beam_flags import BeamFlags, pipeline_options
from bert_embed.pipeline.runners.dataflow import run_on_dataflow
from bert_embed.pipeline.runners.local_runners import run_pipeline
from bert_embed.pipeline.runners.portable_jobs import PortableJob, run_on_job_server
from bert_embed.transforms.adapters.embed_documents import without_cell_labels


def run_on_runner(
    job: RunnerOptions,
    words: Sequence[str],
    work: Callable[[beam.Pipeline], None],
    submitted: Callable[[dict[str, str]], None],
) -> bool:
    """Runs a job with the graph that `work` adds; returns whether Beam waited for its end.

    `words` are its flags of Beam, completed; `submitted` takes the job that a job server has, as
    JSON-able values. JobGoesOn: the job outlives this command, as with --no_wait_until_finish.
    """
    flags = BeamFlags.of(words)
    options, waits = pipeline_options(job, flags.words), not flags["no_wait_until_finish"]
    with without_cell_labels():
        if job.is_portable:
            run_on_job_server(options, work, PortableJob.of(job, flags), submitted, waits)
        elif job.is_dataflow:
            run_on_dataflow(options, work, flags)
        else:
            run_pipeline(options, work)
    return waits
