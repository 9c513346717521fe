"""Compares an output with the block records of its run, and repairs it."""

from collections.abc import Sequence

from bert_embed.base.errors import counted
from bert_embed.pipeline.console import HIDDEN, say, warn
from bert_embed.pipeline.embedding import checked_run, start
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import VerifyOptions
from bert_embed.pipeline.options.embed import OF_RESULT, Options
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.run.state import mark_incomplete
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import absolute
from bert_embed.transforms.bigquery.client import looks_like_table
from bert_embed.transforms.output_check import Problem, output_problems
from bert_embed.transforms.output_folder import OutputFolder, parse_name


def run_verify(options: VerifyOptions) -> int:
    """Runs `verify DIR`, with `--repair` a job too; FAILED if a file is not as its run wrote it."""
    folder, record = read_folder(options.output)
    problems = list(output_problems(folder, record))
    say(*(f"{folder.path}: {problem}" for problem in problems))
    if problems and options.repair:
        with folder.held(alone=True):  # no run is at work there
            run = prepare_repair(folder, record, problems, options)
        if (code := start(run.options)) == ExitCode.INTERRUPTED:
            return code
        folder, record = read_folder(options.output)
        problems = list(output_problems(folder, record))
        say(*(f"{folder.path}: not repaired: {problem}" for problem in problems))
    if problems:
        advice = "" if options.repair else "; --repair computes missing and damaged parts again"
        warn(f"error: {counted(len(problems), 'problem')} in {folder.path}{advice}")
        return ExitCode.FAILED
    files, size = record.written("files"), record.written("bytes")
    say(f"{folder.path}: {counted(files, 'file')}, {counted(size, 'byte')}, all as written")
    return ExitCode.DONE


def read_folder(output: str) -> tuple[OutputFolder, RunRecord]:
    """The folder of a run, and its record; InputError if it is no output, or damaged."""
    record = record_of_run(output, advice=None)
    return OutputFolder(absolute(output)), record


def prepare_repair(
    folder: OutputFolder, record: RunRecord, problems: Sequence[Problem], own: VerifyOptions
) -> EmbedRun:
    """Removes damaged and extra files if the same run can start; returns it to write them again."""
    options = _options(folder, record, own)
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
    folder.remove_files(name for name in names if name in damaged or _part(name) in parts)
    mark_incomplete(folder.path, record)
    return run


def _part(name: str) -> tuple[int, int] | None:
    parsed = parse_name(name)
    return parsed and (parsed.block, parsed.part)


def _options(folder: OutputFolder, record: RunRecord, own: VerifyOptions) -> Options:
    """The options of a run: what it computes by its record, where it runs by this command.

    Somebody else may have written run.json. So it names what is read, and nothing more: no runner
    or program, no query, no table to load or to pay for, no folder to write to.
    """
    stored = record.options
    # Not as given: a folder of runs may hold later ones now.
    earlier = tuple(run.output for run in record.input.earlier)
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
        runner=own.runner,
        beam_args=own.beam_args,
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
