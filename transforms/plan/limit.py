"""Limits the files of a trial run to its first records."""

from collections.abc import Sequence
from dataclasses import replace

from bert_embed.transforms.examples.read import limit_examples
from bert_embed.transforms.read.lines import limit_lines
from bert_embed.transforms.read.tables.csv_records import limit_records
from bert_embed.transforms.records.spec import WHOLE_FILES, InputFile


def limit_files(files: Sequence[InputFile], limit: int) -> list[InputFile]:
    """The files with the first `limit` records, in the listing's order."""
    kept = []
    left = limit
    for file in files:
        if left <= 0:
            break
        cut, found = _limited(file, left)
        kept.append(cut)
        left -= found
    return kept


def _limited(file: InputFile, limit: int) -> tuple[InputFile, int]:
    if file.format == WHOLE_FILES:
        return file, 1
    if file.format == "csv":
        return limit_records(file, limit)
    if file.format == "parquet":
        rows = min(file.stop, limit)
        return replace(file, stop=rows), rows
    if file.format == "tfrecord":
        return limit_examples(file, limit)
    return limit_lines(file, limit)
