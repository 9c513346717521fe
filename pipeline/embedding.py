"""Embeds, or tokenizes: checks a run, starts its job, says to people or to Python what came out."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import required
from bert_embed.pipeline import job
from bert_embed.pipeline.console import HIDDEN, answer, say, warn
from bert_embed.pipeline.errors import ExitCode, RunFailed, UsageError
from bert_embed.pipeline.job import Attempt, JobStopped, plan_of, run_to_end
from bert_embed.pipeline.options.commands import VerifyOptions
from bert_embed.pipeline.options.embed import OF_RESULT, Options
from bert_embed.pipeline.options.python_call import named_as_in_python, without_dashes
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.prepare import prepare, with_dates
from bert_embed.pipeline.run.state import first_record
from bert_embed.pipeline.run.summary import problem_of
from bert_embed.pipeline.run.tables import with_folder
from bert_embed.pipeline.runners.errors import (
    JobGoesOn,
    traceback_lines,
    was_interrupted,
)
from bert_embed.pipeline.runners.portable import server_notes
from bert_embed.results.chain import EarlierLists
from bert_embed.results.names import part_of
from bert_embed.results.run_record import RunRecord, read_record
from bert_embed.transforms.bigquery.client import looks_like_table
from bert_embed.transforms.output_check import Problem
from bert_embed.transforms.output_folder import OutputFolder


def start(options: Options) -> ExitCode:
    """Prepares a run, runs it unless it is complete, and reports what came out."""
    run = checked_run(options)
    if options.dry_run:
        answer(*forecast(run))
        return ExitCode.DONE
    return job.start(Attempt(run))


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
    attempt, live = Attempt(run), shown and in_notebook()
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
    problem = problem_of(record, run.options)
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


def _failure(attempt: Attempt, error: BaseException) -> RunFailed:
    """Not chained to the job's own error, whose traceback may hold secrets."""
    message = without_dashes(f"the job failed: {job.failure_message(error)}")
    failed = RunFailed(message, _written(attempt.run))
    if trace := traceback_lines(error):
        failed.add_note("\n".join(trace))
    for line in job.ways_on(attempt, error):
        failed.add_note(without_dashes(line).replace("the same command", "the same call"))
    return failed
