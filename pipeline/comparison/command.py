"""Runs `compare`: prints its figures as tables or JSON, and writes them into a report."""

import json
from functools import partial
from typing import Any

from bert_embed.pipeline.commands.search import excerpt
from bert_embed.pipeline.comparison.compare import compared
from bert_embed.pipeline.comparison.result import Comparison, lines_of
from bert_embed.pipeline.console import answer, warn
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.commands import CompareOptions
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.read import output_folders
from bert_embed.storage.files import absolute
from bert_embed.transforms.output_folder import OutputFolder

_LETTERS = 200  # of a text in a report


def run_compare(options: CompareOptions) -> int:
    """Prints how two outputs differ."""
    comparison = compare_and_report(options)
    if options.json:
        answer(json.dumps(comparison.to_dict(), ensure_ascii=False))
        return ExitCode.DONE
    answer(*lines_of(comparison))
    return ExitCode.DONE


def compare_and_report(options: CompareOptions) -> Comparison:
    """Compares two outputs, and writes the report of the new one where options name a file."""
    if options.output is None:
        return compared(options)
    # These import Beam.
    from bert_embed.pipeline.commands.outputs import check_place
    from bert_embed.pipeline.report.page import write_page

    folders = [absolute(folder) for folder in output_folders(options.new)]
    for folder in [*folders, *map(absolute, output_folders(options.old))]:
        check_place(options.output, folder)
    comparison = compared(options)
    runs = [Run(OutputFolder(folder), record_of_run(folder)) for folder in folders]
    texts_of = partial(sample_texts, runs, tell=warn)
    place = write_page(runs, absolute(options.output), None, texts_of, _for_page(comparison))
    warn(f"wrote {place}")
    return comparison


def _for_page(value: Any) -> Any:
    """The figures as plain values, texts cut as a page shows them."""
    if isinstance(value, Comparison):
        return _for_page(value.to_dict())
    if isinstance(value, dict):
        return {
            name: excerpt(inner, _LETTERS)
            if name == "text" and inner is not None
            else _for_page(inner)
            for name, inner in value.items()
        }
    return [_for_page(inner) for inner in value] if isinstance(value, list | tuple) else value
