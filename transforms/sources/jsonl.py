"""JSON lines: one object a line, its text and id in named fields."""

from dataclasses import dataclass

import orjson
import pyarrow as pa

from transforms.dead_letter import BLANK_LINE, Rejected
from transforms.sources.lines import Lines
from transforms.sources.text import INVALID_UTF8, line_texts, positions


@dataclass(frozen=True)
class Columns:
    """Where the fields of a record stand.

    Attributes:
        text: Name of the text's field.
        id: Name of the id's field; None: a record's place in its file is its id.
    """

    text: str = "text"
    id: str | None = None


class _BadRecordError(Exception):
    """Why a line gives no document; the message is the reason."""


def parse_jsonl(
    lines: Lines, columns: Columns
) -> tuple[pa.StringArray, list[str], pa.StringArray, list[Rejected]]:
    """Lines to documents: ids, texts, sources, and the lines refused."""
    found, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    ids: list[str | None] = []
    texts: list[str] = []
    rows: list[int] = []
    rejected: list[Rejected] = []
    for row, line in enumerate(found):
        try:
            document, text = parse_record(line, columns)
        except _BadRecordError as error:
            place = places[row].as_py()
            known = _id_if_any(line, columns) if columns.id else place
            blank = not line.strip()
            rejected.append(Rejected(known, place, "read", str(error), line, blank))
            continue
        ids.append(document)
        texts.append(text)
        rows.append(row)
    sources = places if len(rows) == len(places) else places.take(pa.array(rows, pa.int64()))
    return (pa.array(ids, pa.string()) if columns.id else sources), texts, sources, rejected


def parse_record(line: str | bytes, columns: Columns) -> tuple[str | None, str]:
    """Id and text of one line; the id is None where records have none of their own."""
    if isinstance(line, bytes):
        raise _BadRecordError(INVALID_UTF8)
    if not line or line.isspace():
        raise _BadRecordError(BLANK_LINE)
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _BadRecordError("malformed JSON") from error
    if not isinstance(record, dict):
        raise _BadRecordError("not a JSON object")
    document = _id_of(record, columns.id) if columns.id else None
    text = record.get(columns.text)
    if text is None:
        raise _BadRecordError("missing text")
    if not isinstance(text, str):
        raise _BadRecordError("text is not a string")
    if not text or text.isspace():
        raise _BadRecordError("empty text")
    return document, text


def _id_of(record: dict, column: str) -> str:
    value = record.get(column)
    if value is None:
        raise _BadRecordError("missing id")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _BadRecordError("id is not a string or an integer")
    return str(value)


def _id_if_any(line: str | bytes, columns: Columns) -> str | None:
    try:
        record = orjson.loads(line)
        return _id_of(record, columns.id or "") if isinstance(record, dict) else None
    except (orjson.JSONDecodeError, _BadRecordError):
        return None


def first_record(lines: Lines) -> dict | None:
    """The first line that is a JSON object, or None; it tells which fields a file has."""
    for line in line_texts(lines)[0]:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            return record
    return None
