"""Runs a job on the runner that its options name: here, on Dataflow, or through a job server."""

import json
import logging
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Literal

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from bert_embed.backends.choose import check_precision, chip_memory, find_backend, model_backend
from bert_embed.backends.jax.chips import check_fits
from bert_embed.base.environment import has_bfloat16_products, has_int8_products, missing
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import METADATA, Bundle
from bert_embed.bundle.cache import PROGRAMS, publish_bundle
from bert_embed.pipeline.errors import NoAnswer, UsageError
from bert_embed.pipeline.runners.beam import (
    SWITCHING,
    BeamFlags,
    configure_storage,
    flag_problems,
    pipeline_options,
)
from bert_embed.pipeline.runners.dataflow import (
    Identity,
    accelerator_of,
    completed_flags,
    for_dataflow,
    run_on_dataflow,
)
from bert_embed.pipeline.runners.errors import (
    JobFailed,
    JobGoesOn,
    lost_connection,
    quiet_channels,
    root_message,
)
from bert_embed.pipeline.runners.options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.results.run_record import Job
from bert_embed.storage.files import absolute, is_remote, join, read_bytes
from bert_embed.transforms.steps import without_cell_labels

_SECONDS = 10.0  # Beam itself would wait for minutes, and then not name the address
# Values of --job_endpoint and --flink_master for which Beam starts a server itself.
_NOT_AN_ADDRESS = ("embed", "[local]", "[auto]")
_ENDED = ("DONE", "FAILED", "CANCELLED", "DRAINED", "UPDATED", "FINISHED")


def check_job_server(job: RunnerOptions, connects: bool) -> None:
    """UsageError if no flag names the job server; NoAnswer if it is to connect and is silent."""
    flags = BeamFlags.of(job.beam_args)
    flag, address, server = "--job_endpoint", flags["job_endpoint"], "job server"
    is_flink = job.name == "flinkrunner"
    if address is None and is_flink and flags.names("--flink_master"):
        flag, address, server = "--flink_master", flags["flink_master"], "JobManager"
    elif address is None:
        other = ", or --flink_master that of a JobManager" if is_flink else ""
        raise UsageError(
            f"--job_endpoint is missing: give --runner {job.runner} the address of a job server, "
            f"such as localhost:8099{other}"
        )
    if not connects or address in _NOT_AN_ADDRESS:
        return
    host, _, port = address.rpartition("://")[2].rstrip("/").rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) >= 1 << 16:
        raise UsageError(f"{flag} must be a host and a port, such as localhost:8099, not {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except (UnicodeError, OSError) as error:
        kind = NoAnswer if isinstance(error, OSError) else UsageError
        why = getattr(error, "strerror", None) or error
        cure = f"start the {server} first"
        raise kind(f"{flag} {address} does not answer ({why}); {cure}") from error


def server_notes(job: RunnerOptions) -> list[str]:
    """Says for a dry run that the job server, or the cluster, does not answer."""
    try:
        check_job_server(job, connects=True)
    except (UsageError, NoAnswer) as error:
        return [f"note: {error}"]
    return []


class PortableJob(Job):
    """A job that was submitted through a job server, which may tell its state."""

    @classmethod
    def of(cls, job: RunnerOptions, flags: BeamFlags) -> "PortableJob":
        """The job that these flags of Beam describe."""
        master = flags["flink_master"]
        return cls(
            runner=job.runner,
            name=flags["job_name"] or "",
            endpoint=flags["job_endpoint"] or "",
            flink_master="" if master in _NOT_AN_ADDRESS else master,
            id="",
            submitted="",
        )

    def __str__(self) -> str:
        if self.id.startswith(self.name):
            return self.id
        return f"{self.name} ({self.id})" if self.id else self.name

    @property
    def where(self) -> str:
        """How to find the job."""
        if self.runner.lower() == "sparkrunner":
            return f"Spark's web page lists it as {self.name}"
        address = self.flink_master.rpartition("://")[2] or "JOBMANAGER:8081"
        return f"the runner's web page and http://{address}/jobs/overview list it as {self.name}"

    def state(self) -> str | None:
        """The job's state, such as RUNNING; None if the runner has none or does not answer."""
        with suppress(grpc.RpcError, OSError, ValueError, KeyError, TypeError):
            if self.endpoint:
                request = beam_job_api_pb2.GetJobStateRequest(job_id=self.id)
                with grpc.insecure_channel(self.endpoint) as channel:
                    jobs = beam_job_api_pb2_grpc.JobServiceStub(channel)
                    answer = jobs.GetState(request, timeout=_SECONDS)
                return beam_job_api_pb2.JobState.Enum.Name(answer.state)
            if self.flink_master:
                scheme = "" if "://" in self.flink_master else "http://"
                overview = f"{scheme}{self.flink_master.rstrip('/')}/jobs/overview"
                with urllib.request.urlopen(overview, timeout=_SECONDS) as answer:
                    mine = [job for job in json.load(answer)["jobs"] if job["name"] == self.name]
                return max(mine, key=lambda job: job["start-time"])["state"] if mine else None
        return None


def earlier_job_lines(submitted: Job) -> list[str]:
    """A note on a job whose end an earlier command did not see; JobGoesOn if it still runs."""
    job = PortableJob(**vars(submitted))
    state = job.state()
    if state is not None and state not in _ENDED:
        raise JobGoesOn(
            "running",
            f"the job {job} of an earlier command writes to this --output and is {state}: wait "
            f"for its end, or cancel it; {job.where}",
        )
    server = f", its runner says {state}" if state else ""
    return [
        f"note: an earlier command submitted the job {job} and did not see its end{server}; should "
        f"it still run, this command computes the same beside it; {job.where}"
    ]


def run_on_job_server(
    options: PipelineOptions,
    work: Callable[[beam.Pipeline], None],
    job: PortableJob,
    submitted: Callable[[dict[str, str]], None],
    wait: bool,
) -> None:
    """Submits a pipeline; JobGoesOn if the job still runs, or its state is not known."""
    pipeline = beam.Pipeline(options=options)
    work(pipeline)
    try:
        result = pipeline.run()
    except grpc.RpcError as error:
        raise JobFailed(
            f"the job server {job.endpoint} did not accept the job: {root_message(error)}"
        ) from error
    job = replace(job, id=getattr(result, "_job_id", ""))  # Beam has no public name for it
    submitted(asdict(job))
    if not wait:
        raise JobGoesOn("requested", f"the job {job} continues on {job.runner}")
    try:
        with quiet_channels():
            result.wait_until_finish()
    except KeyboardInterrupt as error:
        raise JobGoesOn("interrupted", f"the job {job} continues; {job.where}") from error
    except (grpc.RpcError, RuntimeError) as error:
        lost: Literal["job server", "JobManager"] | None = lost_connection(error)
        if lost is None:
            raise
        raise JobGoesOn(
            "unknown",
            f"the {lost} does not answer any more ({root_message(error)}), so it is not known "
            f"whether the job {job} still runs; {job.where}",
        ) from error


def checked_runner(
    job: RunnerOptions, read: Sequence[tuple[str, str]], output: str, connects: bool = True
) -> RunnerOptions:
    """The runner of a job, checked before any work starts; UsageError names the flag.

    `read` are places that it reads, each behind the flag that names it. Without `connects` no
    server is asked.
    """
    if job.accelerator is not None and not job.is_dataflow:
        said = "requires runner DataflowRunner; for other runners give device"
        raise SettingError("accelerator", said, "runner", "device")
    if job.is_dataflow:
        job = for_dataflow(job, read, output)
    flags = BeamFlags.of(job.beam_args)
    for problem in flag_problems(flags, job.is_dataflow) if job.beam_args else ():
        raise UsageError(problem)
    if job.is_portable:
        check_job_server(job, connects)
    if job.name in (DEFAULT_RUNNER.lower(), *SWITCHING):
        for flag in filter(flags.names, ("--num_workers", "--max_num_workers")):
            raise UsageError(f"{flag} is for Dataflow and has no effect here; set --threads")
    configure_storage(job)
    return job


def check_computing(job: RunnerOptions, reads_examples: bool) -> None:
    """Raises ValueError if no machine, or not this one if it runs here, computes or reads so."""
    check = find_backend if job.runs_here else check_precision
    check(job.precision, job.device, job.engine)
    if reads_examples and job.runs_here and find_spec("tensorflow") is None:
        raise UsageError(missing("reading TFRecord files of examples", "tensorflow"))


def check_memory(
    job: RunnerOptions, bundle: Bundle, batch_tokens: int | None, longest: int
) -> None:
    """Raises SettingError if a model does not fit in the chips of the workers, or of this machine.

    `batch_tokens` and `longest` are tokens of a batch and of its longest text.
    """
    if job.is_dataflow and (found := accelerator_of(job)) is not None:
        device, chip = found.device, f"one of {found.type}"
        memory = [found.memory_gb * 10**9] * found.chips
    elif job.runs_here and job.device in ("gpu", "tpu"):
        device, chip = job.device, f"a {job.device.upper()} of this machine"
        memory = chip_memory(bundle.config, job.precision, job.device, job.engine)
    else:
        return
    if memory:
        check_fits(bundle, job.precision, batch_tokens, longest, device, chip, memory)


def notes_of_this_machine(
    job: RunnerOptions, engine: str | None, reads_tfrecord: bool
) -> Iterator[str]:
    """Says if this machine gains nothing by a precision, or cannot read what its report is of."""
    if job.precision == "int8" and job.runs_here and not has_int8_products():
        yield (
            "note: --precision int8 is no faster than float32 on this processor, which has no "
            "products in int8 (AVX-512 VNNI, AVX-VNNI, AMX, or asimddp on Arm)"
        )
    if job.precision == "bfloat16" and engine == "openvino" and not has_bfloat16_products():
        yield (
            "note: --precision bfloat16 is slower than float32 on this processor, an Intel without "
            "AMX; take float32 or int8"
        )
    if reads_tfrecord and not find_spec("tensorflow"):
        why = missing("report.html of TFRecord files", "tensorflow")
        yield f"note: {why}; or leave it out with --report false"


def engine_of(job: RunnerOptions, bundle: Bundle) -> str | None:
    """Name of the engine that computes; None for workers, which choose it by their devices.

    SettingError: the model has an engine of its own, which does not compute so.
    """
    if not job.runs_here and not bundle.config.engine:
        return None
    return model_backend(bundle.config, job.precision, job.device, job.engine)[0].name


def bundle_for_workers(bundle: Bundle, model: str, job: RunnerOptions) -> Bundle:
    """The bundle as workers load it: copied to `--temp_location`, once, if they are elsewhere."""
    if job.runs_here:
        return bundle
    temp_location = BeamFlags.of(job.beam_args)["temp_location"]
    if temp_location:
        return replace(bundle, path=publish_bundle(bundle, absolute(temp_location)))
    if is_remote(model) and read_bytes(join(model, METADATA)) is not None:
        return replace(bundle, path=model.rstrip("/"))
    return bundle


def programs_place(job: RunnerOptions, place: str) -> str:
    """Where workers keep the programs that they compile of a model at a place; "": each its own.

    Beside a model that a job copied there. Elsewhere a model could bring programs, which are code.
    """
    temp_location = BeamFlags.of(job.beam_args)["temp_location"]
    ours = temp_location and place.startswith(join(absolute(temp_location), ""))
    return join(place, PROGRAMS) if ours and not job.runs_here else ""


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
            # Workers elsewhere read it themselves.
            log, level = logging.getLogger("bert_embed"), flags["default_sdk_harness_log_level"]
            before = log.level
            if level in logging.getLevelNamesMapping():
                log.setLevel(level)
            try:
                with beam.Pipeline(options=options) as pipeline:
                    work(pipeline)
            finally:
                log.setLevel(before)
    return waits


def describe_idle_job(job: RunnerOptions, identity: Identity) -> None:
    """Describes a job that does nothing, where the launcher of a template waits for one.

    Without the file the service takes a launch that had nothing to do for one that failed.
    """
    if job.is_dataflow and BeamFlags.of(job.beam_args)["template_location"]:
        words = completed_flags(replace(job, accelerator=None), identity)
        with suppress(JobGoesOn):
            run_on_runner(job, words, lambda root: root | beam.Create([None]), lambda _: None)
