"""Makes documents of records, by their fields and types, or says why a record is none."""

import base64
import datetime
import math
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.errors import SettingError
from bert_embed.transforms.blocks import join
from bert_embed.transforms.parts import BLANK_LINE, BadRecordError, Rejected
from bert_embed.transforms.read.columns import Columns, nested_value

# Types that a column of a text format can have, by their names in --extra_columns; CSV has no
# lists.
TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
TYPES |= {f"list_{name}": pa.list_(TYPES[name]) for name in ("string", "int64", "float64", "bool")}
CAN_BE = "extra columns can be strings, numbers, booleans, dates, times, decimals and flat lists"
# Names of the output's own columns, in any kind of file and with any settings.
OWN_COLUMNS = frozenset(
    [
        *("id", "embedding", "scale", "num_tokens", "num_tokens_full", "truncated"),
        *("text_hash", "start", "stop"),
        *("window", "chunk", "tokens", "words", "features"),
    ]
)
TEXT = "text"  # the column of texts, where they are kept

UNFIT = object()  # stands for a value that its column's type cannot hold, until it is counted

# What pandas, Spark, R, MySQL, Snowflake and spreadsheets write for a value that is missing.
_NULLS = frozenset(
    [
        *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "NaT", r"\N", r"\\N"),
    ]
)
_INTEGER = re.compile(r"([+-]?[0-9]{1,20})(?:\.0*)?")  # pandas writes 2015.0 beside missing values
_EPOCH = re.compile(r"[+-]?[0-9]{9,19}")  # fewer are a day such as 20260228, or a year
# The end of a time as BigQuery, Snowflake and PostgreSQL write it: ` UTC`, ` +0100`.
_ZONE = re.compile(r" ?(?:(UTC|GMT|Z)|([+-][0-9]{2}):?([0-9]{2})?)$")
_BOOLS = dict.fromkeys(("true", "t", "yes", "y", "1", "1.0"), True)
_BOOLS |= dict.fromkeys(("false", "f", "no", "n", "0", "0.0"), False)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_EXACT = 2**53  # above, not every integer is a float
# Numbers up to these are seconds, milliseconds and microseconds since 1970, of years up to 5138.
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))


def type_called(name: str) -> str:
    """The name in `TYPES` of a type, in small letters; ValueError if there is no such type."""
    if name.lower() not in TYPES:
        raise ValueError(
            f"{name or 'an empty type'} is not available, types are {', '.join(TYPES)}"
        )
    return name.lower()


def type_name(kind: pa.DataType) -> str | None:
    """The name of a type that text formats can have, None for any other."""
    return next((name for name, available in TYPES.items() if available == kind), None)


class ExtraValues:
    """Reads extra columns, each of `TYPES`; an empty value, or one like NA, is null except text.

    What a record lacks comes from the names of its file's folders, if they have it.
    """

    def __init__(self, schema: pa.Schema, partition: Mapping[str, str | None]) -> None:
        self._columns: list[tuple[str, Callable[[Any], Any], str | None]] = []
        for column in schema:
            kind = type_name(column.type)
            if kind is None:
                raise SettingError(
                    "extra_columns", f"{column.name} is {column.type}, which text cannot give"
                )
            self._columns.append((column.name, _CONVERTERS[kind], partition.get(column.name)))

    def __call__(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of a record, None for what is missing, `UNFIT` for what does not fit."""
        return tuple(self._values(record))

    def _values(self, record: Mapping[str, Any]) -> Iterator[Any]:
        for name, convert, default in self._columns:
            yield _fitting(convert, _of_mongodb(record.get(name, default)))


def _fitting(convert: Callable[[Any], Any], value: Any) -> Any:
    if value is None or value is UNFIT:
        return value
    try:
        return convert(value)
    except (ValueError, OverflowError):
        return UNFIT


def fitting(values: Iterable[Any], kind: str) -> list[Any]:
    """Values of any types as those of a type in `TYPES`; `UNFIT` for what does not fit."""
    return [_fitting(_CONVERTERS[kind], value) for value in values]


def _string(value: Any) -> str:
    """A value as text, an object or a list as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode().strip('"')
    except orjson.JSONEncodeError as error:
        raise ValueError from error


def _integer(value: Any) -> int:
    if isinstance(value, str) and (matched := _INTEGER.fullmatch(value)):
        value = int(matched[1])
    elif isinstance(value, (str, float)):
        number = _float(value)
        if not number.is_integer() or abs(number) > _EXACT:
            raise ValueError
        value = int(number)
    if type(value) is not int or not _SMALLEST <= value <= _LARGEST:  # true and false are int, too
        raise ValueError
    return value


def _float(value: Any) -> float:
    # `1_0` is Python's own notation, unknown to other programs.
    if type(value) not in (str, int, float) or (isinstance(value, str) and "_" in value):
        raise ValueError
    return float(value)


def _bool(value: Any) -> bool:
    truth = _BOOLS.get(value.lower() if isinstance(value, str) else orjson.dumps(value).decode())
    if truth is None:
        raise ValueError
    return truth


def _moment(value: Any) -> datetime.datetime:
    """A time in the zone that it names, else UTC: of ISO 8601, or a number as pandas writes it."""
    if isinstance(value, datetime.date):
        moment = value if isinstance(value, datetime.datetime) else None
        moment = moment or datetime.datetime.combine(value, datetime.time())
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    text = value if isinstance(value, str) else str(_integer(value))
    if whole := _INTEGER.fullmatch(text):
        text = whole[1]
    if not _EPOCH.fullmatch(text):
        moment = datetime.datetime.fromisoformat(_ZONE.sub(_iso_zone, text))
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    number = _integer(text)
    scale = next((scale for most, scale in _UNITS if abs(number) <= most), 10**9)
    seconds, rest = divmod(number, scale)
    since = datetime.timedelta(seconds=seconds, microseconds=rest * 10**6 // scale)
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + since


def _iso_zone(zone: re.Match[str]) -> str:
    if zone[1]:
        return "+00:00"
    # `2024-01-02` ends like a zone of two digits and minutes
    return zone[0] if zone.string.count(":") == 0 else f"{zone[2]}:{zone[3] or '00'}"


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError
        return [None if item is None else convert(item) for item in value]

    return converted


def _or_null(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        if isinstance(value, str):
            value = value.strip()
        return None if isinstance(value, str) and value in _NULLS else convert(value)

    return converted


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "string": _string,
    "int64": _or_null(_integer),
    "float64": _or_null(_float),
    "bool": _or_null(_bool),
    "timestamp": _or_null(lambda value: _moment(value).astimezone(datetime.UTC)),
    "date": _or_null(lambda value: _moment(value).date()),
}
_CONVERTERS |= {
    name: _list_of(_CONVERTERS[name.removeprefix("list_")])
    for name in TYPES
    if name not in _CONVERTERS
}


END_OF_COPY = r"\."  # what PostgreSQL writes behind the last record of CSV
ID_TOO_LONG = "id too long"
_MOST_ID_CHARS = 4096  # as long as a path may be; all ids of a part are in memory

# Id (None where records have none of their own), text (a list of words joined by one space),
# second text and context of chunks ("" where there is none), words if the text came as a list, and
# the values of the extra columns. A plain tuple: creating named ones took a quarter of the reading
# time.
Record = tuple[str | None, str, str, str, list[str] | None, tuple[Any, ...]]


@dataclass(frozen=True)
class BadRecord:
    """A record that gives no document, why, and its id, if it has one."""

    reason: str
    record: str | bytes
    id: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Documents:
    """Documents as columns, which are those of `DocumentBlock`, and what was lost."""

    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    rejected: list[Rejected]
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    contexts: list[str] | None = None
    extra: pa.Table | None = None
    unfit: Counter[str] = field(default_factory=Counter)  # values of extra columns that are null


_NO_DOCUMENTS = Documents(pa.array([], pa.string()), [], pa.array([], pa.string()), [])


def join_documents(several: Sequence[Documents], columns: Columns) -> Documents:
    """Joins the documents of several files; one that lacks a column gets "" or nulls."""
    listed = any(documents.words is not None for documents in several)
    unfit = sum((documents.unfit for documents in several), Counter[str]())
    joined = join(
        [_completed(documents, columns, listed) for documents in (_NO_DOCUMENTS, *several)]
    )
    return replace(joined, unfit=unfit)


def _completed(documents: Documents, columns: Columns, listed: bool) -> Documents:
    """The documents with every column that the run, or the part, has."""
    count = len(documents.texts)
    missing: dict[str, Any] = {}
    if columns.text_b is not None and documents.texts_b is None:
        missing["texts_b"] = [""] * count
    if columns.context and documents.contexts is None:
        missing["contexts"] = [""] * count
    if listed and documents.words is None:
        missing["words"] = [None] * count
    if columns.extra and documents.extra is None:
        nulls = [pa.nulls(count, field.type) for field in columns.extra]
        missing["extra"] = pa.Table.from_arrays(nulls, schema=columns.extra)
    return replace(documents, **missing) if missing else documents


def record_of(fields: Mapping[str, Any], columns: Columns, extra: tuple[Any, ...] = ()) -> Record:
    """The document of a record with its extra columns' values; BadRecordError if there is none."""
    document = id_of(fields, columns.id) if columns.id else None
    several = len(columns.texts) > 1
    text = _joined(fields, columns.texts) if several else fields.get(columns.texts[0])
    words = None
    if text is None:
        raise BadRecordError("missing text")
    if not isinstance(text, str):
        words = _words(text)
        text = " ".join(words)
    if not text or text.isspace():
        raise BadRecordError(BLANK_LINE)
    text_b = _text_b_of(fields, columns.text_b) if columns.text_b else ""
    context = _context_of(fields, columns.context) if columns.context else ""
    return document, text, text_b, context, words, extra


def documents_of(
    parsed: Iterable[Record | BadRecord], places: pa.StringArray, columns: Columns
) -> tuple[Documents, np.ndarray]:
    """Documents as columns, and int64 `[documents]`, their records; `places`: `[records]`."""
    records: list[Record] = []
    good: list[int] = []
    rejected: list[Rejected] = []
    for row, outcome in enumerate(parsed):
        if not isinstance(outcome, BadRecord):
            records.append(outcome)
            good.append(row)
            continue
        place = places[row].as_py()
        blank = not outcome.record.strip() or outcome.record == END_OF_COPY
        document = outcome.id if columns.id else place
        if outcome.reason == ID_TOO_LONG:
            document = None
        rejected.append(
            Rejected(
                *(document, place, "read", outcome.reason, outcome.record, blank), outcome.detail
            )
        )
    rows = np.array(good, np.int64)
    sources = places if len(rows) == len(places) else places.take(pa.array(rows))
    ids, texts, texts_b, contexts, words, extra = (
        map(list, zip(*records, strict=True)) if records else ([],) * 6
    )
    unfit: Counter[str] = Counter()
    documents = Documents(
        ids=pa.array(ids, pa.string()) if columns.id else sources,
        texts=texts,
        sources=sources,
        rejected=rejected,
        texts_b=texts_b if columns.text_b else None,
        words=words if any(words) else None,
        contexts=contexts if columns.context else None,
        extra=_extra_table(extra, columns.extra, unfit) if columns.extra else None,
        unfit=unfit,
    )
    return documents, rows


def _extra_table(values: list[tuple[Any, ...]], schema: pa.Schema, unfit: Counter[str]) -> pa.Table:
    """The values of extra columns, null for those that do not fit, which are counted."""
    arrays = []
    by_column = zip(*values, strict=True) if values else [()] * len(schema)
    for column, described in zip(by_column, schema, strict=True):
        fitting = [None if value is UNFIT else value for value in column]
        if lost := sum(value is UNFIT for value in column):
            unfit[described.name] += lost
        arrays.append(pa.array(fitting, described.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _joined(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The strings of some fields, joined by a space; None where all are missing."""
    values = [value for name in names if (value := fields.get(name)) is not None]
    if not all(isinstance(value, str) for value in values):
        raise BadRecordError("text is not a string")
    return " ".join(value for value in values if value.strip()) if values else None


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadRecordError("text is not a string or a list of strings")
    return value


def _text_b_of(record: Mapping[str, Any], column: str) -> str:
    text = record.get(column)
    if text is not None and not isinstance(text, str):
        raise BadRecordError("second text is not a string")
    return "" if text is None or text.isspace() else text


def _context_of(record: Mapping[str, Any], names: Sequence[str]) -> str:
    values = [value for name in names if (value := record.get(name)) is not None]
    if not all(isinstance(value, str) for value in values):
        raise BadRecordError("context is not a string")
    return " ".join(stripped for value in values if (stripped := value.strip()))


_UUID = "04"  # MongoDB's subtype; of the older 03 nobody knows the order of its bytes


def _of_mongodb(value: Any) -> Any:
    """The value in MongoDB's notation of its own types: `{"$oid": "5f0e"}`."""
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        [[kind, value]] = value.items()
        if kind == "$binary" and isinstance(value, dict) and "base64" in value:
            return _binary(value)
    return value


def _binary(value: dict[str, Any]) -> Any:
    """Bytes as mongoexport writes them: a UUID as such, others in base64."""
    encoded = value["base64"]
    with suppress(ValueError, TypeError):
        if str(value.get("subType")).zfill(2) == _UUID:
            return str(uuid.UUID(bytes=base64.b64decode(encoded, validate=True)))
    return encoded


def id_of(record: Mapping[str, Any], column: str) -> str:
    """The id of a record; BadRecordError if it has none."""
    value = _of_mongodb(nested_value(record, column))
    if value is None:
        raise BadRecordError("missing id")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRecordError("id is not a string or an integer")
    if isinstance(value, str) and len(value) > _MOST_ID_CHARS:
        raise BadRecordError(ID_TOO_LONG)
    return str(value)
