"""Columns: options and the first records in, where the fields of a record stand out."""

from dataclasses import replace
from typing import Any

from pipeline.options import EmbedOptions, UsageError
from transforms.block_spec import InputFile
from transforms.sources.jsonl import Columns, first_record
from transforms.sources.lines import first_lines


def input_columns(options: EmbedOptions, files: list[InputFile]) -> Columns:
    """Where the fields of a record stand, judged by the first JSON record."""
    json_files = [file for file in files if file.format == "jsonl"]
    spans = None
    if "span" in options.granularity:
        spans = options.span_columns or ("start", "stop")
    columns = Columns(
        text=options.text_column or "text",
        id=options.id_column,
        text_b=options.text_b_column,
        spans=spans and (spans[0], spans[1]),
        pair_separator=options.pair_separator,
    )
    if files and all(file.format == "tfrecord" for file in files):
        return columns
    if not json_files:
        for flag in ("text_column", "id_column", "text_b_column"):
            if getattr(options, flag):
                raise UsageError(f"--{flag} is for JSON lines, but the input is plain text")
        if spans:
            raise UsageError("--granularity span reads JSON lines, but the input is plain text")
        return columns
    if options.pair_separator and len(json_files) == len(files):
        raise UsageError("--pair_separator is for plain text; --text_b_column is for JSON lines")
    for file in json_files:
        record = first_record(first_lines(file))
        if record is not None:
            _check_fields(columns, record, file)
            return replace(columns, id=columns.id or ("id" if "id" in record else None))
    if any(file.stop for file in json_files):
        raise UsageError(
            f"--input {json_files[0].info.path} does not begin with JSON lines: one object a line "
            "is wanted (an array or an indented object is none)"
        )
    return columns


def _check_fields(columns: Columns, record: dict[str, Any], file: InputFile) -> None:
    wanted = [("text_column", columns.text), ("id_column", columns.id)]
    wanted += [("text_b_column", columns.text_b)]
    wanted += [("span_columns", name) for name in columns.spans or ()]
    for flag, name in wanted:
        if name is not None and name not in record:
            found = ", ".join(sorted(map(str, record))) or "no field"
            raise UsageError(
                f"--{flag} {name} is not in the first record of {file.info.path}, which has {found}"
            )
