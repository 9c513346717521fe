"""Starts the job of `embed` or `tokenize`, waits for its end and reports it."""

import logging
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import InputError, StorageError, counted, required
from bert_embed.pipeline.console import answer, hide_in_flags, hide_secrets, say, warn
from bert_embed.pipeline.errors import ExitCode, RunFailed
from bert_embed.pipeline.options.command_line import command_of
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.options.python_call import named_as_in_python, without_dashes
from bert_embed.pipeline.progress import Counts, progress_of_run, shown_progress
from bert_embed.pipeline.report.page import page_of, report_after_run
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import run_job
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.prepare import prepare, with_dates
from bert_embed.pipeline.run.state import first_record
from bert_embed.pipeline.run.summary import (
    crash_lines,
    load_lines,
    plan_lines,
    problem_of,
    statements,
    summary_lines,
)
from bert_embed.pipeline.run.tables import with_folder
from bert_embed.pipeline.runners.errors import (
    JobGoesOn,
    root_message,
    traceback_lines,
    was_interrupted,
)
from bert_embed.pipeline.runners.launch import precision_lines, report_lines
from bert_embed.pipeline.runners.portable import earlier_job_lines, server_notes
from bert_embed.results.run_record import RunRecord, read_record
from bert_embed.storage.local import REPLACED
from bert_embed.transforms.crash_markers import clear_crash_markers

_LONG_REPORT = 5.0  # seconds


class RunStopped(Exception):
    """A run ended before its output was complete; what ended it is the cause.

    Attributes:
        run, record: The run, and its record when this attempt began.
        counts: What its progress line had counted.
        markers: The crash markers that were there before.
    """

    def __init__(
        self, run: EmbedRun, record: RunRecord, counts: Counts, markers: frozenset[str]
    ) -> None:
        super().__init__(run.output)
        self.run, self.record, self.counts, self.markers = run, record, counts, markers


def start(options: Options) -> ExitCode:
    """Prepares a run, runs it unless it is complete, and reports what came out."""
    run = checked_run(options)
    if options.dry_run:
        answer(*forecast(run))
        return ExitCode.DONE
    try:
        record, started = run_to_end(run)
    except JobGoesOn as job:
        return _report_running(run, job)
    except RunStopped as stopped:
        error = required(stopped.__cause__, "cause of the end")
        if was_interrupted(error):
            return _report_interruption(stopped)
        return _report_failure(stopped, error)
    say(*end_of(run, record, started))
    verdict = problem_of(record, run.options)
    if verdict is None:
        return ExitCode.DONE
    warn(f"error: {verdict}")
    return ExitCode.TOO_MANY_REJECTED


def checked_run(options: Options, found: OutputState | None = None) -> EmbedRun:
    """Returns the run that options ask for; InputError and StorageError as `start` raises them."""
    return prepare(with_folder(with_dates(options)), found)


def plan_of(run: EmbedRun) -> list[str]:
    """The lines of a run's plan."""
    return [
        *plan_lines(run),
        *precision_lines(run.job),
        *report_lines(run.options.report, run.options.output_format),
    ]


def forecast(run: EmbedRun) -> list[str]:
    """The lines of a dry run: the plan, and what would be found in the output and the cluster."""
    return [*plan_of(run), *state.forecast(run), *server_notes(run.job)]


def end_of(run: EmbedRun, record: RunRecord, started: bool) -> list[str]:
    """The lines on a complete run, `started` here or found complete, with SQL for its table."""
    since = f"{run.output} holds this run, complete since {record.ended}"
    lines = [] if started else [f"nothing to do: {since}"]
    lines += summary_lines(run.output, record, page_of(run.folder))
    if record.table and record.status == "done":
        lines += [*load_lines(record, started), *statements(record)]
    return lines


def run_to_end(
    run: EmbedRun,
    tell: Callable[..., None] = warn,
    tell_progress: Callable[[str], None] | None = None,
) -> tuple[RunRecord, bool]:
    """Runs a run unless it is complete; returns its record, and whether it was not complete before.

    `tell` takes the lines of its plan and notes, `tell_progress` those on its progress; None shows
    them to people. JobGoesOn: a job on a cluster outlives this call; RunStopped: it failed.
    """
    plan = [*plan_of(run), *earlier_job_lines(run.found.record)]
    with state.claimed(run) as record:
        if record.is_done:
            _show(run, record, False, tell, tell_progress)
            return record, False
        tell(*plan, *crash_lines(run))
        record = _run(run, record, tell, tell_progress)
        _show(run, record, True, tell, tell_progress)
    return record, True


def _show(
    run: EmbedRun,
    record: RunRecord,
    started: bool,
    tell: Callable[..., None],
    tell_progress: Callable[[str], None] | None,
) -> None:
    if run.options.report and run.kind == "vectors":
        from bert_embed.pipeline.texts import sample_texts  # imports Beam

        reported = Run(run.folder, record)
        texts_of = partial(sample_texts, [reported]) if run.options.report_texts else None
        began = time.monotonic()
        with shown_progress(run.output, lambda _: "writing the report", tell_progress):
            report_after_run(reported, started, tell, texts_of)
        if (seconds := time.monotonic() - began) > _LONG_REPORT:
            tell(f"the report took {seconds:.1f} s more")


def _run(
    run: EmbedRun,
    record: RunRecord,
    tell: Callable[..., None],
    tell_progress: Callable[[str], None] | None,
) -> RunRecord:
    markers = run.folder.markers()
    counts = Counts(run.output, run.fingerprint, run.goal, time.time())
    try:
        with progress_of_run(counts, tell_progress):
            run_job(run, record)
        if (done := _done_record(run)) is None:
            raise StorageError(
                f"{run.folder.record} does not say that the run is complete: it was changed or "
                "removed meanwhile"
            )
    except (Exception, KeyboardInterrupt) as error:  # whatever a runner raises: the job failed
        goes_on = isinstance(error, JobGoesOn)
        done = _done_record(run)
        if (was_interrupted(error) and not goes_on) or done is None:
            if goes_on:
                raise
            raise RunStopped(run, record, counts, markers) from error
        # The runner lost the connection to a job that wrote its whole output, or that is refused.
        if done.status != "refused":
            tell(f"note: {failure_message(error)}; the run is complete all the same")
    return done


def _report_interruption(stopped: RunStopped) -> ExitCode:
    """Says how to continue. Ctrl-C ends a local job, but not one on a cluster."""
    run = stopped.run
    if run.job.runs_here:
        warn("", *note_interruption(stopped))
        next_step = f"{_finished_text(stopped.counts)}, the same command computes the rest"
    else:
        warn("")
        next_step = "a job on a cluster continues unless it is cancelled there. Continue with"
    warn(f"interrupted; {next_step}:")
    warn(f"  {shlex.join(hide_in_flags(command_of(run.options)))}")
    return ExitCode.INTERRUPTED


def _finished_text(counts: Counts) -> str:
    """How much of a run that stopped is finished; only what is new since its progress is read."""
    with suppress(OSError, InputError):
        counts.look()
        progress = counts.progress(None)
        finished, documents = progress.documents, progress.documents_estimated
        return (
            f"{finished:,} of about {counted(documents, 'document')} "
            f"{'is' if finished == 1 else 'are'} finished and kept"
        )
    return "finished documents are kept"


def _report_running(run: EmbedRun, job: JobGoesOn) -> ExitCode:
    """Says where to find a job that outlives this command."""
    record = run.folder.record
    if job.why in ("running", "unknown"):
        warn(f"error: {job}")
        if job.why == "unknown":
            warn(f"if it does, {record} says when it is done, and the same command sums it up")
        return ExitCode.FAILED
    say(*str(job).split("\n"), f"{record} says when it is done; the same command then sums it up")
    return ExitCode.DONE if job.why == "requested" else ExitCode.INTERRUPTED


def _done_record(run: EmbedRun) -> RunRecord | None:
    """What run.json says of a complete run, whatever the runner says: it is written last."""
    with suppress(OSError):
        record = read_record(run.output)
        if record is not None and record.run == run.fingerprint and record.is_done:
            return record
    return None


def _report_failure(stopped: RunStopped, error: BaseException) -> ExitCode:
    """Says why a job failed, which blocks may be the cause, and what to do."""
    warn(*traceback_lines(error))
    message = failure_message(error)
    warn(f"error: the job failed: {message}", *note_failure(stopped, message))
    warn(*crash_lines(stopped.run))
    if REPLACED in message:  # nothing can be continued
        warn("run again with --overwrite, or into another --output")
    elif "--overwrite" not in message:
        warn("finished blocks are kept; once this is fixed, the same command continues")
    return ExitCode.FAILED


def failure_message(error: BaseException) -> str:
    """Why a job failed, in one sentence without secrets."""
    return hide_secrets(root_message(error))


def note_interruption(stopped: RunStopped) -> Sequence[str]:
    """Notes in run.json that a local run was interrupted; crash markers from before it stay."""
    notes = note_failure(stopped, None)
    with suppress(OSError, ValueError):  # workers were ended here, no block is to blame
        clear_crash_markers(stopped.run.output, stopped.markers)
    return notes


def note_failure(stopped: RunStopped, message: str | None) -> Sequence[str]:
    """Notes in run.json why a run ended, None for Ctrl-C; returns a note if it cannot."""
    run, record = stopped.run, stopped.record
    try:
        state.stop(run.output, record, message)
    except OSError as error:
        why = error.strerror or error
        return [f"note: {run.output}/run.json still says running, it cannot be written: {why}"]
    return []


_WARNING = "warning: "  # how such lines of a summary begin


def run_for_caller(options: Options, shown: bool) -> dict[str, Any]:
    """Does what `bert_embed.embed` documents; `shown` says whether people read along."""
    with _undisturbed():
        with named_as_in_python():
            run = checked_run(options)
        if options.dry_run:
            _tell(shown, *forecast(run))
            return replace(first_record(run), status="planned").to_dict()
        return _run_for_caller(run, shown)


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


def _run_for_caller(run: EmbedRun, shown: bool) -> dict[str, Any]:
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
