"""The job server of a portable runner: its address in, a sentence out if nobody answers there."""

import socket

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
)

from pipeline.options import FOREIGN_RUNNERS, EmbedOptions, UsageError

_SECONDS = 10.0  # Beam itself would wait for minutes, and then not say for whom
_STARTED_BY_BEAM = ("embed", "[local]", "[auto]")


def check_job_server(options: EmbedOptions) -> None:
    """UsageError if the job server, or the cluster, that a job is to go to does not answer."""
    if options.runner_name not in FOREIGN_RUNNERS:
        return
    given = PipelineOptions(list(options.beam_args))
    endpoint = given.view_as(PortableOptions).job_endpoint
    if endpoint is not None:
        address = "--job_endpoint", endpoint, "start the job server first"
    elif options.runner_name == "flinkrunner" and _is_given(options, "--flink_master"):
        master = given.view_as(FlinkRunnerOptions).flink_master
        address = "--flink_master", master, "start the JobManager first"
    else:
        other = ", or --flink_master that of a JobManager"
        raise UsageError(
            f"--job_endpoint is missing: give --runner {options.runner} the address of a job "
            f"server, such as localhost:8099{other if options.runner_name == 'flinkrunner' else ''}"
        )
    if not options.dry_run:
        _check(*address)


def _is_given(options: EmbedOptions, flag: str) -> bool:
    return any(word.partition("=")[0] == flag for word in options.beam_args)


def _check(flag: str, address: str, what_to_do: str) -> None:
    if address in _STARTED_BY_BEAM:
        return
    host, _, port = address.rpartition("://")[2].rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{flag} must be a host and a port, such as localhost:8099, not {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{flag} {address} does not answer ({why}); {what_to_do}") from error
