"""Submits jobs to portable runners such as Flink, waits for them, and finds earlier ones."""

import json
import socket
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from bert_embed.pipeline.errors import NoAnswer, UsageError
from bert_embed.pipeline.runners.beam import BeamFlags
from bert_embed.pipeline.runners.errors import (
    JobFailed,
    JobGoesOn,
    lost_connection,
    quiet_channels,
    root_message,
)
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.results.run_record import Job

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
    if not host or not port.isdecimal():
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


@dataclass(frozen=True)
class PortableJob:
    """A job that was submitted to a runner; `run.json` keeps it."""

    runner: str  # as `--runner` names it
    name: str  # under which the runner's own pages list it
    endpoint: str  # of the job server, "" if Beam started one for this job
    flink_master: str  # address of the JobManager, "" if no flag names it
    id: str = ""  # the job server's

    @classmethod
    def of(cls, job: RunnerOptions, flags: BeamFlags) -> "PortableJob":
        """The job that these flags of Beam describe."""
        master = flags["flink_master"]
        return cls(
            runner=job.runner,
            name=flags["job_name"] or "",
            endpoint=flags["job_endpoint"] or "",
            flink_master="" if master in _NOT_AN_ADDRESS else master,
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
    job = PortableJob(**{name: getattr(submitted, name) for name in PortableJob.__annotations__})
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
