"""Embeds, or tokenizes: checks a run, starts its job, waits for its end, says what came out."""

import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import InputError, StorageError, counted, required
from bert_embed.pipeline.console import (
    HIDDEN,
    answer,
    hide_in,
    hide_in_flags,
    hide_secrets,
    say,
    warn,
)
from bert_embed.pipeline.errors import ExitCode, RunFailed, UsageError
from bert_embed.pipeline.options.command_line import command_of
from bert_embed.pipeline.options.commands import VerifyOptions
from bert_embed.pipeline.options.embed import DEFAULTS, OF_RESULT, Options
from bert_embed.pipeline.options.flags import looks_like_table
from bert_embed.pipeline.options.python_call import named_as_in_python, without_dashes
from bert_embed.pipeline.progress import RunCounts, progress_of_run
from bert_embed.pipeline.report.page import report_after_run
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import build
from bert_embed.pipeline.run.plan import EmbedRun, plan_lines
from bert_embed.pipeline.run.prepare import prepare, with_dates
from bert_embed.pipeline.run.summary import outcome_lines, problem_of
from bert_embed.pipeline.run.tables import load_plan, with_folder
from bert_embed.pipeline.runners.dataflow import completed_flags, worker_lines
from bert_embed.pipeline.runners.errors import (
    JobGoesOn,
    is_input_error,
    root_message,
    traceback_lines,
    was_interrupted,
)
from bert_embed.pipeline.runners.launch import (
    bundle_for_workers,
    describe_idle_job,
    earlier_job_lines,
    notes_of_this_machine,
    run_on_runner,
    server_notes,
)
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.chain import earlier_places
from bert_embed.results.files import EXAMPLES
from bert_embed.results.names import RUN_FILE, part_of
from bert_embed.results.run_record import RunRecord, change_record, read_record
from bert_embed.storage.files import join
from bert_embed.storage.local import PUT_BACK, REPLACED
from bert_embed.transforms.increments import CHANGED
from bert_embed.transforms.output_check import Problem
from bert_embed.transforms.output_folder import REPORT_PAGE, OutputFolder

Tell = Callable[..., None]  # takes lines
TellProgress = Callable[[str], None] | None  # None shows the progress to people


def start(options: Options) -> ExitCode:
    """Prepares a run, runs it unless it is complete, and reports what came out."""
    run = checked_run(options)
    if options.dry_run:
        answer(*forecast(run))
        return ExitCode.DONE
    attempt = Attempt(run)
    try:
        record, started = run_to_end(attempt)
    except JobGoesOn as job:
        return _report_running(attempt.output, job)
    except JobStopped as stopped:
        return _report_end(attempt, required(stopped.__cause__, "cause of the end"))
    if not started:
        describe_idle_job(run.job, attempt.identity)
    say(*_summary(run, record, started))
    if (problem := problem_of(record, run.options)) is None:
        return ExitCode.DONE
    warn(f"error: {problem}")
    return ExitCode.TOO_MANY_REJECTED


def checked_run(options: Options) -> EmbedRun:
    """Returns the run that options ask for; InputError and StorageError as `start` raises them."""
    options = with_dates(options)
    if options.loads_table and not options.output:
        options = with_folder(options)
    return prepare(options)


class Attempt:
    """What `embed` or `tokenize` does for an output."""

    def __init__(self, run: EmbedRun) -> None:
        self.run, self.output = run, run.output
        model = run.work.bundle.fingerprint[:32]
        self.identity = run.options.command, run.output, run.fingerprint, model
        self.counts = RunCounts(run.output, run.fingerprint, run.goal, time.time())

    def finished_text(self) -> str:
        """How much is finished; only what is new since the progress was read is read."""
        with suppress(OSError, InputError):
            self.counts.look()
            progress = self.counts.progress(None)
            finished, documents = progress.documents, progress.documents_estimated
            return (
                f"{finished:,} of about {counted(documents, 'document')} "
                f"{'is' if finished == 1 else 'are'} finished and kept"
            )
        return "finished documents are kept"

    def complete(self) -> RunRecord | None:
        """What run.json says of a complete job, whatever the runner says: it is written last."""
        record = read_record(self.output)
        is_complete = record and record.run == self.run.fingerprint and record.is_done
        return record if is_complete else None

    def change(self, change: Callable[[RunRecord], RunRecord]) -> None:
        """Changes run.json where it says that this job still runs."""
        running = self.run.fingerprint, "running"
        change_record(
            self.output,
            lambda now: change(now) if now and (now.run, now.status) == running else None,
        )


def _write_report(run: EmbedRun, record: RunRecord, anew: bool, tell: Tell) -> None:
    report = run.options.report
    if report == "false" or run.kind != "vectors":
        return
    reported = Run(run.folder, record)
    texts_of = partial(sample_texts, reported) if report == "texts" else None
    # Than the one that may be there.
    is_other = record.options.get("report", DEFAULTS["report"]) != report
    report_after_run(reported, anew or is_other, tell, texts_of)


def _summary(run: EmbedRun, record: RunRecord, started: bool) -> list[str]:
    page = None
    if run.options.report != "false":
        with suppress(OSError):  # the store may not say
            page = run.folder.path_of(REPORT_PAGE) if run.folder.has_page else None
    return list(outcome_lines(run.output, record, started, page, run.source.expired))


def plan_of(run: EmbedRun) -> list[str]:
    """The lines of a run's plan."""
    of_tfrecord = run.options.report != "false" and run.options.output_format == "tfrecord"
    return [
        *plan_lines(run),
        *state.again_lines(run),
        *(worker_lines(run.job) if run.job.is_dataflow else ()),
        *notes_of_this_machine(run.job, run.engine, of_tfrecord),
    ]


class JobStopped(Exception):
    """A job ended before its output was complete; what ended it is the cause."""


def run_to_end(
    attempt: Attempt, tell: Tell = warn, tell_progress: TellProgress = None
) -> tuple[RunRecord, bool]:
    """Runs a job unless it is complete; returns its record, and whether it was not complete before.

    `tell` takes the lines of its plan and notes. JobGoesOn: a job on a cluster outlives this call;
    JobStopped: it failed, or was interrupted.
    """
    run, found = attempt.run, attempt.run.state.record
    submitted = found.job if found is not None and found.status == "running" else None
    plan = [*plan_of(run), *(earlier_job_lines(submitted) if submitted else ())]
    with state.claimed(run) as record:
        started = not record.is_done
        if started:
            tell(*plan)
            record = _run(attempt, record, tell, tell_progress)
        _write_report(run, record, started, tell)
    return record, started


def _run(attempt: Attempt, record: RunRecord, tell: Tell, tell_progress: TellProgress) -> RunRecord:
    try:
        attempt.counts.began = time.time()
        with progress_of_run(attempt.counts, tell_progress):
            run_job(attempt, record)
        if (done := attempt.complete()) is None:
            raise StorageError(
                f"{join(attempt.output, RUN_FILE)} does not say that the job is complete: it was "
                "changed or removed meanwhile"
            )
    except (Exception, KeyboardInterrupt) as error:  # whatever a runner raises: the job failed
        goes_on, done = isinstance(error, JobGoesOn), None
        with suppress(OSError):
            done = attempt.complete()
        if (was_interrupted(error) and not goes_on) or done is None:
            if goes_on:
                raise
            raise JobStopped("the job stopped") from error
        # The runner lost the connection to a job that wrote its whole output, or that is refused.
        if done.status != "refused":
            tell(f"note: {failure_message(error)}; the job is complete all the same")
    return done


def run_job(attempt: Attempt, record: RunRecord) -> None:
    """Runs a job on its runner; JobGoesOn if it goes on, as with --no_wait_until_finish."""
    run, job = attempt.run, attempt.run.job
    words = list(job.beam_args) if job.runs_here else completed_flags(job, attempt.identity)
    bundle = bundle_for_workers(run.work.bundle, run.options.model, job)
    graph = partial(build, run=run, record=record, place=bundle.path)

    def submitted(job: dict[str, str]) -> None:
        """So that the job can be found if this command ends first."""
        attempt.change(lambda running: running.submitted(hide_in(job)))

    if not run_on_runner(job, words, graph, submitted):
        present = read_record(attempt.output)
        if present is not None and present.status == "running":
            raise JobGoesOn("requested", f"the job continues on {job.runner}")


def _report_running(output: str, job: JobGoesOn) -> ExitCode:
    record = join(output, RUN_FILE)
    if job.why in ("running", "unknown"):
        warn(f"error: {job}")
        if job.why == "unknown":
            warn(f"if it does, {record} says when it is done, and the same command sums it up")
        return ExitCode.FAILED
    say(*str(job).split("\n"), f"{record} says when it is done; the same command then sums it up")
    return ExitCode.DONE if job.why == "requested" else ExitCode.INTERRUPTED


def _report_end(attempt: Attempt, error: BaseException) -> ExitCode:
    """Says why a job ended, and what to do. Ctrl-C ends a local job, but not one on a cluster."""
    if was_interrupted(error):
        warn("", *note_end(attempt, error))
        how = "a job on a cluster continues unless it is cancelled there; continue with"
        if attempt.run.job.runs_here:
            how = f"{attempt.finished_text()}, the same command computes the rest"
        command = shlex.join(hide_in_flags(command_of(attempt.run.options)))
        warn(f"interrupted; {how}:", f"  {command}")
        return ExitCode.INTERRUPTED
    warn(*traceback_lines(error))
    warn(f"error: the job failed: {failure_message(error)}", *note_end(attempt, error))
    warn(*way_on(attempt.run, error))
    return ExitCode.FAILED


def way_on(run: EmbedRun, error: BaseException) -> list[str]:
    """What to do after a job failed, in a line, or none where its message says it."""
    message, plain = failure_message(error), root_message(error)
    if REPLACED in message or CHANGED in message:  # nothing can be continued
        return ["run again with --overwrite, or into another --output"]
    if "--overwrite" in message:
        return []
    how = "once this is fixed, the same command continues"
    is_damaged = is_input_error(error) and PUT_BACK not in plain
    # A file that is replaced makes it another run.
    if is_damaged and plain.startswith(tuple(file.info.path for file in run.source.files)):
        new = "" if run.kind == EXAMPLES else ", with --skip_existing for this one"
        how = f"embed the corrected input into another --output{new}, or with --overwrite"
    return [f"finished blocks are kept; {how}"]


def failure_message(error: BaseException) -> str:
    """Why a job failed, in one sentence without secrets."""
    return hide_secrets(root_message(error))


def note_end(attempt: Attempt, error: BaseException) -> list[str]:
    """Notes in run.json why a job ended; returns a note if it cannot.

    A job on a cluster goes on after Ctrl-C, and its record stays as it is.
    """
    interrupted = was_interrupted(error)
    if not interrupted or attempt.run.job.runs_here:
        why = None if interrupted else failure_message(error)
        try:
            attempt.change(lambda running: running.stopped(why))
        except OSError as reason:
            record, said = join(attempt.output, RUN_FILE), reason.strerror or reason
            return [f"note: {record} still says running, it cannot be written: {said}"]
    return []


def repair(
    folder: OutputFolder, record: RunRecord, problems: Sequence[Problem], command: VerifyOptions
) -> ExitCode:
    """Removes what is damaged or no file of its run, and runs it again if it is the same still."""
    with folder.held(alone=True):  # no run is at work there
        options = _options_of_repair(folder, record, command)
        warn(
            f"repairing {folder.path} with {options.runner}; as its run.json says, this reads "
            f"{', '.join((*options.input, *options.skip_existing))} and the model {options.model}"
        )
        run = checked_run(options)
        if run.fingerprint != record.run:
            raise UsageError(
                f"{folder.path} cannot be repaired: its input, model or program has changed since "
                "it was written; embed into a new folder"
            )
        parts = {problem.part for problem in problems if problem.part is not None}
        names = folder.data_files()
        damaged = {problem.name for problem in problems}
        folder.remove_block_records(sorted(parts))
        folder.remove_files(name for name in names if name in damaged or part_of(name) in parts)
        change_record(  # so that the same command continues the run
            folder.path, lambda now: now.incomplete() if now and now.run == record.run else None
        )
    return start(run.options)


def _options_of_repair(folder: OutputFolder, record: RunRecord, command: VerifyOptions) -> Options:
    """The options of a run: what it computes by its record, where it runs by this command.

    Somebody else may have written run.json. So it names what is read, and nothing more: no runner
    or program, no query, no table to load or to pay for, no folder to write to.
    """

    def refused(why: str) -> UsageError:
        return UsageError(
            f"{folder.path} cannot be repaired without its command: run.json {why}; remove the "
            "listed files and run the command again"
        )

    stored = record.options
    # Not as given: a folder of runs may hold later ones now.
    earlier = tuple(earlier_places(folder.path, record))
    read = {name: stored[name] for name in ("input", "model") if name in stored}
    if HIDDEN in str((read, {name: stored[name] for name in OF_RESULT if name in stored})):
        raise refused("holds no secrets")
    tables = record.table, stored.get("query"), stored.get("output_table")
    if tables != (None, None, None) or any(map(looks_like_table, earlier)):
        raise refused("names BigQuery, which only a command may")
    if not record.input.listing:
        raise refused("is that of an export")
    places = {"output": folder.path, "skip_existing": earlier}
    job = {"runner": command.runner, "beam_args": command.beam_args}
    options = Options.from_record(stored, **read, **places, **job)
    if options.reads_table:
        raise refused("names BigQuery, which only a command may")
    options.require("input")
    return options


def forecast(run: EmbedRun) -> list[str]:
    """The lines of a dry run: the plan, and what would be found in the output and the cluster."""
    notes = server_notes(run.job) if run.job.is_portable else ()
    loads = load_plan(run.work, run.load) if run.load else ()
    return [*plan_of(run), *loads, *state.forecast(run), *notes]


_WARNING = "warning: "  # how such lines of a summary begin


def run_for_caller(options: Options, shown: bool) -> dict[str, Any]:
    """Does what `bert_embed.embed` documents; `shown` says whether people read along."""
    tell: Tell = warn if shown else lambda *lines: None
    with named_as_in_python():
        run = checked_run(options)
        if options.dry_run:
            tell(*forecast(run))
            return replace(state.first_record(run), status="planned").to_dict()
    attempt = Attempt(run)
    try:
        with named_as_in_python():
            record, started = run_to_end(attempt, tell, None if shown and in_notebook() else tell)
    except JobGoesOn as goes_on:
        present = _written(run)
        if goes_on.why == "requested" and present is not None:
            tell(*str(goes_on).split("\n"))
            return present
        raise RunFailed(str(goes_on), present) from None
    except JobStopped as stopped:
        error = required(stopped.__cause__, "cause of the end")
        note_end(attempt, error)
        if was_interrupted(error):
            tell(f"interrupted: {attempt.finished_text()}, the same call computes the rest")
            raise KeyboardInterrupt from None
        raise _failure(run, error) from None
    lines = _summary(run, record, started)
    if shown:
        say(*lines)
    for line in [] if shown else lines:
        if line.startswith(_WARNING):
            warnings.warn(without_dashes(line.removeprefix(_WARNING)), stacklevel=3)
    if (problem := problem_of(record, run.options)) is not None:
        raise RunFailed(without_dashes(problem), record.to_dict())
    return record.to_dict()


def _written(run: EmbedRun) -> dict[str, Any] | None:
    record = read_record(run.output)
    return None if record is None else record.to_dict()


def _failure(run: EmbedRun, error: BaseException) -> RunFailed:
    """Not chained to the job's own error, whose traceback may hold secrets."""
    message = without_dashes(f"the job failed: {failure_message(error)}")
    failed = RunFailed(message, _written(run))
    if trace := traceback_lines(error):
        failed.add_note("\n".join(trace))
    for line in way_on(run, error):
        failed.add_note(without_dashes(line).replace("the same command", "the same call"))
    return failed
