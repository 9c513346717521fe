"""Describes flags: what a dataclass of options says of each of its fields.

Each flag has a kind, which turns what a reader of options found into the field's value: the words
of a command line and of a template are texts, YAML and Python have values of their own.
"""

import datetime
import math
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from numbers import Number
from typing import Any, ClassVar

from bert_embed.base.arguments import one_of
from bert_embed.base.errors import SettingError
from bert_embed.pipeline.errors import UsageError
from bert_embed.transforms.bigquery.client import NAME, SCHEME
from bert_embed.transforms.parts import COMPRESSIONS, FORMATS
from bert_embed.transforms.read.columns import joined_fields, text_fields

_BOOLS = ("bool", "bool_")  # Python's and NumPy's
_MOST = (1 << 63) - 1  # what run.json can hold
_MOST_DIGITS = 30  # more is not worth reading: Python refuses thousands of them


def one_text(name: str, value: Any) -> str:
    """The text that a value stands for: itself, a path, a number, or a day that YAML reads."""
    _refuse_bool(name, value)
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(value, str | Number | datetime.date):
        raise SettingError(name, f"must be a text or a number, got a {type(value).__name__}")
    if (text := str(value)).encode("utf-8", "replace").decode() != text:
        raise SettingError(name, f"{text!r} is not UTF-8")
    return text


def _refuse_bool(name: str, value: Any) -> None:
    if isinstance(value, bool):
        raise SettingError(name, f"must have a value, got {value}")


def items_of(value: Any) -> list[Any] | None:
    """The items of a list, or of another ordered collection; None if a value is none."""
    if isinstance(value, str | bytes | os.PathLike | Mapping | Set):
        return None
    is_list = isinstance(value, Iterable) and getattr(value, "ndim", 1) == 1
    return list(value) if is_list else None


def joined_names(name: str, value: Any) -> str:
    """A text that may be several names with commas; a list of names becomes one."""
    items = items_of(value)
    text = partial(one_text, name)
    return text(value) if items is None else joined_fields(map(text, items))


def place(name: str, value: Any) -> str:
    """A file, a folder, or an address; a table where that can stand for it. `~` is resolved."""
    return os.path.expanduser(one_text(name, value))


def places(name: str, value: Any) -> tuple[str, ...]:
    """Several of them; on the command line the flag is given for each."""
    items = items_of(value)
    return tuple(place(name, item) for item in ([value] if items is None else items))


@dataclass(frozen=True)
class Choice:
    """One of some names; `read` turns another name of one of them into it."""

    choices: Collection[str]
    read: Callable[[str], str] = str

    def __call__(self, name: str, value: Any) -> str:
        if type(value).__name__ in _BOOLS:
            value = str(value).lower()
        return one_of(name, self.read(one_text(name, value)), self.choices)


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `least`, which is 0 or 1, and at most `most`."""

    least: int
    most: int = _MOST

    @property
    def pattern(self) -> str:
        """What a text of it matches."""
        return "0*[1-9][0-9]*" if self.least else "[0-9]+"

    def __call__(self, name: str, value: Any) -> int:
        _refuse_bool(name, value)
        try:
            number = _number(value) if isinstance(value, str) else operator.index(value)
        except (TypeError, ValueError):
            number = self.least - 1
        if number < self.least:
            wanted = " of at least 1" if self.least else ", 0 or more"
            raise SettingError(name, f"must be a whole number{wanted}, got {value!r}")
        if number > self.most:
            raise SettingError(name, f"must be at most {self.most:,}, got {value!r}")
        return number


def _number(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text, re.ASCII):
        raise ValueError
    return int(text) if len(text) <= _MOST_DIGITS else _MOST + 1


@dataclass(frozen=True)
class Wholes:
    """Whole numbers, as a text with commas: each matches `one`; messages say what is `wanted`."""

    one: str
    wanted: str
    are_set: bool = False  # whether order and repetition mean nothing

    @property
    def pattern(self) -> str:
        """What a text of them matches."""
        return f"{self.one}(,{self.one})*"

    def __call__(self, name: str, value: Any) -> tuple[int, ...]:
        _refuse_bool(name, value)
        items = value.split(",") if isinstance(value, str) else items_of(value)
        try:
            numbers = tuple(map(self._one, [value] if items is None else items))
        except (TypeError, ValueError):
            raise SettingError(name, f"must be {self.wanted}, got {value!r}") from None
        return tuple(sorted(set(numbers))) if self.are_set else numbers

    def _one(self, item: Any) -> int:
        number = _number(item) if isinstance(item, str) else operator.index(item)
        if isinstance(item, bool) or not re.fullmatch(self.one, str(number)):
            raise ValueError
        return number


def not_negative(name: str, value: Any) -> float:
    """A finite number of at least 0."""
    _refuse_bool(name, value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(name, f"must be a number, got {value!r}") from None
    if not 0 <= number < math.inf:
        raise SettingError(name, f"must be at least 0, got {number:g}")
    return number


def names(name: str, value: Any) -> tuple[str, ...]:
    """Names; as a text with commas, one that has a comma in quotes."""
    items = items_of(value)
    if items is None:
        items = [part.strip() for part in text_fields(one_text(name, value))]
    return tuple(one_text(name, item) for item in items)


# A missing file must not be reported as a missing table: my-notes.2026.txt.
_SUFFIXES = (".txt", *FORMATS, *COMPRESSIONS)


def looks_like_table(text: str) -> bool:
    """Whether an input names a table of BigQuery: by its form, unless a file has that name."""
    if "/" in text or os.path.exists(text) or NAME.fullmatch(text) is None:
        return text.startswith(SCHEME)
    return ":" in text or ("-" in text.split(".")[0] and not text.endswith(_SUFFIXES))


@dataclass(frozen=True)
class Sized:
    """One of some names, and behind a colon a number of at least 1, or none."""

    names: Collection[str]

    @property
    def pattern(self) -> str:
        """What a text of it matches."""
        return f"({'|'.join(self.names)})(:{POSITIVE.pattern})?"

    def __call__(self, name: str, value: Any) -> str:
        text, colon, size = one_text(name, value).partition(":")
        Choice(self.names)(name, text)
        if colon and not re.fullmatch(POSITIVE.pattern, size, re.ASCII):
            raise SettingError(
                name, f"must have a whole number of at least 1 behind {text}:, got {size!r}"
            )
        return f"{text}:{POSITIVE(name, size)}" if colon else text


_SEPARATORS = {"tab": "\t", r"\t": "\t", "space": " ", "^A": "\x01", r"\x01": "\x01"}


def separator(name: str, value: Any) -> str:
    """A character between fields, or its name."""
    text = one_text(name, value)
    text = _SEPARATORS.get(text, text)
    if len(text) != 1 or not text.isascii() or text in '"\r\n\0':
        raise SettingError(name, f"must be one ASCII character, or tab or ^A, got {value!r}")
    return text


@dataclass(frozen=True)
class Share:
    """A number of records, or their share."""

    pattern: str = r"\d+|\d+(\.\d+)?%"

    def __call__(self, name: str, value: Any) -> str:
        text = one_text(name, value)
        if not re.fullmatch(self.pattern, text, re.ASCII):
            raise SettingError(name, f"must be a whole number or a share such as 1%, got {text!r}")
        if not text.endswith("%"):
            AT_LEAST_ZERO(name, text)
        elif float(text[:-1]) > 100:
            raise SettingError(name, f"must be at most 100%, got {text!r}")
        return text


def true_or_false(name: str, value: Any) -> bool:
    """True or False."""
    if type(value).__name__ in _BOOLS:
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise SettingError(name, f"must be true or false, got {value!r}")


@dataclass(frozen=True)
class Day:
    """A day, or the time of day at which one begins."""

    pattern: str = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}|[0-9]{2}:[0-9]{2}"

    def __call__(self, name: str, value: Any) -> str:
        text = one_text(name, value)
        try:
            if not re.fullmatch(self.pattern, text, re.ASCII):
                raise ValueError
            datetime.datetime.fromisoformat(f"2026-01-01T{text}" if ":" in text else text)
        except ValueError:
            raise SettingError(
                name, f"must be a day such as 2026-03-01, or a time such as '02:17', got {text!r}"
            ) from None
        return text


SHARE, POSITIVE, AT_LEAST_ZERO, DAY = Share(), Whole(1), Whole(0), Day()
LAYERS = Wholes(r"-?\d+", "numbers with commas, such as -1,-2")
BLOCKS = Wholes(r"\d+", "block numbers with commas", are_set=True)


@dataclass(frozen=True)
class Flag:
    """What every reader of options has to know of one field."""

    text: str  # its help, with the default where that depends on the input or model
    default: Any  # MISSING if it must be given
    metavar: str | None = None
    kind: Callable[[str, Any], Any] = one_text  # turns what a reader found into the value
    without: str | None = None  # the command that does not take it, of those with this dataclass
    requires: tuple[str, tuple[str, ...]] | None = None  # another option, and its values with this
    is_positional: bool = False  # whether its value stands alone on a command line

    @property
    def help(self) -> str:
        """Its help, with the default."""
        if self.is_switch or self.is_positional or self.default in (None, MISSING, "", ()):
            return self.text
        several = isinstance(self.default, tuple)
        return f"{self.text} (default: {','.join(self.default) if several else self.default})"

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values that are allowed; None for any."""
        return tuple(self.kind.choices) if isinstance(self.kind, Choice) else None

    @property
    def is_switch(self) -> bool:
        """Whether it is `--name` or `--no_name`, which need no value."""
        return self.kind is true_or_false

    @property
    def is_repeated(self) -> bool:
        """Whether it is given once for each of several values."""
        return self.kind is places

    @property
    def has_several(self) -> bool:
        """Whether one text with commas gives several values."""
        return isinstance(self.kind, Wholes) or self.kind in (names, joined_names)


def flag(
    text: str,
    metavar: str | None = None,
    default: Any = None,
    choices: Collection[str] | None = None,
    **settings: Any,
) -> Any:
    """A field with its flag."""
    if choices is not None:
        settings["kind"] = Choice(choices)
    return field(default=default, metadata={"flag": Flag(text, default, metavar, **settings)})


count = partial(flag, metavar="N", kind=POSITIVE)  # a field whose flag is a number of at least 1
several = partial(flag, default=(), kind=places)


def switch(text: str, default: bool | None = False, **settings: Any) -> Any:
    """A field whose flag is a switch."""
    return flag(text, default=default, kind=true_or_false, **settings)


def positional(metavar: str, text: str, **settings: Any) -> Any:
    """A field whose value stands alone on a command line."""
    return flag(text, metavar, MISSING, is_positional=True, **settings)


def flags_of(options: type) -> dict[str, Flag]:
    """The flags of a dataclass of options, by their names."""
    return {one.name: one.metadata["flag"] for one in fields(options) if "flag" in one.metadata}


# Outputs that are taken together.
DIRS = "runs' outputs, folders of outputs or globs: of each document the newest version counts"


@dataclass(frozen=True)
class CommandOptions:
    """The options of a command, which the docstring describes; `beam_args` takes Beam's flags.

    Values become those of the kinds of their flags; SettingError if one cannot.
    """

    needed: ClassVar[tuple[str, ...]] = ()  # unless another option stands in

    def __post_init__(self) -> None:
        flags = flags_of(type(self))
        after = [one.metavar or "" for one in flags.values() if one.is_positional][1:]
        for name, described in flags.items():
            value = getattr(self, name)
            if value is not None or described.default is not None:
                value = described.kind(name, value)
                object.__setattr__(self, name, value)
            if described.is_positional and "" in (value, *(value if described.is_repeated else ())):
                raise UsageError(f"{described.metavar} must not be empty")
            if described.is_positional and described.is_repeated and not value:
                raise UsageError(
                    f"{' or '.join(['DIR', *after])} is missing: give the output of a "
                    f"{', then '.join(['run', *after])}"
                )

    def require(self, *names: str) -> None:
        """Checks that a command has what it needs."""
