"""Makes documents of records, by their fields and types, or says why a record is none."""

import base64
import datetime
import math
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.base.arrays import splits_of, sums_of
from bert_embed.transforms.blocks import join
from bert_embed.transforms.parts import BLANK_LINE, BadRecordError, Rejected
from bert_embed.transforms.read.columns import ID, Columns, nested_value, partitions

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
# The end of a time as BigQuery and Snowflake write it: ` UTC`, ` +0100`.
_UTC, _BEFORE_ZONE = re.compile(" ?(UTC|GMT|Z)$"), re.compile(r" (?=[+-]\d)")
_BOOLS = dict.fromkeys(("true", "t", "yes", "y", "1", "1.0"), True)
_BOOLS |= dict.fromkeys(("false", "f", "no", "n", "0", "0.0"), False)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_EXACT = 2**53  # above, not every integer is a float
# Numbers up to these are seconds, milliseconds and microseconds since 1970, of years up to 5138.
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))


def type_name(kind: pa.DataType) -> str | None:
    """The name of a type that text formats can have, None for any other."""
    return next((name for name, available in TYPES.items() if available == kind), None)


ExtraReader = Callable[[Mapping[str, Any]], tuple[Any, ...]]


def extra_reader(columns: Columns, path: str) -> ExtraReader:
    """Reads the extra columns of a file's records: None for what is missing, else perhaps `UNFIT`.

    Each is of `TYPES`; an empty value, or one like NA, is null except text. What a record lacks
    comes from the names of its file's folders, if they have it.
    """
    folders = partitions(path)
    wanted = [
        (column.name, _CONVERTERS[type_name(column.type) or ""], folders.get(column.name))
        for column in columns.extra or ()
    ]

    def values(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            _fitting(convert, of_mongodb(record.get(name, default)))
            for name, convert, default in wanted
        )

    return values if wanted else lambda _: ()


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
        return (
            orjson.dumps(value, default=shown, option=orjson.OPT_NON_STR_KEYS).decode().strip('"')
        )
    except orjson.JSONEncodeError as error:
        raise ValueError from error


def shown(value: Any) -> str:
    """A value that JSON does not have, as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


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
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    if (truth := _BOOLS.get(text.lower())) is None:
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
        moment = datetime.datetime.fromisoformat(_UTC.sub("Z", _BEFORE_ZONE.sub("", text)))
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    number = _integer(text)
    scale = next((scale for most, scale in _UNITS if abs(number) <= most), 10**9)
    seconds, rest = divmod(number, scale)
    since = datetime.timedelta(seconds=seconds, microseconds=rest * 10**6 // scale)
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + since


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError
        items = map(of_mongodb, value)
        return [None if item is None else convert(item) for item in items]

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


_OF_EMPTY_ROWS = ' \t\r\n,;|\x01"'  # as Excel writes them behind its last record
END_OF_COPY = r"\."  # what PostgreSQL writes behind the last record of CSV
ID_TOO_LONG, MISSING_ID = "id too long", "missing id"
_MOST_ID_CHARS = 4096  # as long as a path may be; all ids of a part are in memory

# Id (None where records have none of their own), text (a list of words joined by one space),
# second text and context of chunks ("" where there is none), words if the text came as a list, and
# the values of the extra columns. A plain tuple: creating named ones took a quarter of the reading
# time.
Record = tuple[str | None, str, str, str, list[str] | None, tuple[Any, ...]]


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
    # Values of extra columns that are null, and ids that are not used
    unfit: Counter[str] = field(default_factory=Counter)


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
    empty: dict[str, Any] = {"texts_b": [""] * count} if columns.text_b is not None else {}
    empty |= {"contexts": [""] * count} if columns.context else {}
    empty |= {"words": [None] * count} if listed else {}
    if columns.extra:
        nulls = [pa.nulls(count, field.type) for field in columns.extra]
        empty["extra"] = pa.Table.from_arrays(nulls, schema=columns.extra)
    missing = {name: none for name, none in empty.items() if getattr(documents, name) is None}
    return replace(documents, **missing)


def record_of(fields: Mapping[str, Any], columns: Columns, extra: tuple[Any, ...] = ()) -> Record:
    """The document of a record with its extra columns' values; BadRecordError if there is none."""
    document = None
    if columns.id:
        document = id_of(fields, columns.id)
    elif columns.no_ids:  # for `documents_of` to count
        document = fields.get(ID)
    words = None
    if len(columns.texts) > 1:
        values = _strings(fields, columns.texts, "text")
        text = " ".join(value for value in values if value.strip()) if values else None
    else:
        text = fields.get(columns.texts[0])
    if text is None:
        raise BadRecordError("missing text")
    if not isinstance(text, str):
        if not isinstance(text, list) or not all(isinstance(word, str) for word in text):
            raise BadRecordError("text is not a string or a list of strings")
        words, text = text, " ".join(text)
    if not text or text.isspace():
        raise BadRecordError(BLANK_LINE)
    text_b = fields.get(columns.text_b) if columns.text_b else None
    if text_b is not None and not isinstance(text_b, str):
        raise BadRecordError("second text is not a string")
    text_b = "" if text_b is None or text_b.isspace() else text_b
    context = ""
    if columns.context:
        stripped = map(str.strip, _strings(fields, columns.context, "context"))
        context = " ".join(filter(None, stripped))
    return document, text, text_b, context, words, extra


def documents_of(
    parsed: Iterable[Record | BadRecordError], places: pa.StringArray, columns: Columns
) -> tuple[Documents, np.ndarray]:
    """Documents as columns, and int64 `[documents]`, their records; `places`: `[records]`."""
    records: list[Record] = []
    good: list[int] = []
    rejected: list[Rejected] = []
    for row, outcome in enumerate(parsed):
        if not isinstance(outcome, BadRecordError):
            records.append(outcome)
            good.append(row)
            continue
        place, reason, record = places[row].as_py(), str(outcome), outcome.record
        is_end = record == END_OF_COPY
        blank = is_end or (isinstance(record, str) and not record.strip(_OF_EMPTY_ROWS))
        blank &= reason == BLANK_LINE
        document = outcome.id if columns.id else place
        document = None if reason in (ID_TOO_LONG, MISSING_ID) else document
        rejected.append(Rejected(document, place, "read", reason, record, blank, outcome.detail))
    rows = np.array(good, np.int64)
    sources = places if len(rows) == len(places) else places.take(pa.array(rows))
    ids, texts, texts_b, contexts, words, extra = (
        map(list, zip(*records, strict=True)) if records else ([],) * 6
    )
    unfit: Counter[str] = Counter()
    if columns.no_ids and (late := len(ids) - ids.count(None)):
        unfit[ID] = late
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
        if lost := sum(value is UNFIT for value in column):
            unfit[described.name] += lost
        fits = [None if value is UNFIT else value for value in column]
        arrays.append(pa.array(fits, described.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _strings(fields: Mapping[str, Any], names: Sequence[str], what: str) -> list[str]:
    values = [value for name in names if (value := fields.get(name)) is not None]
    if not all(isinstance(value, str) for value in values):
        raise BadRecordError(f"{what} is not a string")
    return values


_UUID = "04"  # MongoDB's subtype; of the older 03 nobody knows the order of its bytes
_BEGIN = datetime.datetime(1970, 1, 1)


def of_mongodb(value: Any) -> Any:
    """The value in MongoDB's notation of its own types: `{"$oid": "5f0e"}`.

    Numbers of a date are milliseconds whatever their size; it becomes ISO 8601, as mongoexport
    writes most of them.
    """
    is_date = False
    while isinstance(value, dict) and value and next(iter(value)).startswith("$"):
        [kind, inner], *others = value.items()
        if kind == "$binary":  # a UUID becomes one, other bytes stay as they are written
            old = {"base64": inner, "subType": value.get("$type")}  # of mongoexport before 4.2
            written = inner if isinstance(inner, dict) else old
            encoded: Any = written.get("base64")
            with suppress(ValueError, TypeError):
                if str(written.get("subType")).zfill(2) == _UUID:
                    return str(uuid.UUID(bytes=base64.b64decode(encoded, validate=True)))
            return encoded
        if others:
            break
        value, is_date = inner, is_date or kind == "$date"
    if is_date:
        with suppress(ValueError, TypeError, OverflowError):
            return f"{(_BEGIN + datetime.timedelta(milliseconds=int(value))).isoformat()}Z"
    return value


def id_of(record: Mapping[str, Any], column: str) -> str:
    """The id of a record; BadRecordError if it has none."""
    value = of_mongodb(nested_value(record, column))
    if value is None or (isinstance(value, str) and not value.strip()):
        raise BadRecordError(MISSING_ID)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRecordError("id is not a string or an integer")
    if isinstance(value, str) and len(value) > _MOST_ID_CHARS:
        raise BadRecordError(ID_TOO_LONG)
    return str(value)


# What BigQuery loads from Parquet files, by its table of conversions:
# https://cloud.google.com/bigquery/docs/loading-data-cloud-storage-parquet#parquet_conversions
_DAYS = -719_162, 2_932_896  # of the years 1 to 9999, since 1970
PRINTED = -12_000_000, 11_000_000  # which Arrow has texts for: of years of five digits
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_STORED = {pa.float16(): pa.float32(), pa.uint64(): pa.int64()}


def loaded_type(kind: pa.DataType) -> pa.DataType:
    """The type in files for BigQuery of an extra column, of a type that `plain_type` gives.

    >>> loaded_type(pa.timestamp("ns", "UTC")), loaded_type(pa.list_(pa.float16()))
    (TimestampType(timestamp[us, tz=UTC]), ListType(list<item: float>))
    """
    if pa.types.is_list(kind):
        return pa.list_(loaded_type(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else _STORED.get(kind, kind)


def loaded(documents: Documents) -> Documents:
    """Documents with extra columns of `loaded_type` whose values BigQuery loads; others count.

    A date or time outside the years 1 to 9999 becomes null, null elements of lists are left out.
    """
    if documents.extra is None:
        return documents
    columns, unfit = [], Counter(documents.unfit)
    for name, column in zip(documents.extra.column_names, documents.extra.columns, strict=True):
        values = column.combine_chunks()
        values, lost = (_filled if pa.types.is_list(values.type) else in_range)(values)
        columns.append(values)
        unfit += Counter({name: lost})
    extra = pa.Table.from_arrays(columns, schema=documents.extra.schema)
    return replace(documents, extra=extra, unfit=unfit)


def _filled(lists: pa.ListArray) -> tuple[pa.ListArray, int]:
    """Lists without their null elements, and how many those are."""
    values = lists.flatten()
    if not values.null_count:
        return lists, 0
    kept = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    splits = pa.array(splits_of(sums_of(kept, lengths)), pa.int32())
    filled = pa.ListArray.from_arrays(splits, values.drop_null(), lists.type, mask=lists.is_null())
    return filled, values.null_count


def in_range(values: pa.Array, days: tuple[int, int] = _DAYS) -> tuple[pa.Array, int]:
    """Dates and times in these days since 1970, and how many are not; others as they are."""
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.unit in _DAY:
        numbers, ticks = values.view(pa.int64()), _DAY[kind.unit]
    elif pa.types.is_date(kind):
        numbers, ticks = values.cast(pa.date32()).view(pa.int32()), 1
    else:
        return values, 0
    first, last = days
    fits = pc.and_(
        pc.greater_equal(numbers, first * ticks), pc.less(numbers, (last + 1) * ticks)
    ).fill_null(True)
    lost = len(values) - fits.true_count
    return (pc.if_else(fits, values, pa.scalar(None, kind)) if lost else values), lost
