"""Runs a job on the runner that its options name, with the model where workers can load it.

One on this machine ends at once with Ctrl-C.
"""

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from bert_embed.backends.choose import check_precision, chip_memory, find_backend, model_backend
from bert_embed.backends.jax.chips import check_fits
from bert_embed.backends.processor import has_int8_products
from bert_embed.base.environment import missing
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import METADATA, Bundle
from bert_embed.bundle.cache import package_variables
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runners.beam import (
    SWITCHING,
    BeamFlags,
    configure_storage,
    flag_problems,
    give_no_worker_command,
    has_worker_processes,
    pipeline_options,
    runs_on_prism,
)
from bert_embed.pipeline.runners.dataflow import (
    Places,
    accelerator_of,
    for_dataflow,
    run_on_dataflow,
)
from bert_embed.pipeline.runners.errors import quiet_channels, root_message
from bert_embed.pipeline.runners.options import BEAM_WITHOUT, DEFAULT_RUNNER, RunnerOptions
from bert_embed.pipeline.runners.portable import PortableJob, check_job_server, run_on_job_server
from bert_embed.storage.files import absolute, is_remote, join, read_bytes
from bert_embed.transforms.steps import without_cell_labels
from bert_embed.transforms.worker_bundles import PROGRAMS, publish_bundle


def checked_runner(job: RunnerOptions, places: Places, connects: bool = True) -> RunnerOptions:
    """The runner of a job that reads and writes some places, checked before any work starts.

    Without `connects` no server is asked. UsageError names the flag.
    """
    if job.accelerator is not None and not job.is_dataflow:
        raise SettingError(
            "accelerator",
            "requires runner DataflowRunner; for other runners give device",
            "runner",
            "device",
        )
    job = for_dataflow(job, places)
    if job.beam_args:
        for problem in flag_problems(BeamFlags.of(job.beam_args), job.is_dataflow):
            raise UsageError(problem)
    check_job_server(job, connects)
    check_local_runner(job)
    configure_storage(job)
    return job


def check_computing(job: RunnerOptions) -> None:
    """Raises ValueError if no machine, or not this one if it runs here, computes so."""
    check = find_backend if job.runs_here else check_precision
    check(job.precision, job.device, job.engine)


def check_memory(
    job: RunnerOptions, bundle: Bundle, batch_tokens: int | None, longest: int
) -> None:
    """Raises SettingError if a model does not fit in the chips of the workers, or of this machine.

    `batch_tokens` and `longest` are tokens of a batch and of its longest text.
    """
    if (found := accelerator_of(job)) is not None:
        device, chip = found.device, f"one of {found.type}"
        memory = [found.memory_gb * 10**9] * found.chips
    elif job.runs_here and job.device in ("gpu", "tpu"):
        device, chip = job.device, f"a {job.device.upper()} of this machine"
        memory = chip_memory(bundle.config, job.precision, job.device, job.engine)
    else:
        return
    if memory:
        check_fits(bundle, job.precision, batch_tokens, longest, device, chip, memory)


def check_examples(job: RunnerOptions) -> None:
    """Raises UsageError if the job runs here and cannot read TFRecord files of examples."""
    if job.runs_here and find_spec("tensorflow") is None:
        raise UsageError(missing("reading TFRecord files of examples", "tensorflow"))


def report_lines(report: bool, output_format: str) -> list[str]:
    """Says if this machine, which writes report.html, cannot read the files that the run writes."""
    if not report or output_format != "tfrecord" or find_spec("tensorflow"):
        return []
    why = missing("report.html of TFRecord files", "tensorflow")
    return [f"note: {why}; or leave it out with --report false"]


def engine_of(job: RunnerOptions, bundle: Bundle) -> str | None:
    """Name of the engine that computes; None for workers, which choose it by their devices.

    SettingError: the model has an engine of its own, which does not compute so.
    """
    if not job.runs_here and not bundle.config.engine:
        return None
    return model_backend(bundle.config, job.precision, job.device, job.engine)[0].name


def precision_lines(job: RunnerOptions) -> list[str]:
    """Says if this machine, which computes, is no faster in int8."""
    if job.precision != "int8" or not job.runs_here or has_int8_products():
        return []
    return [
        "note: --precision int8 is no faster than float32 on this processor, which has no "
        "products in int8 (AVX-512 VNNI, AVX-VNNI, AMX, or asimddp on Arm)"
    ]


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
            level = (
                flags["default_sdk_harness_log_level"] or ""
            )  # workers elsewhere read it themselves
            if level in logging.getLevelNamesMapping():
                logging.getLogger("bert_embed").setLevel(level)
            run_pipeline(options, work)
    return waits


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
_NOTICED_SECONDS = 2  # in which Beam notices the end of a worker process, if ever
_LOST_WORKER = "Channel closed prematurely."  # all that Beam says of it


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
    answer Ctrl-C with a traceback. Here they ignore it, and this thread ends them. For one that
    ended before it had a connection Beam would wait for good.
    """
    _reach_this_machine()
    with quiet_channels() as worker_ended:
        if not has_worker_processes(options):
            runner = _prism_runner() if runs_on_prism(options) else None
            try:
                with beam.Pipeline(runner, options) as pipeline:
                    work(pipeline)
            except grpc.RpcError as error:
                if runner is None:
                    raise
                raise ChildProcessError(
                    f"Prism does not answer any more ({root_message(error)}); if nobody ended it, "
                    "it ran out of memory"
                ) from error
            return
        done: Future[None] = Future()
        threading.Thread(target=_run, args=(options, work, done), daemon=True).start()
        try:
            while not wait([done], _POLL_SECONDS).done:
                if worker_ended.is_set() and not wait([done], _NOTICED_SECONDS).done:
                    raise RuntimeError(_LOST_WORKER)
            done.result()
        except KeyboardInterrupt:
            _end_workers(done)
            raise
        except RuntimeError as error:
            if str(error) != _LOST_WORKER:
                raise
            _end_workers(done)
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


def _end_workers(done: "Future[None]") -> None:
    """Kills the worker processes of this process, and those that start before Beam gives up.

    No finished block is lost.
    """
    last = time.monotonic() + _NOTICED_SECONDS
    ended = False
    while not ended and time.monotonic() < last:
        for path in Path("/proc/self/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                for child in map(int, path.read_text("ascii").split()):
                    if _WORKER in Path(f"/proc/{child}/cmdline").read_text("utf-8", "replace"):
                        os.kill(child, signal.SIGKILL)
        ended = bool(wait([done], _POLL_SECONDS).done)
