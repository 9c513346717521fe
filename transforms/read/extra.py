"""Converts the values of extra columns of JSON or CSV to the types of the run's columns."""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from bert_embed.storage.errors import SettingError

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
        *("window", "chunk", "tokens", "words", "spans", "features"),
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
_EPOCH = re.compile(r"[+-]?[0-9]{9,19}")
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
    """Reads extra columns, each of `TYPES`; an empty value, or one like NA, is null except text."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns: list[tuple[str, Callable[[Any], Any]]] = []
        for column in schema:
            kind = type_name(column.type)
            if kind is None:
                raise SettingError(
                    "extra_columns", f"{column.name} is {column.type}, which text cannot give"
                )
            self._columns.append((column.name, _CONVERTERS[kind]))

    def __call__(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of a record, None for what is missing, `UNFIT` for what does not fit."""
        return tuple(self._values(record))

    def _values(self, record: Mapping[str, Any]) -> Iterator[Any]:
        for name, convert in self._columns:
            value = record.get(name)
            try:
                yield None if value is None else convert(value)
            except (ValueError, OverflowError):
                yield UNFIT


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (int, float)):
        raise ValueError
    return orjson.dumps(value).decode()


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
    found = _BOOLS.get(value.lower() if isinstance(value, str) else orjson.dumps(value).decode())
    if found is None:
        raise ValueError
    return found


def _timestamp(value: Any) -> datetime.datetime:
    return _moment(value).astimezone(datetime.UTC)


def _date(value: Any) -> datetime.date:
    return _moment(value).date()


def _moment(value: Any) -> datetime.datetime:
    """A time in the zone that it names, else UTC: of ISO 8601, or a number as pandas writes it."""
    if isinstance(value, str) and not _EPOCH.fullmatch(value):
        moment = datetime.datetime.fromisoformat(_ZONE.sub(_iso_zone, value))
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    number = _integer(value)
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
    "timestamp": _or_null(_timestamp),
    "date": _or_null(_date),
}
_CONVERTERS |= {
    name: _list_of(_CONVERTERS[name.removeprefix("list_")])
    for name in TYPES
    if name not in _CONVERTERS
}
