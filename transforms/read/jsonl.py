"""Parses JSON lines: an object a line, with text, id and the like in named fields."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import orjson

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.extra import ExtraValues
from bert_embed.transforms.read.lines import Lines
from bert_embed.transforms.read.parsed import (
    BadRecord,
    Documents,
    Record,
    documents_of,
    id_of,
    record_of,
)
from bert_embed.transforms.read.text import INVALID_UTF8, line_texts, positions, utf8_detail
from bert_embed.transforms.records.rejected import BLANK_LINE, BadRecordError

_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
# Values of one record, of fields that nobody asked for, too: each takes up to 100 bytes in memory,
# but as few as 3 in the file. A text of the largest size has half as many commas.
_MOST_VALUES = 1 << 21
TOO_MANY_VALUES = "record of too many values"
_LARGE = re.compile(r"-?[0-9]{300,}|[eE]\+?[0-9]{3,}")  # numbers that may be infinite
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def parse_jsonl(lines: Lines, columns: Columns) -> Documents:
    """Parses lines; those that give no document are rejected."""
    texts, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    return documents_of(_records(texts, columns), places, columns)[0]


def _records(lines: Iterable[str | bytes], columns: Columns) -> Iterator[Record | BadRecord]:
    extra = ExtraValues(columns.extra) if columns.extra else None
    for line in lines:
        try:
            yield parse_record(line, columns, extra)
        except BadRecordError as error:
            document = _id_if_any(line, columns) if columns.id else None
            yield BadRecord(str(error), line, document, error.detail)


def parse_record(line: str | bytes, columns: Columns, extra: ExtraValues | None) -> Record:
    """Parses one line; BadRecordError if it gives no document."""
    if isinstance(line, bytes):
        raise BadRecordError(INVALID_UTF8, utf8_detail(line))
    if not line or line.isspace():
        raise BadRecordError(BLANK_LINE)
    if _is_beyond_memory(line):
        raise BadRecordError(TOO_MANY_VALUES)
    try:
        record = _loads(line)
    except ValueError as error:
        raise BadRecordError("malformed JSON", error) from error
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    return record_of(record, columns, extra(record) if extra else ())


def _id_if_any(line: str | bytes, columns: Columns) -> str | None:
    with suppress(BadRecordError):
        return id_of(_object(line) or {}, columns.id or "")
    return None


def first_records(lines: Lines) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; they show which fields a file has."""
    records = map(_object, line_texts(lines)[0])
    return (record for record in records if record is not None)


def _is_beyond_memory(line: str | bytes) -> bool:
    """Whether a line, parsed, would have so many values that they take far more than its bytes."""
    if len(line) < _MOST_VALUES or _marks(line) < _MOST_VALUES:
        return False
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    return _marks(_STRING.sub("", text)) >= _MOST_VALUES


def _marks(line: str | bytes) -> int:
    """How many values there are at most: one behind each of these marks, if not in a string."""
    if isinstance(line, bytes):
        return sum(map(line.count, (b",", b"[", b"{", b":")))
    return sum(map(line.count, ",[{:"))


def _object(line: str | bytes) -> dict[str, Any] | None:
    if _is_beyond_memory(line):
        return None
    with suppress(ValueError):
        record = _loads(line)
        return record if isinstance(record, dict) else None
    return None


def _loads(line: str | bytes) -> Any:
    """The value of a line; a comma after it, NaN and Infinity are allowed. ValueError: malformed.

    NaN is null, as pandas writes it for a missing value. Numbers beyond 1.8e308 are infinite, as in
    Python's json module.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        text = line if isinstance(line, str) else line.decode("utf-8")
        text = text.rstrip().removesuffix(",")
        if not any(word in text for word in _CONSTANTS) and not _LARGE.search(text):
            return orjson.loads(text)
    try:
        value = json.loads(text, parse_constant=_CONSTANTS.get, parse_int=_integer)
        orjson.dumps(value)
    except (RecursionError, orjson.JSONEncodeError) as error:  # the latter: half a surrogate pair
        raise ValueError("nested too deeply, or no text") from error
    return value


def _integer(digits: str) -> Any:
    return float(digits) if _LARGE.fullmatch(digits) else orjson.loads(digits)
