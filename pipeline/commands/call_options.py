"""Turns keyword arguments of `embed` into options, and messages into Python's spelling."""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from numbers import Number
from typing import Any

from bert_embed.pipeline.errors import UsageError, flag_message
from bert_embed.pipeline.options import FLAGS, EmbedOptions
from bert_embed.pipeline.parser import as_words, parse_embed
from bert_embed.pipeline.secrets import hide_secrets
from bert_embed.storage.errors import InputError, SettingError

_LISTS = {each.name for each in fields(EmbedOptions) if "tuple" in str(each.type)}
_OF_COMMANDS = ("h", "help", "text", "version")  # what they print is not for a caller in Python
_OUR_FLAG = re.compile(rf"--(no_)?({'|'.join(FLAGS)})\b")
_UNKNOWN_FLAG = re.compile(r"\b(unknown flag|did you mean) --")


def call_options(values: Mapping[str, Any]) -> EmbedOptions:
    """Returns the options that keyword arguments stand for; UsageError names a wrong one."""
    with named_as_in_python():
        return parse_embed([word for name, value in values.items() for word in _words(name, value)])


@contextmanager
def named_as_in_python() -> Iterator[None]:
    """Takes the dashes from the names of options in a UsageError, and makes one of InputErrors."""
    try:
        yield
    except InputError as error:
        raise UsageError(hide_secrets(without_dashes(flag_message(error)))) from None


def without_dashes(message: str) -> str:
    """Returns a message with our options spelled as keyword arguments.

    >>> without_dashes("--stride requires --long_text window, not --machine_type")
    'stride requires long_text window, not --machine_type'
    """
    return _OUR_FLAG.sub(r"\1\2", _UNKNOWN_FLAG.sub(r"\1 ", message))


def _words(name: str, value: Any) -> list[str]:
    """The words of a command line that an option stands for."""
    if name in _OF_COMMANDS:
        raise UsageError(f"{name} is for the command line")
    if isinstance(value, bool) and name in FLAGS and not FLAGS[name].switch:
        raise SettingError(name, f"must have a value, got {value}")
    if isinstance(value, list | tuple) and (name in _LISTS or name not in FLAGS):
        listed = [_plain(name, each) for each in value]
        if name == "input":
            _check_no_texts(listed)
        return as_words(name, listed)
    return as_words(name, _plain(name, value))


def _check_no_texts(inputs: Sequence[Any]) -> None:
    """Refuses texts in the place of files, by their number: texts are in no message."""
    for number, each in enumerate(inputs):
        words = isinstance(each, str) and len(each.split()) > 1
        if words and "://" not in each and not glob.has_magic(each) and not os.path.exists(each):
            raise SettingError(
                "input",
                f"number {number} names no file; for texts in memory use bert_embed.load().encode",
            )


def _plain(name: str, value: Any) -> Any:
    """A value that a word of a command line can stand for."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | Number):
        return value
    texts = "; for texts in memory use bert_embed.load().encode" if name == "input" else ""
    raise SettingError(name, f"must be a text or a number, got a {type(value).__name__}{texts}")
