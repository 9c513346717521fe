"""Checks and runs local runners, so that Ctrl-C ends a run at once."""

import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from bert_embed.bundle.cache import package_variables
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runners.beam import (
    SWITCHING,
    BeamFlags,
    give_no_worker_command,
    has_worker_processes,
    runs_on_prism,
)
from bert_embed.pipeline.runners.options import BEAM_WITHOUT, DEFAULT_RUNNER, RunnerOptions
from bert_embed.storage.files import is_remote

_WORKER = "apache_beam.runners.worker.sdk_worker_main"
# Imports what a run imports, and as it does: without some packages, looking for no garbage.
_START = f"""\
import gc, sys
from bert_embed.base.environment import absent
gc.disable()
with absent(*sys.argv[1:]):
    from {_WORKER} import main
gc.freeze()
gc.enable()
main(sys.argv)
"""
_PRISM_RELEASES = "https://github.com/apache/beam/releases/"  # all that Beam fetches it from
_WITHOUT_PROXY = "no_grpc_proxy"  # gRPC takes it for no_proxy where it is set
_POLL_SECONDS = 0.2  # a signal does not wake a thread that waits without end
_LOST_WORKER = "Channel closed prematurely."  # all that Beam says of it
_ENDED_WORKER = "Worker subprocess exited with return code"


def check_local_runner(job: RunnerOptions) -> None:
    """Checks that a local runner can run."""
    name = job.name
    if name == "prismrunner":
        flags = BeamFlags.of(job.beam_args)
        if flags["job_endpoint"] is None:
            _check_prism(flags["prism_location"])
    if name not in (DEFAULT_RUNNER.lower(), *SWITCHING):
        return
    flags = BeamFlags.of(job.beam_args)
    for flag in ("--num_workers", "--max_num_workers"):
        if flags.names(flag):
            raise UsageError(f"{flag} is for Dataflow and has no effect here; set --threads")
    workers, mode = flags["direct_num_workers"], flags["direct_running_mode"]
    if workers < 0:
        raise UsageError(f"--direct_num_workers must be at least 0, all cores, got {workers}")
    if mode == "in_memory" and workers != 1:
        raise UsageError(
            f"--direct_num_workers {workers} has no effect in one process: add "
            "--direct_running_mode multi_processing, or set --threads"
        )


def _check_prism(location: str | None) -> None:
    if location is None:
        raise UsageError(
            "--prism_location is missing: without it --runner PrismRunner downloads its program. "
            "`make build/prism` builds it (Go is needed), then add --prism_location build/prism"
        )
    is_there = (
        location.startswith(_PRISM_RELEASES)
        if is_remote(location)
        else shutil.which(os.path.join(".", location)) is not None
    )
    if not is_there:
        raise UsageError(
            f"--prism_location {location} is not a program; `make build/prism` builds build/prism"
        )


def run_pipeline(options: PipelineOptions, work: Callable[[beam.Pipeline], None]) -> None:
    """Runs a pipeline with the graph that `work` adds; Ctrl-C also ends worker processes at once.

    Beam would wait for everything its worker processes have received, and each of them would
    answer Ctrl-C with a traceback. Here they ignore it, and this thread ends them.
    """
    _reach_this_machine()
    with quiet_channels():
        if not has_worker_processes(options):
            runner = _prism_runner() if runs_on_prism(options) else None
            with beam.Pipeline(runner, options) as pipeline:
                work(pipeline)
            return
        done: Future[None] = Future()
        threading.Thread(target=_run, args=(options, work, done), daemon=True).start()
        try:
            while not wait([done], _POLL_SECONDS).done:
                continue
            done.result()
        except KeyboardInterrupt:
            _end_workers()
            done.exception()  # the runner gives up by itself
            raise
        except RuntimeError as error:
            if str(error) != _LOST_WORKER:
                raise
            raise ChildProcessError(
                "a worker process died; if nobody ended it, it ran out of memory or the model "
                "crashed: try fewer --direct_num_workers or a smaller --batch_tokens"
            ) from error


def _reach_this_machine() -> None:
    """Has gRPC, and that of worker processes, ask no proxy of `http_proxy` for localhost."""
    direct = os.environ.get(_WITHOUT_PROXY) or os.environ.get("no_proxy", "")
    if "localhost" not in direct:
        os.environ[_WITHOUT_PROXY] = f"localhost,{direct}"


def _with_us(*command: Any) -> list[Any]:
    """The command of a process that ends with this one, even where that is killed; on Linux.

    It must be started by a thread that does not end before.
    """
    code = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9)\n"  # SIGKILL when its parent dies,
        "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"  # as it may have
    )
    own = [sys.executable, "-IS", "-c", code, str(os.getpid())] if sys.platform == "linux" else []
    return [*own, *command]


def _prism_runner() -> PipelineRunner:
    """Beam's, with a program that ends with this process."""
    from apache_beam.runners.portability import job_server, prism_runner

    class PrismJobServer(prism_runner.PrismJobServer):
        def subprocess_cmd_and_endpoint(self) -> tuple[list[Any], str]:
            command, endpoint = super().subprocess_cmd_and_endpoint()
            is_main = threading.current_thread() is threading.main_thread()
            return _with_us(*command) if is_main else command, endpoint

    class PrismRunner(prism_runner.PrismRunner):
        def default_job_server(self, options: PipelineOptions) -> job_server.JobServer:
            server = job_server.StopOnExitJobServer
            return self.shared_handle.acquire(lambda: server(PrismJobServer(options)))

    return PrismRunner()


def _run(
    options: PipelineOptions, work: Callable[[beam.Pipeline], None], done: "Future[None]"
) -> None:
    give_no_worker_command(options)
    variables = shlex.join(f"{name}={value}" for name, value in package_variables().items())
    without = () if "apitools" in sys.modules else BEAM_WITHOUT
    # Beam waits for it in the thread that starts it.
    words = shlex.join(_with_us(sys.executable, "-c", _START, *without))
    command = f"trap '' INT; export {variables}; exec {words}"
    environment = SubprocessSDKEnvironment.from_command_string(command_string=command)
    try:
        with beam.Pipeline(FnApiRunner(default_environment=environment), options) as pipeline:
            work(pipeline)
    except BaseException as error:  # noqa: BLE001
        done.set_exception(error)
    else:
        done.set_result(None)


def _end_workers() -> None:
    """Kills the worker processes of this process; no finished block is lost."""
    for path in Path("/proc/self/task").glob("*/children"):
        for child in map(int, path.read_text("ascii").split()):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                if _WORKER in Path(f"/proc/{child}/cmdline").read_text("utf-8", "replace"):
                    os.kill(child, signal.SIGKILL)


@contextmanager
def quiet_channels() -> Iterator[None]:
    """Suppresses tracebacks of threads that lost connection; after an interruption for good."""
    previous = threading.excepthook

    def print_others(failure: threading.ExceptHookArgs) -> None:
        lost = isinstance(failure.exc_value, grpc.RpcError)
        if not lost and not str(failure.exc_value).startswith(_ENDED_WORKER):
            previous(failure)

    threading.excepthook = print_others
    yield
    threading.excepthook = previous
