"""Checks arguments of the Python API; SettingError names a wrong one."""

import operator
import os
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from storage.errors import SettingError


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Returns an integer of any integer type; a bool or a float is an error.

    >>> whole_number("threads", 2, least=1)
    2
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError as error:
        raise SettingError(name, f"must be an integer, got {_shown(value)}") from error
    if least is not None and number < least:
        raise SettingError(name, f"must be at least {least}, got {number}")
    return number


def whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    """Returns one integer or several as a tuple."""
    if isinstance(values, str | bytes | Mapping | Set):
        raise SettingError(name, f"must be integers, such as [-1, -2], got {_shown(values)}")
    if not isinstance(values, Iterable):
        return (whole_number(name, values),)
    return tuple(whole_number(name, value) for value in values)


def seconds(name: str, value: Any) -> float:
    """Returns a duration over 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingError(name, f"must be a number of seconds, got {_shown(value)}")
    if not value > 0:
        raise SettingError(name, f"must be over 0, got {value}")
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Returns True or False; any other value is an error."""
    if type(value).__name__ not in ("bool", "bool_"):  # Python's and NumPy's
        raise SettingError(name, f"must be True or False, got {_shown(value)}")
    return bool(value)


def one_text(name: str, value: Any) -> str:
    """Returns a str."""
    if not isinstance(value, str):
        raise SettingError(name, f"must be a str, got {_shown(value)}")
    return value


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    """Returns one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise SettingError(name, f"must be one of {', '.join(allowed)}, got {_shown(value)}")
    return value


def path_text(name: str, value: Any) -> str:
    """Returns a str or path as a str."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return one_text(name, path)


def text_list(name: str, values: Any) -> list[str]:
    """Returns texts as a list and reads a generator once; messages never quote a text."""
    listed = values if type(values) is list else _items(name, values, "a list of texts")
    if not set(map(type, listed)) <= {str}:  # this loop in C is fast; a Python loop is not
        for place, text in enumerate(listed):
            if not isinstance(text, str):
                raise SettingError(name, f"must be str, number {place} is {type(text).__name__}")
    return listed


def text_or_word_lists(name: str, values: Any) -> list[str | list[str]]:
    """Returns a list of texts and lists of words; each may be a generator."""
    return [
        text if isinstance(text, str) else text_list(f"{name}[{place}]", text)
        for place, text in enumerate(_items(name, values, "a list of texts or of lists of words"))
    ]


def _items(name: str, values: Any, expected: str) -> list[Any]:
    if isinstance(values, str | bytes):
        raise SettingError(name, f"must be {expected}, got one {type(values).__name__}")
    # Iterating over a mapping gives its keys, and a set has no order.
    if isinstance(values, Mapping | Set) or not isinstance(values, Iterable):
        raise SettingError(name, f"must be {expected}, got a {type(values).__name__}")
    return list(values)


def _shown(value: Any) -> str:
    """Returns a value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
