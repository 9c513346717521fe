"""Local runners: Beam's flags in; what is missing for them, and a run that Ctrl-C ends at once."""

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
)
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipeline.options import DEFAULT_RUNNER, EmbedOptions, UsageError
from transforms.files import is_remote

_logger = logging.getLogger(__name__)
_SWITCHING = ("directrunner", "switchingdirectrunner")  # may download a runner and start that
_WORKER = "apache_beam.runners.worker.sdk_worker_main"
_HEAR_SECONDS = 0.2  # a signal that another thread receives does not wake one that waits for ever
_LOST_WORKER = "Channel closed prematurely."  # all that Beam says of it
_ENDED_WORKER = "Worker subprocess exited with return code"


def check_local_runner(options: EmbedOptions) -> None:
    """Sees that a local runner has what it needs.

    Raises:
        UsageError: Prism has no program to run; more workers are asked for than would run; or the
            runner is Beam's old one.
    """
    name = options.runner_name
    given = PipelineOptions(list(options.beam_args))
    if name == "bundlebaseddirectrunner":
        raise UsageError(
            f"--runner {options.runner} does not wait for what a step needs; take {DEFAULT_RUNNER}"
        )
    if name == "prismrunner":
        location = given.view_as(PrismRunnerOptions).prism_location
        if given.view_as(PortableOptions).job_endpoint is None:
            _check_prism(location)
    direct = given.view_as(DirectOptions)
    workers, mode = direct.direct_num_workers, direct.direct_running_mode
    if name in (DEFAULT_RUNNER.lower(), *_SWITCHING) and mode == "in_memory" and workers != 1:
        raise UsageError(
            f"--direct_num_workers {workers} does nothing in one process: add "
            "--direct_running_mode multi_processing, or set --threads"
        )


def _check_prism(location: str | None) -> None:
    if location is None:
        raise UsageError(
            "--prism_location is missing: without it --runner PrismRunner downloads its program. "
            "`make prism` builds it (Go is needed), then add --prism_location build/prism"
        )
    if not is_remote(location) and shutil.which(os.path.join(".", location)) is None:
        raise UsageError(
            f"--prism_location {location} is no program; `make prism` builds build/prism"
        )


def beam_flags(options: EmbedOptions, flags: Sequence[str]) -> list[str]:
    """Beam's flags, with the runner that is taken in place of one that Beam would look for.

    Args:
        options: What was asked for.
        flags: Beam's flags that follow from it.
    """
    name = options.runner
    if options.runner_name in _SWITCHING:
        _logger.warning(
            "--runner %s would take the runner that it can download; this run takes %s",
            name,
            DEFAULT_RUNNER,
        )
        name = DEFAULT_RUNNER
    return [*_without_runner(flags), f"--runner={name}"]


def _without_runner(flags: Sequence[str]) -> Iterator[str]:
    skipped = False
    for flag in flags:
        if skipped or flag.startswith("--runner="):
            skipped = False
        elif flag == "--runner":
            skipped = True
        else:
            yield flag


def run_pipeline(options: PipelineOptions, work: Callable[[beam.Pipeline], None]) -> None:
    """Builds a pipeline and runs it to its end; where workers are processes, so that Ctrl-C works.

    Beam waits for all that its worker processes have been given, and each of them would answer
    Ctrl-C with a traceback. Here they ignore it, and this thread, which is free to hear it, ends
    them.

    Args:
        options: Beam's.
        work: Adds the graph to the pipeline.

    Raises:
        KeyboardInterrupt: Ctrl-C; no worker is left.
        ChildProcessError: A worker process died.
    """
    with _quiet_channels():
        if options.view_as(DirectOptions).direct_running_mode != "multi_processing":
            with beam.Pipeline(options=options) as pipeline:
                work(pipeline)
            return
        done: Future[None] = Future()
        threading.Thread(target=_run, args=(options, work, done), daemon=True).start()
        try:
            while not wait([done], _HEAR_SECONDS).done:
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


def _run(
    options: PipelineOptions, work: Callable[[beam.Pipeline], None], done: "Future[None]"
) -> None:
    options.view_as(DirectOptions).direct_running_mode = "in_memory"  # else Beam's command is taken
    command = f"trap '' INT; exec {shlex.quote(sys.executable)} -m {_WORKER}"
    environment = SubprocessSDKEnvironment.from_command_string(command_string=command)
    try:
        with beam.Pipeline(FnApiRunner(default_environment=environment), options) as pipeline:
            work(pipeline)
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(None)


def _end_workers() -> None:
    """Ends the worker processes of this one, which loses no finished block."""
    for path in Path("/proc/self/task").glob("*/children"):
        for child in map(int, path.read_text("ascii").split()):
            if _WORKER in Path(f"/proc/{child}/cmdline").read_text("utf-8", "replace"):
                os.kill(child, signal.SIGKILL)


@contextmanager
def _quiet_channels() -> Iterator[None]:
    """Keeps threads that lost the other side from printing tracebacks.

    It stays so after an interruption, when such threads are still about to end; the run's own error
    comes by another way.
    """
    told = threading.excepthook

    def tell(what: threading.ExceptHookArgs) -> None:
        lost = isinstance(what.exc_value, grpc.RpcError)
        if not lost and not str(what.exc_value).startswith(_ENDED_WORKER):
            told(what)

    threading.excepthook = tell
    yield
    threading.excepthook = told
