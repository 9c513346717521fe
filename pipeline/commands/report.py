"""Writes the report of a finished output again, with texts or another map on request."""

import os
from contextlib import suppress
from functools import partial

from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.options.commands import TSNE, ReportOptions
from bert_embed.pipeline.report.page import write_page
from bert_embed.pipeline.report.sample import Run, check_projection, lacks_tsne
from bert_embed.pipeline.run.output import lies_in, record_of_run
from bert_embed.results.names import kinds_of
from bert_embed.results.read import open_outputs, output_folders
from bert_embed.storage.files import absolute, is_remote, open_raw
from bert_embed.transforms.output_folder import OutputFolder

_PAGE = b"<!doctype html>"  # how the files begin that a report may replace


def run_report(options: ReportOptions) -> int:
    """Runs `report DIR...`."""
    from bert_embed.pipeline.texts import sample_texts  # imports Beam

    check_projection(options.projection)
    with usage_errors():
        folders = [absolute(folder) for folder in output_folders(options.folders)]
        if options.output is None and len(folders) > 1:
            raise UsageError(f"--output FILE is missing, {len(folders)} outputs have one report")
        for folder in folders:
            check_place(options.output, folder)
        records = [record_of_run(folder) for folder in folders]
        if records[0].vectors is not None:
            open_outputs(folders, kinds_of(records[0].vectors)[0])  # refuses other vectors
        runs = [
            Run(OutputFolder(folder), record)
            for folder, record in zip(folders, records, strict=True)
        ]
        texts_of = None if options.no_texts else partial(sample_texts, runs, tell=warn)
        place = options.output and absolute(options.output)
        projection = options.projection or (None if lacks_tsne() else TSNE)
        written = write_page(runs, place, projection, texts_of)
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
    with usage_errors(), suppress(FileNotFoundError), open_raw(absolute(file)) as page:
        if page.read(len(_PAGE)).lower() != _PAGE:
            raise UsageError(f"--output {file} is there and is no page; give another name")
    if lies_in(folder, run) and not lies_in(run, folder):
        raise UsageError(f"--output {file} lies among the files of the run; give another folder")
