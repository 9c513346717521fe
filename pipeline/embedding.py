"""Embeds, or tokenizes: checks a run, starts its job, says to people or to Python what came out."""

import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import apache_beam as beam

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import InputError, counted, required
from bert_embed.pipeline import job
from bert_embed.pipeline.console import HIDDEN, answer, hide_in_flags, say, warn
from bert_embed.pipeline.errors import ExitCode, RunFailed, UsageError
from bert_embed.pipeline.job import Attempt, JobStopped, Tell, TellProgress, run_to_end
from bert_embed.pipeline.options.command_line import command_of
from bert_embed.pipeline.options.commands import VerifyOptions
from bert_embed.pipeline.options.embed import DEFAULTS, OF_RESULT, Options
from bert_embed.pipeline.options.python_call import named_as_in_python, without_dashes
from bert_embed.pipeline.progress import Counts, clock, progress_of_run, shown_progress
from bert_embed.pipeline.report.page import page_of, report_after_run
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import build
from bert_embed.pipeline.run.plan import EmbedRun, plan_lines
from bert_embed.pipeline.run.prepare import prepare, with_dates
from bert_embed.pipeline.run.state import first_record
from bert_embed.pipeline.run.summary import (
    failure_lines,
    load_lines,
    problem_of,
    statements,
    summary_lines,
)
from bert_embed.pipeline.run.tables import with_folder
from bert_embed.pipeline.runners.dataflow import worker_lines
from bert_embed.pipeline.runners.errors import (
    JobGoesOn,
    is_input_error,
    root_message,
    traceback_lines,
    was_interrupted,
)
from bert_embed.pipeline.runners.launch import bundle_for_workers, precision_lines, report_lines
from bert_embed.pipeline.runners.portable import earlier_job_lines, server_notes
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.chain import EarlierLists
from bert_embed.results.files import EXAMPLES
from bert_embed.results.names import part_of
from bert_embed.results.run_record import RunRecord, parse_record, read_record
from bert_embed.storage.local import PUT_BACK
from bert_embed.transforms.bigquery.client import looks_like_table
from bert_embed.transforms.output_check import Problem
from bert_embed.transforms.output_folder import OutputFolder

_LONG_REPORT = 5.0  # seconds


class EmbedAttempt(Attempt[RunRecord]):
    """What `embed` or `tokenize` does for an output."""

    kept = "finished blocks are kept"

    def __init__(self, run: EmbedRun) -> None:
        self.run, self.command, self.runner = run, run.options.command, run.job
        self.output, self.fingerprint = run.output, run.fingerprint
        self.model = run.work.bundle.fingerprint[:32]
        self._counts = Counts(run.output, run.fingerprint, run.goal, time.time())

    def plan(self) -> list[str]:
        return [*plan_of(self.run), *earlier_job_lines(self.run.state.record)]

    def claimed(self) -> AbstractContextManager[RunRecord]:
        return state.claimed(self.run)

    def build(self, record: RunRecord) -> Callable[[beam.Pipeline], None]:
        run = self.run
        warn(*state.overlap_lines(run))
        if why := run.work.key_sources[1]:  # which is not asked for if nothing is to do
            outputs = counted(len(run.work.earlier), "earlier output")
            warn(f"note: {why}, so the ids of {outputs} are read from each")
        bundle = bundle_for_workers(run.work.bundle, run.options.model, self.runner)
        return partial(build, run=run, record=record, place=bundle.path)

    def progress(self, tell: TellProgress) -> AbstractContextManager[None]:
        self._counts.began = time.time()
        return progress_of_run(self._counts, tell)

    def parse(self, data: bytes) -> RunRecord:
        return parse_record(data, self.run.folder.record)

    def ended(self, record: RunRecord, started: bool, tell: Tell, progress: TellProgress) -> None:
        """Writes the report."""
        if not self.run.options.report or self.run.kind != "vectors":
            return
        reported = Run(self.run.folder, record)
        texts_of = partial(sample_texts, [reported]) if self.run.options.report_texts else None
        began = time.monotonic()

        def last(is_whole: bool) -> str:
            verb = "took" if is_whole else "stopped after"
            return f"the report {verb} {clock(time.monotonic() - began)}"

        asked = record.options.get("report_texts", DEFAULTS["report_texts"])
        is_other = asked != self.run.options.report_texts  # than the one that may be there
        with shown_progress(self.output, lambda _: "writing the report", progress, last):
            report_after_run(reported, started or is_other, tell, texts_of)
        if (seconds := time.monotonic() - began) > _LONG_REPORT:
            tell(f"the report took {seconds:.1f} s more")

    def how_to_continue(self) -> list[str]:
        how = (
            "continue with"
            if not self.runner.runs_here
            else (f"{self.finished_text()}, the same command computes the rest")
        )
        return [f"{how}:", f"  {shlex.join(hide_in_flags(command_of(self.run.options)))}"]

    def way_on(self, error: BaseException) -> str:
        """As for every job, but a file of the input that is replaced makes it another run."""
        files, message = self.run.source.files, root_message(error)
        is_damaged = is_input_error(error) and PUT_BACK not in message
        if not is_damaged or not message.startswith(tuple(file.info.path for file in files)):
            return super().way_on(error)
        new = "" if self.run.kind == EXAMPLES else ", with --skip_existing for this one"
        return f"embed the corrected input into another --output{new}, or with --overwrite"

    def finished_text(self) -> str:
        """How much is finished; only what is new since the progress was read is read."""
        with suppress(OSError, InputError):
            self._counts.look()
            progress = self._counts.progress(None)
            finished, documents = progress.documents, progress.documents_estimated
            return (
                f"{finished:,} of about {counted(documents, 'document')} "
                f"{'is' if finished == 1 else 'are'} finished and kept"
            )
        return "finished documents are kept"

    def summary(self, record: RunRecord, started: bool) -> list[str]:
        since = f"{self.output} holds this run, complete since {record.ended}"
        lines = [] if started else [f"nothing to do: {since}"]
        lines += summary_lines(self.output, record, page_of(self.run.folder))
        lines += [] if self.run.source.expired else failure_lines(self.output, record)
        if record.table and record.status == "done":
            lines += [*load_lines(record, started), *statements(self.output, record)]
        return lines

    def problem(self, record: RunRecord) -> str | None:
        return problem_of(record, self.run.options)


def start(options: Options) -> ExitCode:
    """Prepares a run, runs it unless it is complete, and reports what came out."""
    run = checked_run(options)
    if options.dry_run:
        answer(*forecast(run))
        return ExitCode.DONE
    return job.start(EmbedAttempt(run))


def checked_run(options: Options) -> EmbedRun:
    """Returns the run that options ask for; InputError and StorageError as `start` raises them."""
    return prepare(with_folder(with_dates(options)))


def repair(
    folder: OutputFolder, record: RunRecord, problems: Sequence[Problem], command: VerifyOptions
) -> ExitCode:
    """Removes what is damaged or no file of its run, and runs it again if it is the same still."""
    with folder.held(alone=True):  # no run is at work there
        run = _with_room(folder, record, problems, _options_of_repair(folder, record, command))
    return start(run.options)


def _with_room(
    folder: OutputFolder, record: RunRecord, problems: Sequence[Problem], options: Options
) -> EmbedRun:
    warn(
        f"repairing {folder.path} with {options.runner}; as its run.json says, this reads "
        f"{', '.join((*options.input, *options.skip_existing))} and the model {options.model}"
    )
    run = checked_run(options)
    if run.fingerprint != record.run:
        raise UsageError(
            f"{folder.path} cannot be repaired: its input, model or program has changed since it "
            "was written; embed into a new folder"
        )
    parts = {problem.part for problem in problems if problem.part is not None}
    names = folder.data_files()
    damaged = {problem.name for problem in problems}
    folder.remove_block_records(sorted(parts))
    folder.remove_files(name for name in names if name in damaged or part_of(name) in parts)
    state.mark_incomplete(folder.path, record)
    return run


def _options_of_repair(folder: OutputFolder, record: RunRecord, command: VerifyOptions) -> Options:
    """The options of a run: what it computes by its record, where it runs by this command.

    Somebody else may have written run.json. So it names what is read, and nothing more: no runner
    or program, no query, no table to load or to pay for, no folder to write to.
    """
    stored = record.options
    # Not as given: a folder of runs may hold later ones now.
    earlier = tuple(run.output for run in EarlierLists().of(folder.path, record))
    read = {name: stored[name] for name in ("input", "model") if name in stored}
    if HIDDEN in str((read, {name: stored[name] for name in OF_RESULT if name in stored})):
        raise _needs_its_command(folder, "holds no secrets")
    tables = record.table, stored.get("query"), stored.get("output_table")
    if any(table is not None for table in tables) or any(map(looks_like_table, earlier)):
        raise _needs_its_command(folder, "names BigQuery, which only a command may")
    options = Options.from_record(
        stored,
        **read,
        output=folder.path,
        skip_existing=earlier,
        runner=command.runner,
        beam_args=command.beam_args,
    )
    if options.reads_table:
        raise _needs_its_command(folder, "names BigQuery, which only a command may")
    options.require("input")
    return options


def _needs_its_command(folder: OutputFolder, why: str) -> UsageError:
    return UsageError(
        f"{folder.path} cannot be repaired without its command: run.json {why}; remove the listed "
        "files and run the command again"
    )


def plan_of(run: EmbedRun) -> list[str]:
    """The lines of a run's plan."""
    return [
        *plan_lines(run),
        *state.again_lines(run),
        *worker_lines(run.job),
        *precision_lines(run.job),
        *report_lines(run.options.report, run.options.output_format),
    ]


def forecast(run: EmbedRun) -> list[str]:
    """The lines of a dry run: the plan, and what would be found in the output and the cluster."""
    return [*plan_of(run), *state.forecast(run), *server_notes(run.job)]


_WARNING = "warning: "  # how such lines of a summary begin


def run_for_caller(options: Options, shown: bool) -> dict[str, Any]:
    """Does what `bert_embed.embed` documents; `shown` says whether people read along."""
    with named_as_in_python():
        run = checked_run(options)
        lines = forecast(run) if options.dry_run else []
    if options.dry_run:
        _tell(shown, *lines)
        return replace(first_record(run), status="planned").to_dict()
    return _run_for_caller(run, shown)


def _run_for_caller(run: EmbedRun, shown: bool) -> dict[str, Any]:
    attempt, live = EmbedAttempt(run), shown and in_notebook()
    tell = partial(_tell, shown)
    try:
        with named_as_in_python():
            record, started = run_to_end(attempt, tell, None if live else tell)
    except JobGoesOn as goes_on:
        present = _written(run)
        if goes_on.why == "requested" and present is not None:
            _tell(shown, *str(goes_on).split("\n"))
            return present
        raise RunFailed(str(goes_on), present) from None
    except JobStopped as stopped:
        error = required(stopped.__cause__, "cause of the end")
        job.note_end(attempt, error)
        if was_interrupted(error):
            _tell(shown, f"interrupted: {attempt.finished_text()}, the same call computes the rest")
            raise KeyboardInterrupt from None
        raise _failure(attempt, error) from None
    lines = attempt.summary(record, started)
    if shown:
        say(*lines)
    for line in [] if shown else lines:
        if line.startswith(_WARNING):
            warnings.warn(without_dashes(line.removeprefix(_WARNING)), stacklevel=4)
    problem = attempt.problem(record)
    if problem is not None:
        raise RunFailed(without_dashes(problem), record.to_dict())
    return record.to_dict()


def _written(run: EmbedRun) -> dict[str, Any] | None:
    """What `run.json` says now, None if it says nothing."""
    record = read_record(run.output)
    return None if record is None else record.to_dict()


def _tell(shown: bool, *lines: str) -> None:
    if shown:
        warn(*lines)


def _failure(attempt: EmbedAttempt, error: BaseException) -> RunFailed:
    """Not chained to the job's own error, whose traceback may hold secrets."""
    message = without_dashes(f"the job failed: {job.failure_message(error)}")
    failed = RunFailed(message, _written(attempt.run))
    if trace := traceback_lines(error):
        failed.add_note("\n".join(trace))
    for line in job.ways_on(attempt, error):
        failed.add_note(without_dashes(line).replace("the same command", "the same call"))
    return failed
