"""Checks that the job server of a portable runner, or its JobManager, is reachable."""

import socket

from pipeline.errors import UsageError
from pipeline.options import EmbedOptions
from pipeline.runners.beam_flags import BeamFlags

_SECONDS = 10.0  # Beam itself would wait for minutes, and then not name the address
# Values of --job_endpoint and --flink_master for which Beam starts a server itself.
NOT_AN_ADDRESS = ("embed", "[local]", "[auto]")


def check_job_server(options: EmbedOptions) -> None:
    """Raises UsageError if the job server, or the cluster, does not answer."""
    if not options.is_portable:
        return
    given = BeamFlags.of(options.beam_args)
    endpoint = given["job_endpoint"]
    if endpoint is not None:
        address = "--job_endpoint", endpoint, "start the job server first"
    elif options.runner_name == "flinkrunner" and given.names("--flink_master"):
        address = "--flink_master", given["flink_master"], "start the JobManager first"
    else:
        other = ", or --flink_master that of a JobManager"
        raise UsageError(
            f"--job_endpoint is missing: give --runner {options.runner} the address of a job "
            f"server, such as localhost:8099{other if options.runner_name == 'flinkrunner' else ''}"
        )
    if not options.dry_run:
        _check(*address)


def _check(flag: str, address: str, what_to_do: str) -> None:
    if address in NOT_AN_ADDRESS:
        return
    host, _, port = address.rpartition("://")[2].rstrip("/").rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{flag} must be a host and a port, such as localhost:8099, not {address}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"{flag} {address} does not answer ({why}); {what_to_do}") from error
