"""Dataflow: EmbedOptions in, the flags of its job and what follows from them out."""

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace

import apache_beam as beam
from apache_beam.runners.runner import PipelineState

import bert
from pipeline.dataflow_checks import check_dataflow
from pipeline.dataflow_machines import (
    ACCELERATOR_DISK_GB,
    CPU_DISK_GB,
    CPU_MACHINE_TYPE,
    FITTED_MACHINE_TYPE,
)
from pipeline.dataflow_settings import (
    ONE_PROCESS,
    DataflowSettings,
    accelerator_of,
    is_dataflow,
)
from pipeline.embed_run import EmbedRun
from pipeline.job_errors import JobFailed, JobGoesOn
from pipeline.options import EmbedOptions, UsageError

_LOG = logging.getLogger(__name__)
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


def for_dataflow(options: EmbedOptions) -> EmbedOptions:
    """Checks what is asked of Dataflow, and adds the `--device` that its accelerator is.

    Raises:
        UsageError: Flags that cannot go together, or that are missing.
    """
    if not is_dataflow(options):
        for name in ("accelerator", "right_fitting"):
            if getattr(options, name):
                raise UsageError(
                    f"--{name} is for --runner DataflowRunner; elsewhere give --device"
                )
        return options
    given = DataflowSettings.of(options.beam_args)
    check_dataflow(options, given)
    chosen = accelerator_of(options)
    device = chosen.device if chosen else given.device
    return replace(options, device=device) if device else options


def model_hints(options: EmbedOptions) -> dict[str, str]:
    """Resource hints for the model's steps: none, but where right fitting is asked for."""
    chosen = accelerator_of(options)
    return {"accelerator": chosen.hint} if chosen and options.right_fitting else {}


def model_threads(options: EmbedOptions) -> int | None:
    """Threads of a model on workers: one where Dataflow starts a process a core."""
    accelerated = options.device in ("gpu", "tpu")
    if options.threads is not None or not is_dataflow(options) or accelerated:
        return options.threads
    return None if DataflowSettings.of(options.beam_args).one_process else 1


def job_flags(run: EmbedRun) -> list[str]:
    """Beam's flags of a run's job: as given, and after them what was left to us."""
    words = list(run.options.beam_args)
    if not is_dataflow(run.options):
        return words
    given = DataflowSettings.of(words)
    return [*words, *_names(run, given), *_workers(run.options, given)]


def _names(run: EmbedRun, given: DataflowSettings) -> Iterator[str]:
    """A name that no other job of the same output can have while this one runs, and labels."""
    if not given["job_name"]:
        place = hashlib.sha256(run.output.encode()).hexdigest()
        yield f"--job_name=bert-{run.options.command}-{run.fingerprint[:12]}-{place[:6]}"
    labels = {
        "application": "bert-embed",
        "version": bert.__version__.replace(".", "-"),
        "run": run.fingerprint,
        "model": run.bundle.fingerprint[:32],
    }
    for name, value in labels.items():
        if name not in given.labels:
            yield f"--labels={name}={value}"


def _workers(options: EmbedOptions, given: DataflowSettings) -> Iterator[str]:
    if given.image and given["sdk_location"] in (None, "default"):
        yield "--sdk_location=container"
    chosen = accelerator_of(options)
    if chosen and not options.right_fitting:
        yield f"--dataflow_service_options={chosen.service_option}"
    if not given["machine_type"] and not given.accelerator_type and not given.prime:
        machine = chosen.machine_type if chosen else CPU_MACHINE_TYPE
        yield f"--machine_type={FITTED_MACHINE_TYPE if options.right_fitting else machine}"
    accelerated = chosen is not None or given.accelerator_type is not None
    if not given["disk_size_gb"]:
        yield f"--disk_size_gb={ACCELERATOR_DISK_GB if accelerated else CPU_DISK_GB}"
    several = given.shares_gpu or "use_multiple_sdk_containers" in given.experiments
    if accelerated and not given.one_process and not several:
        yield f"--experiments={ONE_PROCESS}"


def run_on_dataflow(pipeline: beam.Pipeline, flags: list[str]) -> None:
    """Submits a pipeline, and waits for its job's end unless told otherwise.

    Args:
        pipeline: Made with these flags.
        flags: Of Beam, as `job_flags` gave them.

    Raises:
        JobGoesOn: The job runs, and shall not be waited for, or another of its name does.
        JobFailed: The service did not take it, or it ended without being done.
    """
    # Clients of the service, which no other run needs.
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import Conflict, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    given = DataflowSettings.of(flags)
    try:
        result = pipeline.run()
    except (Conflict, DataflowJobAlreadyExistsError) as error:
        raise JobGoesOn(
            "running",
            f"a job named {given['job_name']} is already running in {given.region} of project "
            f"{given['project']}: wait for its end, cancel it, or give another --job_name",
        ) from error
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise JobFailed(f"Dataflow does not take the job: {error}") from error
    if not result.has_job:  # of a template: its launcher starts the job
        raise JobGoesOn("asked", f"the job to be started is in {given['template_location']}")
    place = f"{_CONSOLE}/{given.region}/{result.job_id()}?project={given['project']}"
    job = f"Dataflow job {result.job_id()} ({given['job_name']})"
    if given["no_wait_until_finish"]:
        raise JobGoesOn("asked", f"{job} goes on: {place}")
    _LOG.warning("%s was submitted: %s", job, place)
    try:
        result.wait_until_finish()
    except KeyboardInterrupt as error:
        stop = f"gcloud dataflow jobs cancel {result.job_id()} --region {given.region}"
        raise JobGoesOn(
            "interrupted", f"{job} goes on: {place}\nto stop it, too: {stop}"
        ) from error
    except DataflowRuntimeException as error:
        told = [line for line in str(error).splitlines()[1:] if line.strip() not in ("", "None")]
        why = f" ({told[-1].strip()})" if told else ""
        raise JobFailed(f"{job} ended as {result.state}{why}: {place}") from error
    if result.state != PipelineState.DONE:
        raise JobFailed(f"{job} ended as {result.state}: {place}")
