"""Completes the flags of a Dataflow job and submits it."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

import bert_embed
from bert_embed.pipeline.accelerators import (
    ACCELERATOR_DISK_GB,
    ACCELERATORS,
    CPU_DISK_GB,
    CPU_MACHINE_TYPE,
)
from bert_embed.pipeline.runner_options import RunnerOptions
from bert_embed.pipeline.runners.beam_flags import ONE_PROCESS, BeamFlags
from bert_embed.pipeline.runners.dataflow_checks import Places, check_dataflow
from bert_embed.pipeline.runners.job_errors import JobFailed, JobGoesOn

_LOG = logging.getLogger(__name__)
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


def for_dataflow(job: RunnerOptions, places: Places) -> RunnerOptions:
    """The job with the `--device` of its accelerator, its flags checked if it is Dataflow's."""
    if not job.is_dataflow:
        return job
    flags = BeamFlags.of(job.beam_args)
    check_dataflow(job, flags, places)
    chosen = ACCELERATORS.get(job.accelerator or "")
    device = chosen.device if chosen else flags.device
    return replace(job, device=device) if device else job


def model_threads(job: RunnerOptions) -> int | None:
    """Threads of a model on workers: one where Dataflow starts a process per core."""
    accelerated = job.device in ("gpu", "tpu")
    if job.threads is not None or not job.is_dataflow or accelerated:
        return job.threads
    return None if BeamFlags.of(job.beam_args).one_process else 1


def completed_flags(
    job: RunnerOptions, command: str, output: str, fingerprint: str, model: str
) -> list[str]:
    """Beam's flags of a command's job: as flags, followed by our defaults for the others.

    `fingerprint` is of what it writes, `model` of the model.
    """
    words = list(job.beam_args)
    if job.runs_here:
        return words
    flags = BeamFlags.of(words)
    if not flags["job_name"]:
        # The service refuses a second job of this name for the same output.
        place = hashlib.sha256(output.encode()).hexdigest()
        words.append(f"--job_name=bert-{command}-{fingerprint[:12]}-{place[:6]}")
    if not job.is_dataflow:
        return words
    labels = {
        "application": "bert-embed",
        "version": bert_embed.__version__.replace(".", "-"),
        "run": fingerprint,
        "model": model,
    }
    own = [f"--labels={name}={value}" for name, value in labels.items() if name not in flags.labels]
    return [*words, *own, *_workers(job, flags)]


def _workers(job: RunnerOptions, flags: BeamFlags) -> Iterator[str]:
    if flags.image and flags["sdk_location"] in (None, "default"):
        yield "--sdk_location=container"
    chosen = ACCELERATORS.get(job.accelerator or "")
    if chosen:
        yield f"--dataflow_service_options={chosen.service_option}"
    if not flags["machine_type"] and not flags.accelerator_type and not flags.prime:
        machine = chosen.machine_type if chosen else CPU_MACHINE_TYPE
        yield f"--machine_type={machine}"
    accelerated = chosen is not None or flags.accelerator_type is not None
    if not flags["disk_size_gb"]:
        yield f"--disk_size_gb={ACCELERATOR_DISK_GB if accelerated else CPU_DISK_GB}"
    several = flags.shares_gpu or "use_multiple_sdk_containers" in flags.experiments
    if accelerated and not flags.one_process and not several:
        yield f"--experiments={ONE_PROCESS}"


def run_on_dataflow(
    options: PipelineOptions, work: Callable[[beam.Pipeline], None], flags: BeamFlags
) -> None:
    """Submits a pipeline with the graph that `work` adds; waits unless told otherwise."""
    # The service's clients, which other runs do not need.
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import Conflict, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    pipeline = beam.Pipeline(options=options)
    work(pipeline)
    try:
        result = pipeline.run()
    except (Conflict, DataflowJobAlreadyExistsError) as error:
        raise JobGoesOn(
            "running",
            f"a job named {flags['job_name']} is already running in {flags.region} of project "
            f"{flags['project']}: wait for its end, cancel it, or give another --job_name",
        ) from error
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise JobFailed(f"Dataflow does not accept the job: {error}") from error
    if not result.has_job:  # a template, whose launcher starts the job
        raise JobGoesOn("requested", f"the job to start is in {flags['template_location']}")
    place = f"{_CONSOLE}/{flags.region}/{result.job_id()}?project={flags['project']}"
    job = f"Dataflow job {result.job_id()} ({flags['job_name']})"
    if flags["no_wait_until_finish"]:
        raise JobGoesOn("requested", f"{job} continues: {place}")
    try:
        _LOG.warning("%s was submitted: %s", job, place)
        result.wait_until_finish()
    except KeyboardInterrupt as error:
        stop = f"gcloud dataflow jobs cancel {result.job_id()} --region {flags.region}"
        raise JobGoesOn("interrupted", f"{job} continues: {place}\nto stop it: {stop}") from error
    except DataflowRuntimeException as error:
        lines = [line for line in str(error).splitlines()[1:] if line.strip() not in ("", "None")]
        why = f" ({lines[-1].strip()})" if lines else ""
        raise JobFailed(f"{job} ended as {result.state}{why}: {place}") from error
    if result.state != PipelineState.DONE:
        raise JobFailed(f"{job} ended as {result.state}: {place}")
