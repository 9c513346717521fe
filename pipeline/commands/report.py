"""Writes the report of a finished output again, with texts or another map on request."""

import os
from contextlib import suppress
from functools import partial
from typing import Any

from bert_embed.nearest import Hit
from bert_embed.pipeline.arguments import ReportOptions
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.outputs.places import lies_in, record_of_run
from bert_embed.pipeline.report.directions import check_projection
from bert_embed.pipeline.report.sample import Sample
from bert_embed.pipeline.report.write import write_page
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import absolute, is_remote, open_raw
from bert_embed.transforms.output_folder import OutputFolder

_PAGE = b"<!doctype html>"  # how the files begin that a report may replace


def run_report(options: ReportOptions) -> int:
    """Runs `report DIR`."""
    check_projection(options.projection)
    path = absolute(options.folder)
    _check_place(options.output, path)
    with usage_errors():
        record = record_of_run(options.folder)
        folder = OutputFolder(path, record.files.examples)
        texts_of = partial(_texts_from_input, path) if options.texts else None
        place = options.output and absolute(options.output)
        written = write_page(folder, record, place, options.projection, texts_of)
    say(f"wrote {written}")
    return ExitCode.DONE


def _check_place(file: str | None, run: str) -> None:
    if file is None:
        return
    folder = os.path.dirname(absolute(file))
    if not is_remote(file) and not os.path.isdir(folder):
        raise UsageError(f"--output {file} cannot be written: there is no folder {folder}")
    with usage_errors(), suppress(FileNotFoundError), open_raw(absolute(file)) as page:
        if page.read(len(_PAGE)).lower() != _PAGE:
            raise UsageError(f"--output {file} is there and is no page; give another name")
    if lies_in(folder, run) and not lies_in(run, folder):
        raise UsageError(f"--output {file} lies among the files of the run; give another folder")


def _texts_from_input(folder: str, sample: Sample, record: RunRecord) -> list[str | None]:
    """The texts of a sample, read from the input of its run; None where they are not found."""
    from bert_embed.pipeline.commands.texts import texts_of_input  # imports Beam

    none: list[Any] = [None] * len(sample)
    starts, stops = sample.starts or none, sample.stops or none
    rows = zip(sample.files, sample.ids, starts, stops, strict=True)
    hits = [Hit(0.0, folder, file, 0, id, start, stop) for file, id, start, stop in rows]
    [of_sample], problem = texts_of_input([hits], record, folder)
    if problem is not None:
        warn(f"note: no texts are shown: {problem}")
    return [hit.text for hit in of_sample]
