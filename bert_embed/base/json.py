"""Reads JSON into dataclasses, names the key where a file is damaged, and writes them as JSON."""

import json
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from bert_embed.base.errors import InputError

_T = TypeVar("_T")
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_BEGINS = b'{\n  "format": '  # as `json_bytes` writes the first key of records
_MOST_NESTED = 100  # a table's schema takes 32; functions that call themselves end at some 900
_MOST_SHOWN = 40  # characters of a wrong value in a message
_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def is_torn(data: bytes) -> bool:
    """Whether a power cut left this of a record: no bytes, NULs, or its beginning.

    >>> [is_torn(data) for data in (b"", bytes(9), json_bytes({"format": 2})[:-2], b'{"format": ')]
    [True, True, True, False]
    """
    begun = data.rstrip(b"\0")
    if begun[: len(_BEGINS)] != _BEGINS[: len(begun)]:
        return False
    try:
        orjson.loads(begun)
    except orjson.JSONDecodeError:
        return True
    return len(begun) < len(data)


def json_object(data: bytes, path: str) -> dict[str, Any]:
    """Returns the object that a file holds; InputError if it holds something else, or is cut."""
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if is_torn(data):
            raise InputError(
                f"{path} is empty or cut, as a power cut leaves files: run its command again"
            ) from error
        raise InputError(f"{path} is damaged: it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it is not a JSON object")
    level: list[Any] = [values]
    for _ in range(_MOST_NESTED):
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for item in chain.from_iterable(inner) if isinstance(item, dict | list)]
        if not level:
            return values
    raise InputError(f"{path} is damaged: it nests more than {_MOST_NESTED} deep")


def from_json(kind: Callable[..., _T], values: Mapping[str, Any], path: str, above: str = "") -> _T:
    """Returns a dataclass from the object that `to_json` made of it; InputError names file and key.

    A field with a default may be absent, and keys that are no field are passed over. `above` are
    the keys that lead to the object, with a dot after each.
    """
    arguments = {}
    for name, (hint, required) in _fields(kind).items():
        if name in values:
            arguments[name] = _value(hint, values[name], path, f"{above}{name}")
        elif required:
            raise InputError(f"{path} is damaged: it has no {above}{name}")
    return kind(**arguments)


@cache
def _fields(kind: Hashable) -> dict[str, tuple[Any, bool]]:
    """The type of each field of a dataclass, and whether a file must have it."""
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        raise TypeError(f"{kind} is no dataclass")
    return {
        field.name: (
            hints[field.name],
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    }


def _value(hint: Any, value: Any, path: str, key: str) -> Any:
    """A value of a type, tuples from lists and dataclasses from objects."""
    if hint is Any:
        return value
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (hint,) = (kind for kind in inner if kind is not type(None))
        return _value(hint, value, path, key)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], item, path, f"{key}[{at}]") for at, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {name: _value(inner[1], item, path, f"{key}.{name}") for name, item in value.items()}
    if origin is Literal and value in inner:
        return value
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        return from_json(hint, value, path, f"{key}.")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        return value
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + "…"
    raise InputError(f"{path} is damaged: {key} must be {_name(hint)}, got {shown}")


def _name(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "a list"
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    return _NAMES.get(hint, "an object")


def to_json(record: Any) -> dict[str, Any]:
    """Returns a dataclass as an object of JSON, without the fields that have their defaults."""
    values: dict[str, Any] = {}
    for field in fields(record):
        factory, value = field.default_factory, getattr(record, field.name)
        if value != (field.default if factory is MISSING else factory()):
            values[field.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def json_bytes(values: Mapping[str, Any]) -> bytes:
    """Returns an object as our files hold it."""
    return orjson.dumps(values, option=_OPTIONS)
