"""Converts the values of extra columns of JSON or CSV to the types of the run's columns."""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from bert_embed.storage.errors import SettingError
from bert_embed.transforms.records.rejected import BadRecordError

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

_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


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
    """Reads extra columns, each of `TYPES`; of CSV, `as_text`, empty is null except for strings."""

    def __init__(self, schema: pa.Schema, as_text: bool = False) -> None:
        kinds = _OF_TEXT if as_text else _OF_JSON
        self._columns: list[tuple[str, str, Callable[[Any], Any]]] = []
        for field in schema:
            kind = type_name(field.type)
            if kind not in kinds:
                raise SettingError(
                    "extra_columns", f"{field.name} is {field.type}, which text cannot give"
                )
            self._columns.append((field.name, kind, kinds[kind]))

    def __call__(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of a record, None for what is missing; BadRecordError if one does not fit."""
        return tuple(self._values(record))

    def _values(self, record: Mapping[str, Any]) -> Iterator[Any]:
        for name, kind, convert in self._columns:
            value = record.get(name)
            try:
                yield None if value is None else convert(value)
            except (ValueError, OverflowError) as error:
                raise BadRecordError(f"extra column {name} is not {kind}") from error


def _of_kind(*kinds: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if type(value) not in kinds:  # true and false are int, too
            raise ValueError
        return value

    return checked


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    return lambda value: [None if item is None else convert(item) for item in _of_kind(list)(value)]


def _integer(value: Any) -> int:
    if type(value) is not int or not _SMALLEST <= value <= _LARGEST:
        raise ValueError
    return value


def _timestamp(value: Any) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(_of_kind(str)(value))
    return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).astimezone(datetime.UTC)


def _date(value: Any) -> datetime.date:
    return datetime.date.fromisoformat(_of_kind(str)(value))


def _integer_text(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return _integer(int(text))


def _float_text(text: str) -> float:
    if "_" in text:  # Python's own notation, unknown to other programs
        raise ValueError
    return float(text)


def _bool_text(text: str) -> bool:
    value = _BOOLS.get(text.lower())
    if value is None:
        raise ValueError
    return value


def _or_null(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: convert(text) if text else None


_OF_JSON: dict[str, Callable[[Any], Any]] = {
    "string": _of_kind(str),
    "int64": _integer,
    "float64": lambda value: float(_of_kind(int, float)(value)),
    "bool": _of_kind(bool),
    "timestamp": _timestamp,
    "date": _date,
}
_OF_JSON |= {
    name: _list_of(_OF_JSON[name.removeprefix("list_")]) for name in TYPES if name not in _OF_JSON
}
_OF_TEXT: dict[str, Callable[[Any], Any]] = {
    "string": _of_kind(str),
    "int64": _or_null(_integer_text),
    "float64": _or_null(_float_text),
    "bool": _or_null(_bool_text),
    "timestamp": _or_null(_timestamp),
    "date": _or_null(_date),
}
