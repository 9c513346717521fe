"""JSON lines: one object a line, its text, id and the like in named fields."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from transforms.dead_letter import BLANK_LINE, BadRecordError
from transforms.sources.columns import Columns
from transforms.sources.documents import Documents
from transforms.sources.extra import ExtraValues
from transforms.sources.lines import Lines
from transforms.sources.records import Record, Refused, documents_of, id_of, record_of
from transforms.sources.text import INVALID_UTF8, line_texts, positions


def parse_jsonl(lines: Lines, columns: Columns) -> Documents:
    """Lines to documents, and the lines refused."""
    found, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    return documents_of(_records(found, columns), places, lines.number or 0, columns)


def _records(found: Iterable[str | bytes], columns: Columns) -> Iterator[Record | Refused]:
    extra = ExtraValues(columns.extra) if columns.extra else None
    for line in found:
        try:
            yield parse_record(line, columns, extra)
        except BadRecordError as error:
            known = _id_if_any(line, columns) if columns.id else None
            yield Refused(str(error), line, known)


def parse_record(line: str | bytes, columns: Columns, extra: ExtraValues | None) -> Record:
    """What one line holds."""
    if isinstance(line, bytes):
        raise BadRecordError(INVALID_UTF8)
    if not line or line.isspace():
        raise BadRecordError(BLANK_LINE)
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRecordError("malformed JSON") from error
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    return record_of(record, columns, extra(record) if extra else ())


def _id_if_any(line: str | bytes, columns: Columns) -> str | None:
    try:
        record = orjson.loads(line)
        return id_of(record, columns.id or "") if isinstance(record, dict) else None
    except (orjson.JSONDecodeError, BadRecordError):
        return None


def first_records(lines: Lines) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; they tell which fields a file has."""
    for line in line_texts(lines)[0]:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            yield record
