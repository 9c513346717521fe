"""JSON lines: one object a line, its text, id and the like in named fields."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from transforms.dead_letter import BLANK_LINE, Rejected
from transforms.sources.documents import Documents
from transforms.sources.lines import Lines
from transforms.sources.text import INVALID_UTF8, line_texts, positions


@dataclass(frozen=True)
class Columns:
    """Where the fields of a record stand.

    Attributes:
        text: Name of the text's field; its value is a string, or a list of words.
        id: Name of the id's field; None: a record's place in its file is its id.
        text_b: Name of the second text's field; None: there is none.
        spans: Names of the fields with the starts and the stops of spans, in code points of the
            text, or in words where the text is a list of these: a whole number each, or a list of
            them each; None: no spans are asked for.
        pair_separator: What stands between the two texts of a line of plain text; None: a line is
            one text.
    """

    text: str = "text"
    id: str | None = None
    text_b: str | None = None
    spans: tuple[str, str] | None = None
    pair_separator: str | None = None

    def __post_init__(self) -> None:
        if self.pair_separator == "":
            raise ValueError("--pair_separator must not be empty")

    @property
    def has_pairs(self) -> bool:
        """Whether a document may have a second text."""
        return self.text_b is not None or self.pair_separator is not None


Span = tuple[int, int]

# Id (None where records have none of their own), text (a list of words joined by one space), second
# text ("" where there is none), words if the text came as a list, and spans. A plain tuple: a
# named one took a quarter of the time that reading JSON lines takes.
Record = tuple[str | None, str, str, list[str] | None, Sequence[Span]]


class BadRecordError(Exception):
    """Why a record gives no document; the message is the reason."""


def parse_jsonl(lines: Lines, columns: Columns) -> Documents:
    """Lines to documents, and the lines refused."""
    found, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    records: list[Record] = []
    good: list[int] = []
    rejected: list[Rejected] = []
    for row, line in enumerate(found):
        try:
            records.append(parse_record(line, columns))
            good.append(row)
        except BadRecordError as error:
            place = places[row].as_py()
            known = _id_if_any(line, columns) if columns.id else place
            blank = not line.strip()
            rejected.append(Rejected(known, place, "read", str(error), line, blank))
    rows = np.array(good, np.int64)
    sources = places if len(rows) == len(places) else places.take(pa.array(rows))
    ids, texts, texts_b, words, spans = (
        map(list, zip(*records, strict=True)) if records else ([],) * 5
    )
    return Documents(
        ids=pa.array(ids, pa.string()) if columns.id else sources,
        texts=texts,
        sources=sources,
        line_numbers=rows + (lines.number or 0),
        rejected=rejected,
        texts_b=texts_b if columns.text_b else None,
        words=words if any(words) else None,
        spans=spans if columns.spans else None,
    )


def parse_record(line: str | bytes, columns: Columns) -> Record:
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
    return parse_fields(record, columns)


def parse_fields(record: dict[str, Any], columns: Columns) -> Record:
    """What the fields of one record hold.

    Raises:
        BadRecordError: They are no document; the message is the reason.
    """
    document = _id_of(record, columns.id) if columns.id else None
    text, words = record.get(columns.text), None
    if text is None:
        raise BadRecordError("missing text")
    if not isinstance(text, str):
        words = _words(text)
        text = " ".join(words)
    if not text or text.isspace():
        raise BadRecordError(BLANK_LINE)
    text_b = _text_b_of(record, columns.text_b) if columns.text_b else ""
    spans: Sequence[Span] = ()
    if columns.spans:
        spans = _spans_of(record, columns.spans, len(text) if words is None else len(words))
        spans = spans if words is None else _of_words(spans, words)
    return document, text, text_b, words, spans


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadRecordError("text is not a string or a list of strings")
    return value


def _text_b_of(record: dict, column: str) -> str:
    text = record.get(column)
    if text is not None and not isinstance(text, str):
        raise BadRecordError("second text is not a string")
    return "" if text is None or text.isspace() else text


def _spans_of(record: dict, columns: tuple[str, str], length: int) -> list[Span]:
    starts, stops = (record.get(column) for column in columns)
    if starts is None or stops is None:
        raise BadRecordError("missing spans")
    if not isinstance(starts, list) and not isinstance(stops, list):
        starts, stops = [starts], [stops]
    if not isinstance(starts, list) or not isinstance(stops, list) or len(starts) != len(stops):
        raise BadRecordError("malformed spans")
    if not all(type(each) is int for each in (*starts, *stops)):  # true and false are int, too
        raise BadRecordError("malformed spans")
    spans = list(zip(starts, stops, strict=True))
    if not all(0 <= start < stop <= length for start, stop in spans):
        raise BadRecordError("span outside the text")
    return spans


def _of_words(spans: Sequence[Span], words: Sequence[str]) -> list[Span]:
    """Spans of a list of words, counted in words, to those of the text they are joined to."""
    begins = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    return [(begins[start], begins[stop] - 1) for start, stop in spans]


def _id_of(record: dict, column: str) -> str:
    value = record.get(column)
    if value is None:
        raise BadRecordError("missing id")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRecordError("id is not a string or an integer")
    return str(value)


def _id_if_any(line: str | bytes, columns: Columns) -> str | None:
    try:
        record = orjson.loads(line)
        return _id_of(record, columns.id or "") if isinstance(record, dict) else None
    except (orjson.JSONDecodeError, BadRecordError):
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
