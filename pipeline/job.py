"""Starts a job, waits for its end and says how it ended: one way for all commands and runners."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Generic

import apache_beam as beam

from bert_embed.base.errors import InputError, StorageError, required
from bert_embed.pipeline.console import hide_in, hide_secrets, say, warn
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.runners.dataflow import completed_flags
from bert_embed.pipeline.runners.errors import (
    JobGoesOn,
    root_message,
    traceback_lines,
    was_interrupted,
)
from bert_embed.pipeline.runners.launch import run_on_runner
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.results.names import RUN_FILE
from bert_embed.results.run_record import AnyRecord, change_record
from bert_embed.storage.files import join, read_bytes
from bert_embed.storage.local import REPLACED
from bert_embed.transforms.increments import CHANGED

Tell = Callable[..., None]  # takes lines
TellProgress = Callable[[str], None] | None  # None shows the progress to people


class Attempt(ABC, Generic[AnyRecord]):
    """What a command does for an output: all in which embed, tokenize, cluster and dedup differ."""

    command: str  # its name
    runner: RunnerOptions  # where its job runs, and on what
    output: str  # the folder that it writes, whose run.json says how it ended
    fingerprint: str  # of what it writes
    model: str  # fingerprint of the model
    kept: str  # what a job that failed leaves

    @abstractmethod
    def plan(self) -> list[str]:
        """What is to be done, in lines; JobGoesOn if a job of an earlier command does it."""

    @abstractmethod
    def claimed(self) -> AbstractContextManager[AnyRecord]:
        """Claims the output, and locks it; gives its record, which may say that all is done."""

    @abstractmethod
    def build(self, record: AnyRecord) -> Callable[[beam.Pipeline], None]:
        """What adds the graph of the job to a pipeline; the graph completes the record."""

    @abstractmethod
    def progress(self, tell: TellProgress) -> AbstractContextManager[None]:
        """Shows how far the job is."""

    @abstractmethod
    def parse(self, data: bytes) -> AnyRecord:
        """The record in a run.json; InputError if it is none."""

    def read(self) -> AnyRecord | None:
        """What run.json says at this moment."""
        data = read_bytes(join(self.output, RUN_FILE))
        return None if data is None else self.parse(data)

    @abstractmethod
    def summary(self, record: AnyRecord, started: bool) -> list[str]:
        """What came out of a complete job, `started` by this command or found complete."""

    @abstractmethod
    def how_to_continue(self) -> list[str]:
        """How an interrupted job is continued, in lines."""

    def way_on(self, error: BaseException) -> str:
        """What to do after a job failed, in one sentence."""
        return "once this is fixed, the same command continues"

    def is_complete(self, record: AnyRecord) -> bool:
        """Whether a record of this job says that nothing is left to do."""
        return record.is_done

    def ended(self, record: AnyRecord, started: bool, tell: Tell, progress: TellProgress) -> None:
        """Does what follows a complete job while the output is still locked."""

    def problem(self, record: AnyRecord) -> str | None:
        """Why a complete job is refused; None if it is not."""


class JobStopped(Exception):
    """A job ended before its output was complete; what ended it is the cause."""


def start(attempt: Attempt[AnyRecord]) -> ExitCode:
    """Does what a command is for unless it is done already, and says what came out."""
    try:
        record, started = run_to_end(attempt)
    except JobGoesOn as job:
        return _report_running(attempt, job)
    except JobStopped as stopped:
        error = required(stopped.__cause__, "cause of the end")
        report = _report_interruption if was_interrupted(error) else _report_failure
        return report(attempt, error)
    say(*attempt.summary(record, started))
    if (problem := attempt.problem(record)) is None:
        return ExitCode.DONE
    warn(f"error: {problem}")
    return ExitCode.TOO_MANY_REJECTED


def run_to_end(
    attempt: Attempt[AnyRecord], tell: Tell = warn, tell_progress: TellProgress = None
) -> tuple[AnyRecord, bool]:
    """Runs a job unless it is complete; returns its record, and whether it was not complete before.

    `tell` takes the lines of its plan and notes. JobGoesOn: a job on a cluster outlives this call;
    JobStopped: it failed, or was interrupted.
    """
    plan = attempt.plan()
    with attempt.claimed() as record:
        started = not record.is_done
        if started:
            tell(*plan)
            record = _run(attempt, record, tell, tell_progress)
        attempt.ended(record, started, tell, tell_progress)
    return record, started


def _run(
    attempt: Attempt[AnyRecord], record: AnyRecord, tell: Tell, tell_progress: TellProgress
) -> AnyRecord:
    try:
        with attempt.progress(tell_progress):
            run_job(attempt, record)
        if (done := _complete(attempt)) is None:
            raise StorageError(
                f"{join(attempt.output, RUN_FILE)} does not say that the job is complete: it was "
                "changed or removed meanwhile"
            )
    except (Exception, KeyboardInterrupt) as error:  # whatever a runner raises: the job failed
        goes_on = isinstance(error, JobGoesOn)
        done = _complete(attempt)
        if (was_interrupted(error) and not goes_on) or done is None:
            if goes_on:
                raise
            raise JobStopped("the job stopped") from error
        # The runner lost the connection to a job that wrote its whole output, or that is refused.
        if done.status != "refused":
            tell(f"note: {failure_message(error)}; the job is complete all the same")
    return done


def run_job(attempt: Attempt[AnyRecord], record: AnyRecord) -> None:
    """Runs a job on its runner; JobGoesOn if it goes on, as with --no_wait_until_finish."""
    words = completed_flags(
        attempt.runner, attempt.command, attempt.output, attempt.fingerprint, attempt.model
    )

    def submitted(job: dict[str, str]) -> None:
        """So that the job can be found if this command ends first."""
        _change(attempt, lambda running: running.submitted(hide_in(job)))

    if not run_on_runner(attempt.runner, words, attempt.build(record), submitted):
        present = attempt.read()
        if present is not None and present.status == "running":
            raise JobGoesOn("requested", f"the job continues on {attempt.runner.runner}")


def _complete(attempt: Attempt[AnyRecord]) -> AnyRecord | None:
    """What run.json says of a complete job, whatever the runner says: it is written last."""
    with suppress(OSError):
        record = attempt.read()
        if record is not None and record.run == attempt.fingerprint and attempt.is_complete(record):
            return record
    return None


def _change(attempt: Attempt[AnyRecord], change: Callable[[AnyRecord], AnyRecord]) -> None:
    """Changes run.json where it says that this job still runs."""

    def changed(record: AnyRecord | None) -> AnyRecord | None:
        if record is None or (record.run, record.status) != (attempt.fingerprint, "running"):
            return None
        return change(record)

    with suppress(InputError):
        change_record(attempt.output, attempt.parse, changed)


def _report_running(attempt: Attempt[AnyRecord], job: JobGoesOn) -> ExitCode:
    """Says where to find a job that outlives this command."""
    record = join(attempt.output, RUN_FILE)
    if job.why in ("running", "unknown"):
        warn(f"error: {job}")
        if job.why == "unknown":
            warn(f"if it does, {record} says when it is done, and the same command sums it up")
        return ExitCode.FAILED
    say(*str(job).split("\n"), f"{record} says when it is done; the same command then sums it up")
    return ExitCode.DONE if job.why == "requested" else ExitCode.INTERRUPTED


def _report_interruption(attempt: Attempt[AnyRecord], error: BaseException) -> ExitCode:
    """Says how to continue. Ctrl-C ends a local job, but not one on a cluster."""
    warn("", *note_end(attempt, error))
    how, *rest = attempt.how_to_continue()
    if not attempt.runner.runs_here:
        how = f"a job on a cluster continues unless it is cancelled there; {how}"
    warn(f"interrupted; {how}", *rest)
    return ExitCode.INTERRUPTED


def _report_failure(attempt: Attempt[AnyRecord], error: BaseException) -> ExitCode:
    """Says why a job failed, what may be the cause, and what to do."""
    warn(*traceback_lines(error))
    message = failure_message(error)
    warn(f"error: the job failed: {message}", *note_end(attempt, error))
    warn(*ways_on(attempt, error))
    return ExitCode.FAILED


def ways_on(attempt: Attempt[AnyRecord], error: BaseException) -> list[str]:
    """What to do after a job failed, in a line, or none where its message says it."""
    message = failure_message(error)
    if REPLACED in message or CHANGED in message:  # nothing can be continued
        return ["run again with --overwrite, or into another --output"]
    return [] if "--overwrite" in message else [f"{attempt.kept}; {attempt.way_on(error)}"]


def failure_message(error: BaseException) -> str:
    """Why a job failed, in one sentence without secrets."""
    return hide_secrets(root_message(error))


def note_end(attempt: Attempt[AnyRecord], error: BaseException) -> list[str]:
    """Notes in run.json why a job ended; returns a note if it cannot.

    A job on a cluster goes on after Ctrl-C, and its record stays as it is.
    """
    interrupted = was_interrupted(error)
    if interrupted and not attempt.runner.runs_here:
        return []
    why = None if interrupted else failure_message(error)
    notes = []
    try:
        _change(attempt, lambda running: running.stopped(why))
    except OSError as reason:
        record, said = join(attempt.output, RUN_FILE), reason.strerror or reason
        notes = [f"note: {record} still says running, it cannot be written: {said}"]
    return notes
