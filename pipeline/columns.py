"""Columns: options and the first records in, where the fields of a record stand out."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from pipeline.options import EmbedOptions, UsageError
from transforms.block_spec import InputFile
from transforms.files import is_remote
from transforms.sources.columns import Columns
from transforms.sources.csv_records import check_names, csv_header
from transforms.sources.extra import OWN_COLUMNS, TYPES, type_name
from transforms.sources.jsonl import first_records
from transforms.sources.lines import first_lines
from transforms.sources.parquet_types import check_schema, plain_type

_FIRST_RECORDS = 100
_RECORDS = "JSON lines, CSV and Parquet"


def input_columns(options: EmbedOptions, files: list[InputFile]) -> Columns:
    """Where the fields of a record stand, judged by first records, headers and schemas.

    Raises:
        UsageError: A column is missing or of no use; the flag and the file are named.
    """
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
    formats = {file.format for file in files}
    if formats == {"tfrecord"}:
        return columns
    if formats <= {"text"}:
        _refuse_columns(options, columns)
        return columns
    if options.pair_separator and "text" not in formats:
        raise UsageError(f"--pair_separator is for plain text; --text_b_column is for {_RECORDS}")
    columns = replace(columns, extra=_extra_schema(options.extra_columns or (), files))
    found = [*_json_fields(columns, files), *_csv_fields(columns, files)]
    found += [file.footer.schema.names for file in files if file.footer is not None]
    if columns.id is None and found and all("id" in names for names in found):
        columns = replace(columns, id="id")
    for file in files:
        if file.footer is not None:
            check_schema(file.info.path, file.footer.schema, columns)
    return columns


def _refuse_columns(options: EmbedOptions, columns: Columns) -> None:
    for flag in ("text_column", "id_column", "text_b_column", "extra_columns"):
        if getattr(options, flag):
            raise UsageError(f"--{flag} is for {_RECORDS}, but the input is plain text")
    if columns.spans:
        raise UsageError(f"--granularity span reads {_RECORDS}, but the input is plain text")


def _json_fields(columns: Columns, files: list[InputFile]) -> Iterator[Iterable[str]]:
    """The fields of the first JSON record that there is."""
    json_files = [file for file in files if file.format == "jsonl"]
    for file in json_files:
        records = list(islice(first_records(first_lines(file)), _FIRST_RECORDS))
        if records:
            _check_fields(columns, records, file)
            yield records[0]
            return
    if any(file.stop for file in json_files):
        raise UsageError(
            f"--input {json_files[0].info.path} does not begin with JSON lines: one object a line "
            "is wanted (an array or an indented object is none)"
        )


def _check_fields(columns: Columns, records: list[dict[str, Any]], file: InputFile) -> None:
    extra = columns.extra or pa.schema([])
    for flag, name in columns.asked:
        # What passes through may be missing in some records.
        if not any(name in record for record in records[: None if name in extra.names else 1]):
            found = ", ".join(sorted(map(str, records[0]))) or "no field"
            raise UsageError(
                f"--{flag} {name} is not in the first record of {file.info.path}, which has {found}"
            )
    for field in extra:
        values = (record.get(field.name) for record in records)
        kinds = {_JSON_TYPES.get(type(value)) for value in values if value is not None}
        if type_name(field.type) == "string" and len(kinds) == 1 and None not in kinds - {"string"}:
            (kind,) = kinds
            if kind != "string":
                raise UsageError(
                    f"--extra_columns {field.name} is {kind} in the first records of "
                    f"{file.info.path}, write {field.name}:{kind}"
                )


_JSON_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}


def _csv_fields(columns: Columns, files: list[InputFile]) -> Iterator[Iterable[str]]:
    """The headers of CSV files: of all local ones, and of the first that is not."""
    csv_files = [file for file in files if file.format == "csv"]
    far = [file for file in csv_files if is_remote(file.info.path)]
    for file in [file for file in csv_files if not is_remote(file.info.path)] + far[:1]:
        header = csv_header(file)
        if header is not None:
            check_names(file.info.path, header, columns)
            yield header


def _extra_schema(asked: tuple[str, ...], files: list[InputFile]) -> pa.Schema | None:
    """Names and types of the columns that pass through: as written, else Parquet's, else string."""
    if not asked:
        return None
    fields: dict[str, pa.DataType] = {}
    for word in asked:
        name, kind = _name_and_type(word)
        if name.lower() in OWN_COLUMNS:
            raise UsageError(f"--extra_columns {name} clashes with the output's own column {name}")
        if name.lower() in map(str.lower, fields):
            raise UsageError(f"--extra_columns names {name} twice")
        fields[name] = _extra_type(name, kind, files)
    return pa.schema(fields.items())


def _name_and_type(word: str) -> tuple[str, str | None]:
    name, colon, kind = word.rpartition(":")
    if not colon:
        name, kind = word, ""
    if not name or (colon and kind not in TYPES):
        raise UsageError(
            f"--extra_columns must be names, or name:type with one of {', '.join(TYPES)}; "
            f"got {word!r}"
        )
    return name, kind or None


def _extra_type(name: str, asked: str | None, files: list[InputFile]) -> pa.DataType:
    """The type of one column; whether every file has it so is seen later."""
    first = next((file for file in files if file.footer is not None), None)
    if first is None or first.footer is None or name not in first.footer.schema.names:
        return TYPES[asked or "string"]
    path, stored = first.info.path, first.footer.schema.field(name).type
    kind = plain_type(stored)
    if kind is None:
        raise UsageError(
            f"--extra_columns {name} is {stored} in {path}; what passes through are strings, "
            "numbers, booleans, dates, times, decimals and flat lists"
        )
    if asked is not None and TYPES[asked] != kind:
        raise UsageError(f"--extra_columns {name}:{asked} is {kind} in {path}, write {name}")
    if type_name(kind) is None and any(file.format in ("jsonl", "csv") for file in files):
        raise UsageError(
            f"--extra_columns {name} is {kind} in {path}, which the text files beside it cannot "
            "give; embed them in runs of their own"
        )
    return kind
