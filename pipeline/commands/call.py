"""Runs `embed` for a caller in Python: options in, the run's record out, errors are raised."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from bert_embed.notebook import in_notebook
from bert_embed.pipeline.commands.start import (
    RunStopped,
    checked_run,
    end_of,
    failure_message,
    forecast,
    note_failure,
    note_interruption,
    run_to_end,
)
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import RunFailed
from bert_embed.pipeline.keywords import named_as_in_python, without_dashes
from bert_embed.pipeline.options import Options
from bert_embed.pipeline.outputs.outcome import problem_of
from bert_embed.pipeline.outputs.run_record import first_record
from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.runners.job_errors import JobGoesOn, traceback_lines, was_interrupted
from bert_embed.run_record import read_record
from bert_embed.storage.errors import required

_WARNING = "warning: "  # how such lines of a summary begin


def run_for_caller(options: Options, shown: bool) -> dict[str, Any]:
    """Does what `bert_embed.embed` documents; `shown` says whether people read along."""
    with _undisturbed():
        with named_as_in_python():
            run = checked_run(options)
        if options.dry_run:
            _tell(shown, *forecast(run))
            return replace(first_record(run), status="planned").to_dict()
        return _run(run, shown)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves the caller's hook of threads, which a failed job replaces, and root logger alone."""
    hook, root = threading.excepthook, logging.getLogger()
    silent = [] if root.handlers else [logging.NullHandler()]
    root.handlers += silent
    try:
        yield
    finally:
        threading.excepthook = hook
        root.handlers = [handler for handler in root.handlers if handler not in silent]


def _run(run: EmbedRun, shown: bool) -> dict[str, Any]:
    live = shown and in_notebook()
    tell = partial(_tell, shown)
    try:
        with named_as_in_python():
            record, started = run_to_end(run, tell, None if live else tell)
    except JobGoesOn as job:
        present = _written(run)
        if job.why == "requested" and present is not None:
            _tell(shown, *str(job).split("\n"))
            return present
        raise RunFailed(str(job), present) from None
    except RunStopped as stopped:
        error = required(stopped.__cause__, "cause of the end")
        if was_interrupted(error):
            if run.job.runs_here:
                note_interruption(stopped)
            raise KeyboardInterrupt from None
        raise _failure(stopped, error) from None
    lines = end_of(run, record, started)
    if shown:
        say(*lines)
    for line in [] if shown else lines:
        if line.startswith(_WARNING):
            warnings.warn(without_dashes(line.removeprefix(_WARNING)), stacklevel=4)
    verdict = problem_of(record, run.options)
    if verdict is not None:
        raise RunFailed(without_dashes(verdict), record.to_dict())
    return record.to_dict()


def _written(run: EmbedRun) -> dict[str, Any] | None:
    """What `run.json` says now, None if it says nothing."""
    record = read_record(run.output)
    return None if record is None else record.to_dict()


def _tell(shown: bool, *lines: str) -> None:
    if shown:
        warn(*lines)


def _failure(stopped: RunStopped, error: BaseException) -> RunFailed:
    """Not chained to the job's own error, whose traceback may hold secrets."""
    message = failure_message(error)
    note_failure(stopped, message)
    record = _written(stopped.run)
    failed = RunFailed(without_dashes(f"the job failed: {message}"), record)
    if trace := traceback_lines(error):
        failed.add_note("\n".join(trace))
    failed.add_note("finished blocks are kept; once this is fixed, the same call continues")
    return failed
