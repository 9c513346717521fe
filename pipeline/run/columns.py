"""Resolves which fields hold text, id and extra columns, from options and what files show."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, takewhile
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.threads import in_parallel
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
from bert_embed.results.columns import is_list, loaded_types
from bert_embed.results.run_record import RunRecord
from bert_embed.settings import HEADINGS, context_columns
from bert_embed.storage.files import is_remote
from bert_embed.transforms.bigquery.client import check_column
from bert_embed.transforms.listing import folder_above
from bert_embed.transforms.parts import AS_UTF8, WHOLE_FILES, InputFile
from bert_embed.transforms.read.columns import (
    ID,
    Columns,
    joined_fields,
    nested_value,
    no_column,
    partitions,
    text_fields,
    within_object,
)
from bert_embed.transforms.read.csv import check_names, csv_header
from bert_embed.transforms.read.lines import (
    Lines,
    block_lines,
    first_lines,
    first_records,
    utf8_detail,
)
from bert_embed.transforms.read.parquet import (
    REQUIRED,
    as_text,
    check_schema,
    plain_type,
    promoted,
    read_row_parts,
    type_of,
)
from bert_embed.transforms.read.reader import dialect_by
from bert_embed.transforms.read.records import (
    CAN_BE,
    OWN_COLUMNS,
    TEXT,
    TYPES,
    loaded_type,
    of_mongodb,
    type_name,
)
from bert_embed.transforms.read.streams import STRINGS, is_laid_out, of_packed
from bert_embed.transforms.read.wrapped import (
    BULK,
    is_action,
    lists_of_texts,
    path_of,
    texts_by_id,
    unwrapping,
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


# How much of a large input is looked at: records of the start of each of so many JSON files, spread
# evenly over all of them, and so many records of all files together.
_FIRST_RECORDS, _MOST_RECORDS, _MOST_LOOKED = 100, 10_000, 1000
_MOST_SEARCHED = 256 << 20  # bytes in which a field is looked for that no first record has
_MOST_SEARCHED_FOR_IDS = 16 << 20  # likewise in every run without ids


@dataclass(frozen=True)
class Fields:
    """What a file shows of its fields: first records of JSON, else a header or a schema."""

    file: InputFile
    names: tuple[str, ...]
    records: tuple[dict[str, Any], ...] = ()

    @property
    def place(self) -> str:
        """The file, as messages name it."""
        return self.file.info.path

    @property
    def is_json(self) -> bool:
        """Whether records were looked at."""
        return self.file.format == "jsonl"

    def has(self, name: str, is_extra: bool = False) -> bool:
        """Whether there is such a field, or such a field of an object, or of the file's folders."""
        return (
            name in self.names
            or (is_extra and name in partitions(self.place))
            or any(nested_value(record, name) is not None for record in self.records)
        )

    def jq(self, program: str, flag: str = "-c") -> str:
        """The command by which jq makes a file of records of this one."""
        if not first_lines(self.file).text.startswith(b"{"):  # but perhaps with an array's bracket
            program = f'if type == "array" then .[] else . end | {program}'
        command = f"jq {flag} '{program}' FILE > NEW.jsonl"
        return of_packed(command, self.file.compression)


def looked_at(files: list[InputFile], columns: Columns) -> list[Fields]:
    """The fields of CSV and Parquet files, and of JSON files spread evenly over all of them."""
    json_files = [file for file in files if file.format == "jsonl" and file.stop]
    spread = np.linspace(0, len(json_files) - 1, min(len(json_files), _MOST_LOOKED), dtype=int)
    opened = [file for file in files if file.format == "csv"]
    opened += [json_files[number] for number in spread]
    most = min(_FIRST_RECORDS, _MOST_RECORDS // max(len(spread), 1))

    def read(file: InputFile) -> Fields | None:
        if file.format == "csv":
            header = csv_header(file, dialect_by(columns))
            return None if header is None else Fields(file, header)
        lines = first_lines(file)
        if lines.text.lstrip().startswith(b"[") and not is_laid_out(file.compression):
            raise UsageError(
                f"--input {file.info.path} holds a JSON array, not a record a line; name it .json, "
                "as files of a store are read by their names"
            )
        records = tuple(islice(first_records(lines), most))
        return Fields(file, tuple(dict.fromkeys(chain.from_iterable(records))), records)

    footers = [(file, file.footer) for file in files if file.footer is not None]
    schemas = [Fields(file, tuple(footer.schema.names)) for file, footer in footers]
    return schemas + [fields for fields in in_parallel(read, opened) if fields is not None]


def refuse_wrapped(fields: Fields, columns: Columns) -> None:
    """Refuses a file whose records hold lists of texts, or of records, or describe the next one."""
    records, place = fields.records, f"--input {fields.place}"
    is_one = len(records) == 1
    if records and is_action(records[0]):
        raise UsageError(
            f"{place} has a line of Elasticsearch's bulk API before each record, which holds its "
            f"id; join the two: {fields.jq(BULK, '-cn')}"
        )
    programs = (unwrapping(record, columns.texts) for record in records)
    is_columns = is_one and unwrapping(records[0], columns.texts)  # which says more
    lists = records or _first_lists(fields, columns)
    if not is_columns and (name := lists_of_texts(lists, columns.texts)):
        key = path_of(name, fields.names)
        by_row = next(filter(None, programs), f"({key} | .[]? // .) as $one | {key} = $one")
        table = "df.explode('{}') in pandas" if name in fields.names else "unnest({}) in DuckDB"
        cure = table.format(name) if fields.file.footer else fields.jq(by_row)
        raise UsageError(
            f"{place}: {name} holds lists of texts, not of words; write a record of each, {cure}, "
            "or join them"
        )
    if not is_one and any(map(fields.has, columns.texts)):
        return  # their lists belong to the records
    found = list(takewhile(bool, programs))
    if found and len(found) == len(records):
        wrap = "one JSON object that wraps" if is_one else "JSON objects that wrap"
        cure = fields.jq(found[0] or "")
        raise UsageError(f"{place} holds {wrap} records; write one a line: {cure}")


def _first_lists(fields: Fields, columns: Columns) -> list[dict[str, Any]]:
    """The texts of the first rows of a Parquet file, if they are lists."""
    file, footer = fields.file, fields.file.footer
    kind = None if footer is None else type_of(footer.schema, columns.text)
    if kind is None or not is_list(kind) or not file.stop:
        return []
    rows = replace(file, stop=min(file.stop, _FIRST_RECORDS)).as_block()
    first = next(read_row_parts(rows, Columns(text=columns.text), _FIRST_RECORDS, 1 << 20))
    return [{columns.text: text} for text in first.contents[0].table[0].to_pylist()]


_NAME_IDS = (
    f"name the column of the ids with --id_column, or give --id_column '{NO_ID_COLUMN}' to name "
    "every document by its place"
)


def default_id(looked: Sequence[Fields], columns: Columns) -> str | None:
    """The field `id` if documents have one, None if none has; UsageError if few, or some files, do.

    Records without a text are no documents, such as a first line that describes the others.
    """
    first: dict[bool | None, str] = {}  # of the files that have it, and of those that have not
    for fields in looked:
        first.setdefault(_has_id(fields, columns), fields.place)
    if True not in first:
        if (late := _with_late_id(looked, columns)) is not None:
            raise UsageError(
                f"--input {late}: its first records have no {ID}, but later ones do; {_NAME_IDS}"
            )
        return None
    if False in first:
        raise UsageError(
            f"--input {first[False]} has no {ID}, but {first[True]} has one; embed them in two "
            f"runs, or {_NAME_IDS}"
        )
    return ID


def _has_id(fields: Fields, columns: Columns) -> bool | None:
    """Whether the documents of a file have the field `id`; None if it shows no document."""
    if not fields.is_json:
        return ID in [name.strip() for name in fields.names]
    documents = [record for record in fields.records if _has_text(record, columns)]
    count = sum(record.get(ID) is not None for record in documents)
    if 0 < 2 * count < len(documents):
        raise UsageError(
            f"--input {fields.place}: of its first {len(documents):,} records with a text "
            f"{count:,} {'has' if count == 1 else 'have'} an {ID}; {_NAME_IDS}"
        )
    return count > 0 if documents else None


def _has_text(record: Mapping[str, Any], columns: Columns) -> bool:
    return any(nested_value(record, name) is not None for name in columns.texts)


def _with_late_id(looked: Sequence[Fields], columns: Columns) -> str | None:
    """The JSON file of this machine in whose first bytes a document has an id; None if none has."""
    here = [fields for fields in looked if fields.is_json and not is_remote(fields.place)]
    for fields, lines in _first_lines(here, _MOST_SEARCHED_FOR_IDS):
        records = first_records(lines) if b'"id"' in lines.data else ()
        if any(_has_text(one, columns) and one.get(ID) is not None for one in records):
            return fields.place
    return None


def _first_lines(json_fields: Iterable[Fields], most: int) -> Iterator[tuple[Fields, Lines]]:
    """The lines of JSON files, of about so many bytes together, with the file that they are of."""
    for fields in json_fields:
        for lines in block_lines(replace(fields.file.as_block(), read_through=True), 1 << 20):
            yield fields, lines
            if (most := most - lines.size) <= 0:
                return


# Names of ids in lower case, letters and digits alone: `_id`, `ID`, `doc-id`, TREC's `docno`.
_LIKE_IDS = (
    *("id", "docid", "documentid", "docno", "corpusid", "passageid", "textid", "recordid"),
    *("pid", "uuid", "guid"),
)


def like_id(looked: Sequence[Fields]) -> str | None:
    """The field that most likely holds the ids, of those that have another name than `id`."""
    names = {name.strip() for fields in looked for name in fields.names} - {ID}
    plain = {name: "".join(filter(str.isalnum, name)).lower() for name in names}
    likely = [name for name in sorted(names) if plain[name] in _LIKE_IDS]
    return min(likely, key=lambda name: _LIKE_IDS.index(plain[name]), default=None)


def check_fields(
    looked: Sequence[Fields], files: list[InputFile], columns: Columns, typed: Collection[str]
) -> None:
    """Refuses files without a requested field, or with one whose values it cannot take.

    `typed` are the extra columns whose type is named.
    """
    json_fields = [fields for fields in looked if fields.is_json]
    if found := [fields for fields in json_fields if fields.records]:
        records = tuple(chain.from_iterable(fields.records for fields in found))
        every = replace(found[0], records=records)  # messages name the first file
        _check_names(every, json_fields, columns, typed)
        _check_values(every, json_fields, columns, typed)
    else:
        _check_is_json([file for file in files if file.format == "jsonl" and file.stop])
    for fields in looked:
        if fields.file.footer is not None:
            check_schema(fields.place, fields.file.footer.schema, columns)
        elif not fields.is_json:
            check_names(fields.place, fields.names, columns)


_FROM_PYTHON = (
    "python3 -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in "
    "sys.stdin]' < FILE > NEW.jsonl"
)


def _check_is_json(files: list[InputFile]) -> None:
    """Refuses files of JSON in which no record was found, unless they are blank."""
    for file in files:
        if start := first_lines(file).text:
            cure = f"of strings, {STRINGS} FILE > NEW.jsonl"
            if start.lstrip().startswith(b"{'"):
                cure = f"of what Python prints, {_FROM_PYTHON}"
            cure = of_packed(cure, file.compression)
            why = f"does not begin with JSON lines: each line must be one object ({cure})"
            if utf8_detail(start) is not None:
                why = f"is not UTF-8: {AS_UTF8}"
            raise UsageError(f"--input {file.info.path} {why}")


def _check_names(
    every: Fields, json_fields: list[Fields], columns: Columns, typed: Collection[str]
) -> None:
    """Refuses JSON without a requested field; `every` has the records of all files."""
    records = every.records
    for flag, name in columns.requested:
        is_extra, where = flag == "extra_columns", _no_object(name, records)
        if any(fields.has(name, is_extra) for fields in json_fields):
            continue
        may_lack = flag != "id_column" and name != columns.text and not where
        if may_lack and (name in typed or _is_in_files(name, json_fields)):
            continue
        names = {name for fields in json_fields for name in fields.names}
        objects = [pair for one in records for pair in one.items() if isinstance(pair[1], dict)]
        names |= {f"{name}.{inner}" for name, value in objects for inner in value}
        may_be_texts = flag == "text_column" and len(records) == 1
        program = texts_by_id(records[0], name) if may_be_texts else None
        cure = f"if it holds texts by their ids: {every.jq(program)}" if program else ""
        place = f"not in the first records of {every.place}{where}"
        raise no_column(flag, name, place, sorted(names), cure)


def _no_object(name: str, records: Sequence[dict[str, Any]]) -> str:
    """What a name with dots goes through that is no object, such as a list; "" if nothing is."""
    for before in accumulate(name.split(".")[:-1], "{}.{}".format):
        values = (nested_value(record, before) for record in records)
        kinds = {type(value) for value in values if value is not None}
        if kinds and dict not in kinds:
            return f", where {before} is no object"
    return ""


def _is_in_files(name: str, json_fields: Sequence[Fields]) -> bool:
    """Whether a field stands somewhere in the files' first bytes: Spark leaves out what is null."""
    last = name.rpartition(".")[2]
    keys = {json.dumps(last).encode(), orjson.dumps(last)}
    every = _first_lines(json_fields, _MOST_SEARCHED)
    return any(key in lines.data for _, lines in every for key in keys)


# The types of JSON that a text or an id can have; a text of several fields is no list.
_CAN_HOLD = {
    "text_column": ("string", "list_string"),
    "text_b_column": ("string",),
    "chunk_context": ("string",),
    "id_column": ("string", "int64"),
}


def _check_values(
    every: Fields, json_fields: list[Fields], columns: Columns, typed: Collection[str]
) -> None:
    """Refuses JSON whose values a requested field cannot take, or an extra one only by its type."""
    _check_types(every, columns)
    for fields in json_fields:  # of which none may be lost
        if len(fields.records) > 1:
            _check_types(fields, columns)
    for field in columns.extra or ():
        if field.name in typed or type_name(field.type) != "string":
            continue
        values = _given(nested_value(record, field.name) for record in every.records)
        kinds = {*map(_json_type, values)}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind not in ("string", None):
            raise UsageError(
                f"--extra_columns {field.name} is {kind} in the first records of {every.place}; "
                f"write {field.name}:{kind}, or {field.name}:string for the text that stands there"
            )


def _check_types(fields: Fields, columns: Columns) -> None:
    """Refuses JSON whose records have no value in a field that a text or an id can have."""
    for flag, name in columns.requested:
        values = _given(of_mongodb(nested_value(record, name)) for record in fields.records)
        kinds = list(map(_json_type, values))
        if not values or flag == "extra_columns" or {*kinds} & {*_CAN_HOLD[flag]}:
            continue
        kind, cure = kinds[0] or "a list of no strings", ""
        if isinstance(values[0], dict):
            kind, cure = "an object", within_object(name, values[0])
        elif kinds[0] is None:
            cure = f"; write one a line: {fields.jq(f'{path_of(name, fields.records[0])}[]')}"
        cure += f"; {_NAME_IDS}" if flag == "id_column" else ""
        raise UsageError(
            f"--{flag} {name} is {kind} in the first records of {fields.place}; "
            f"{REQUIRED[flag]}{cure}"
        )


def _given(values: Iterable[Any]) -> list[Any]:
    """Those that are not empty."""
    return [value for value in values if value not in (None, [])]


def _json_type(value: Any) -> str | None:
    """The name of the type of a value of JSON, None for one that no column can have."""
    if not isinstance(value, list):
        return _JSON_TYPES.get(type(value))
    kinds = {_JSON_TYPES.get(type(item)) for item in value}
    return f"list_{kinds.pop()}" if len(kinds) == 1 and None not in kinds else None


_JSON_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}
