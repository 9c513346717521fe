"""Resolves which fields hold text, id and extra columns, from options and what files show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bert_embed.models.heads.kinds import KINDS
from bert_embed.models.heads.scores import LABEL
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import (
    DEFAULTS,
    NO_ID_COLUMN,
    OF_CSV,
    RELATIVE_PLACES,
    Options,
)
from bert_embed.pipeline.run.fields import (
    check_fields,
    default_id,
    like_id,
    looked_at,
    refuse_wrapped,
)
from bert_embed.results.columns import is_list, loaded_types
from bert_embed.results.run_record import RunRecord
from bert_embed.settings import HEADINGS, context_columns
from bert_embed.transforms.bigquery.client import check_column
from bert_embed.transforms.listing import folder_above
from bert_embed.transforms.parts import WHOLE_FILES, InputFile
from bert_embed.transforms.read.columns import Columns, joined_fields, text_fields
from bert_embed.transforms.read.parquet import as_text, plain_type, promoted, type_of
from bert_embed.transforms.read.records import (
    CAN_BE,
    OWN_COLUMNS,
    TEXT,
    TYPES,
    loaded_type,
    type_name,
)

_RECORDS = "JSON lines, CSV and Parquet"


def named_columns(options: Options) -> Columns:
    """The columns as the options name them."""
    text = options.text_column or "text"
    if "," in text:
        names = [name.strip() for name in text_fields(text)]
        if len(names) > 1 and (not all(names) or len(set(names)) < len(names)):
            raise UsageError(
                f"--text_column must be one column, or several different ones with commas between "
                f"them, got {text!r}"
            )
        text = joined_fields(names)
    return Columns(
        text=text,
        id=None if options.id_column in (NO_ID_COLUMN, RELATIVE_PLACES) else options.id_column,
        text_b=options.text_b_column,
        **{name: getattr(options, name) for name in OF_CSV},
        context=context_columns(options.chunk_context or ()),
        loads=options.loads_table,
    )


def recorded_columns(record: RunRecord, files: Sequence[InputFile]) -> Columns:
    """The columns of a run, as `input_columns` found them; the extra ones apart."""
    source, options = record.input, DEFAULTS | record.options
    is_relative = options["id_column"] == RELATIVE_PLACES
    of_csv = {name: options[name] for name in OF_CSV}
    return Columns(
        text=source.text_column,
        id=source.id_column,
        base=folder_above(source.patterns, files) if is_relative else "",
        text_b=source.text_b_column,
        **of_csv | {"csv_header": of_csv["csv_header"] and tuple(of_csv["csv_header"])},
        context=context_columns(options["chunk_context"] or ()),
    )


def input_columns(options: Options, files: list[InputFile]) -> tuple[Columns, str | None]:
    """Which fields hold text, id and extra columns, by first records, headers and schemas.

    With them the name of a field that may hold the ids of documents that are named by places.
    """
    columns = named_columns(options)
    if options.id_column == RELATIVE_PLACES:
        columns = replace(columns, base=folder_above(options.input, files))
    formats = {file.format for file in files}
    for flag in OF_CSV if "csv" not in formats else ():
        if getattr(options, flag) != DEFAULTS[flag]:
            raise UsageError(f"--{flag} is for CSV, and --input names none")
    if formats == {"tfrecord"}:
        return columns, None
    if formats <= {"text", WHOLE_FILES}:
        _refuse_columns(options, columns)
        return columns, None
    words, looked = options.extra_columns or (), looked_at(files, columns)
    extra = _extra_schema(words, files, options.keep_text)
    typed = [] if extra is None else [name for name in extra.names if name not in words]
    if extra is not None and columns.loads:
        extra = pa.schema([field.with_type(loaded_type(field.type)) for field in extra])
    columns = replace(columns, extra=extra)
    for fields in looked:
        refuse_wrapped(fields, columns)
    likely = None
    if options.id_column is None:
        found = default_id(looked, columns)
        columns = replace(columns, id=found, no_ids=found is None)
        likely = like_id(looked) if found is None else None
    check_fields(looked, files, columns, typed)
    return replace(columns, id_type=_id_type(columns, files)), likely


def _id_type(columns: Columns, files: list[InputFile]) -> str:
    """The integer type of the ids in all files, else `string`: JSON and CSV declare none."""
    if columns.id is None or not all(file.footer is not None for file in files):
        return "string"
    found = {type_of(file.footer.schema, columns.id) for file in files if file.footer is not None}
    kinds = {plain_type(kind) for kind in found if kind is not None and not pa.types.is_null(kind)}
    integers = {kind for kind in kinds if kind is not None and pa.types.is_integer(kind)}
    kind = promoted(integers) if integers and integers == kinds else None
    return str(kind) if kind is not None and pa.types.is_integer(kind) else "string"


def _refuse_columns(options: Options, columns: Columns) -> None:
    for flag in ("text_column", "id_column", "text_b_column", "extra_columns"):
        if getattr(options, flag) not in (None, "", RELATIVE_PLACES):
            raise UsageError(f"--{flag} is for {_RECORDS}, but the input is plain text")
    for column in columns.context:
        raise UsageError(
            f"--chunk_context {column} is a column of {_RECORDS}, but the input is plain text; "
            f"{HEADINGS} are those of Markdown"
        )


def check_extra_name(name: str, keep_text: bool) -> None:
    """Refuses an extra column with the name of a column that the output has anyway."""
    if name.lower() in OWN_COLUMNS or (keep_text and name.lower() == TEXT):
        raise UsageError(f"--extra_columns {name} clashes with the output's own column {name}")


def check_columns(
    heads: Mapping[str, Mapping[str, Any]], extra: pa.Schema | None, options: Options
) -> None:
    """Refuses columns of heads that clash with others, or that a BigQuery table cannot have."""
    for kind, head in heads.items():
        of_head: list[str] = []
        start, of_model = f"--vectors {kind}: the label", f"of --model {options.model}"
        for label in head.get("labels", ()):
            if options.loads_table:
                check_column(label, "vectors")
            if not label or label.lower() in of_head:
                raise UsageError(f"{start} {label!r} {of_model} is not unique")
            of_head.append(label.lower())
            if label.lower() in (*OWN_COLUMNS, LABEL, *[TEXT] * options.keep_text):
                clash = f"clashes with the output's own column {label.lower()}"
                raise UsageError(f"{start} {label} {of_model} {clash}")
        settings, made = {"heads": heads}, KINDS[kind]
        of_head += map(str.lower, (*made.names(settings), *loaded_types(made, settings)))
        for name in () if extra is None else extra.names:
            if name.lower() in of_head:
                clash = f"clashes with a column of --vectors {kind}"
                raise UsageError(f"--extra_columns {name} {clash}")


def _extra_schema(
    words: tuple[str, ...], files: list[InputFile], keep_text: bool
) -> pa.Schema | None:
    """Names and types of the extra columns: the given type, else Parquet's, else string."""
    if not words:
        return None
    fields: dict[str, pa.DataType] = {}
    for word in words:
        name, kind = _name_and_type(word)
        check_extra_name(name, keep_text)
        if name.lower() in map(str.lower, fields):
            raise UsageError(f"--extra_columns names {name} twice")
        fields[name] = _extra_type(name, kind, files)
    return pa.schema(fields.items())


def _name_and_type(word: str) -> tuple[str, str | None]:
    name, colon, kind = word.rpartition(":")
    name = name or word * (not colon)
    if not name:
        raise UsageError(
            f"--extra_columns must be names, or name:type with one of {', '.join(TYPES)}; "
            f"got {word!r}"
        )
    if colon and kind.lower() not in TYPES:
        said = f"{kind or 'an empty type'} is not available, types are {', '.join(TYPES)}"
        raise UsageError(f"--extra_columns {word}: {said}")
    return name, kind.lower() if colon else None


def _extra_type(name: str, requested: str | None, files: list[InputFile]) -> pa.DataType:
    formats = {file.format for file in files}
    stored: dict[pa.DataType, str] = {}  # in Parquet files, each with the first that has it
    for file in files:
        kind = None if file.footer is None else type_of(file.footer.schema, name)
        if kind is not None and not pa.types.is_null(kind):
            stored.setdefault(kind, file.info.path)
    place = ""
    if requested is not None or not stored:
        kind = TYPES[requested or "string"]
    else:  # one that holds the values of all files
        kind = _held_type(name, stored)
        place = f" in {next(iter(stored.values()))}"
    said = f"--extra_columns {name} is {kind}{place}, which"
    if place and type_name(kind) is None and formats & {"jsonl", "csv"}:
        cure = f"write {name}:TYPE with one of {', '.join(TYPES)}"
        raise UsageError(f"{said} JSON lines and CSV files cannot hold; {cure}")
    if is_list(kind) and "csv" in formats:
        raise UsageError(f"{said} CSV files cannot hold; embed them in separate runs")
    return kind


def _held_type(name: str, stored: Mapping[pa.DataType, str]) -> pa.DataType:
    plain = {kind: plain_type(kind) for kind in stored}
    for kind, place in stored.items():
        if plain[kind] is None:
            cure = f"; {name}:string makes JSON of it" if pa.types.is_nested(kind) else ""
            cure = cure or as_text(name, kind)
            raise UsageError(f"--extra_columns {name} is {kind} in {place}; {CAN_BE}{cure}")
    held = promoted(kind for kind in plain.values() if kind is not None)
    if held is None:
        places = " and ".join(f"{kind} in {place}" for kind, place in [*stored.items()][:2])
        raise UsageError(
            f"--extra_columns {name} is {places}, which no type holds without loss; write "
            f"{name}:TYPE with one of {', '.join(TYPES)}"
        )
    return pa.list_(pa.string()) if held == pa.list_(pa.null()) else held
