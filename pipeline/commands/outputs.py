"""Runs `verify` and `report`, which are about finished outputs."""

import os
from contextlib import suppress
from functools import partial

from bert_embed.base.errors import counted
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import TSNE, ReportOptions, VerifyOptions
from bert_embed.pipeline.report.page import write_page
from bert_embed.pipeline.report.sample import Run, check_projection, lacks_tsne
from bert_embed.pipeline.run.output import lies_in, one_output, record_of_run
from bert_embed.pipeline.run.summary import failure_lines
from bert_embed.pipeline.texts import sample_texts
from bert_embed.storage.files import absolute, is_remote, open_raw
from bert_embed.transforms.output_check import output_problems
from bert_embed.transforms.output_folder import OutputFolder

_PAGE = b"<!doctype html>"  # how the files begin that a report may replace


def run_verify(options: VerifyOptions) -> int:
    """Runs `verify DIR`, with `--repair` a job too; FAILED if a file is not as its run wrote it."""
    record = record_of_run(options.output, complete=False)
    folder = OutputFolder(absolute(options.output))
    if record.status == "running" and not options.repair:
        finished = counted(len(folder.recorded_parts()), "part")
        warn(
            f"error: {folder.path}: its run is running, or was killed; {finished} finished so far: "
            "wait for it, or run its command again, and verify it when it is done"
        )
        return ExitCode.FAILED
    problems = list(output_problems(folder, record))
    say(*(f"{folder.path}: {problem}" for problem in problems))
    if problems and options.repair:
        from bert_embed.pipeline.job import repair  # Beam, which a check alone does without

        if (code := repair(folder, record, problems, options)) == ExitCode.INTERRUPTED:
            return code
        record = record_of_run(options.output, complete=False)
        problems = list(output_problems(folder, record))
        say(*(f"{folder.path}: not repaired: {problem}" for problem in problems))
    if problems:
        advice = "" if options.repair else "; --repair computes missing and damaged parts again"
        warn(f"error: {counted(len(problems), 'problem')} in {folder.path}{advice}")
        return ExitCode.FAILED
    files, size = record.written("files"), record.written("bytes")
    say(f"{folder.path}: {counted(files, 'file')}, {counted(size, 'byte')}, all as written")
    say(*(f"{folder.path}: {line}" for line in failure_lines(folder.path, record)))
    return ExitCode.DONE


def run_report(options: ReportOptions) -> int:
    """Runs `report DIR`."""
    check_projection(options.projection)
    folder = absolute(one_output(options.folder, "a report shows one"))
    check_place(options.output, folder)
    run = Run(OutputFolder(folder), record_of_run(folder))
    texts_of = None if options.no_texts else partial(sample_texts, run, tell=warn)
    place = options.output and absolute(options.output)
    projection = options.projection or (None if lacks_tsne() else TSNE)
    written = write_page(run, place, projection, texts_of)
    say(f"wrote {written}")
    return ExitCode.DONE


def check_place(file: str | None, run: str) -> None:
    """Refuses a file for a page that lies among those of a run, or is there and is no page."""
    if file is None:
        return
    folder = os.path.dirname(absolute(file))
    if not is_remote(file) and not os.path.isdir(folder):
        raise UsageError(f"--output {file} cannot be written: there is no folder {folder}")
    if os.path.isdir(file):
        raise UsageError(f"--output {file} is a folder; give a file")
    with suppress(FileNotFoundError), open_raw(absolute(file)) as page:
        if page.read(len(_PAGE)).lower() != _PAGE:
            raise UsageError(f"--output {file} is there and is no page; give another name")
    if lies_in(folder, run) and not lies_in(run, folder):
        raise UsageError(f"--output {file} lies among the files of the run; give another folder")
