"""Makes documents of records, or gives the reason why a record is none; joins those of a part."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.extra import UNFIT
from bert_embed.transforms.records.columnar import join
from bert_embed.transforms.records.rejected import BLANK_LINE, BadRecordError, Rejected

ID_TOO_LONG = "id too long"
_MOST_ID_CHARS = 4096  # as long as a path may be; all ids of a part are in memory
Span = tuple[int, int]

# Id (None where records have none of their own), text (a list of words joined by one space),
# second text ("" where there is none), words if the text came as a list, spans, and the values of
# the extra columns. A plain tuple: creating named ones took a quarter of the reading time.
Record = tuple[str | None, str, str, list[str] | None, Sequence[Span], tuple[Any, ...]]


@dataclass(frozen=True)
class BadRecord:
    """A record that gives no document, why, and its id, if it has one."""

    reason: str
    record: str | bytes
    id: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Documents:
    """Documents as columns, which are those of `DocumentBlock`, and what was lost."""

    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    rejected: list[Rejected]
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    extra: pa.Table | None = None
    unfit: Counter[str] = field(default_factory=Counter)  # values of extra columns that are null


_NO_DOCUMENTS = Documents(pa.array([], pa.string()), [], pa.array([], pa.string()), [])


def join_documents(several: Sequence[Documents], columns: Columns) -> Documents:
    """Joins the documents of several files; one that lacks a column gets "", no spans, or nulls."""
    listed = any(documents.words is not None for documents in several)
    unfit = sum((documents.unfit for documents in several), Counter[str]())
    joined = join(
        [_completed(documents, columns, listed) for documents in (_NO_DOCUMENTS, *several)]
    )
    return replace(joined, unfit=unfit)


def _completed(documents: Documents, columns: Columns, listed: bool) -> Documents:
    """The documents with every column that the run, or the part, has."""
    count = len(documents.texts)
    missing: dict[str, Any] = {}
    if columns.has_pairs and documents.texts_b is None:
        missing["texts_b"] = [""] * count
    if listed and documents.words is None:
        missing["words"] = [None] * count
    if columns.spans and documents.spans is None:
        missing["spans"] = [[] for _ in range(count)]
    if columns.extra and documents.extra is None:
        nulls = [pa.nulls(count, field.type) for field in columns.extra]
        missing["extra"] = pa.Table.from_arrays(nulls, schema=columns.extra)
    return replace(documents, **missing) if missing else documents


def record_of(fields: Mapping[str, Any], columns: Columns, extra: tuple[Any, ...] = ()) -> Record:
    """The document of a record with its extra columns' values; BadRecordError if there is none."""
    document = id_of(fields, columns.id) if columns.id else None
    several = len(columns.texts) > 1
    text = _joined(fields, columns.texts) if several else fields.get(columns.texts[0])
    words = None
    if text is None:
        raise BadRecordError("missing text")
    if not isinstance(text, str):
        words = _words(text)
        text = " ".join(words)
    if not text or text.isspace():
        raise BadRecordError(BLANK_LINE)
    text_b = _text_b_of(fields, columns.text_b) if columns.text_b else ""
    spans: Sequence[Span] = ()
    if columns.spans:
        spans = _spans_of(fields, columns.spans, len(text) if words is None else len(words))
        spans = spans if words is None else _in_code_points(spans, words)
    return document, text, text_b, words, spans, extra


def documents_of(
    parsed: Iterable[Record | BadRecord], places: pa.StringArray, columns: Columns
) -> tuple[Documents, np.ndarray]:
    """Documents as columns, and int64 `[documents]`, their records; `places`: `[records]`."""
    records: list[Record] = []
    good: list[int] = []
    rejected: list[Rejected] = []
    for row, outcome in enumerate(parsed):
        if not isinstance(outcome, BadRecord):
            records.append(outcome)
            good.append(row)
            continue
        place = places[row].as_py()
        blank = not outcome.record.strip()
        document = outcome.id if columns.id else place
        if outcome.reason == ID_TOO_LONG:
            document = None
        rejected.append(
            Rejected(
                *(document, place, "read", outcome.reason, outcome.record, blank), outcome.detail
            )
        )
    rows = np.array(good, np.int64)
    sources = places if len(rows) == len(places) else places.take(pa.array(rows))
    ids, texts, texts_b, words, spans, extra = (
        map(list, zip(*records, strict=True)) if records else ([],) * 6
    )
    unfit: Counter[str] = Counter()
    documents = Documents(
        ids=pa.array(ids, pa.string()) if columns.id else sources,
        texts=texts,
        sources=sources,
        rejected=rejected,
        texts_b=texts_b if columns.text_b else None,
        words=words if any(words) else None,
        spans=spans if columns.spans else None,
        extra=_extra_table(extra, columns.extra, unfit) if columns.extra else None,
        unfit=unfit,
    )
    return documents, rows


def _extra_table(values: list[tuple[Any, ...]], schema: pa.Schema, unfit: Counter[str]) -> pa.Table:
    """The values of extra columns, null for those that do not fit, which are counted."""
    arrays = []
    by_column = zip(*values, strict=True) if values else [()] * len(schema)
    for column, described in zip(by_column, schema, strict=True):
        kept = [None if value is UNFIT else value for value in column]
        if lost := sum(value is UNFIT for value in column):
            unfit[described.name] += lost
        arrays.append(pa.array(kept, described.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _joined(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The strings of some fields, joined by a space; None where all are missing."""
    values = [value for name in names if (value := fields.get(name)) is not None]
    if not all(isinstance(value, str) for value in values):
        raise BadRecordError("text is not a string")
    return " ".join(value for value in values if value.strip()) if values else None


def _words(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise BadRecordError("text is not a string or a list of strings")
    return value


def _text_b_of(record: Mapping[str, Any], column: str) -> str:
    text = record.get(column)
    if text is not None and not isinstance(text, str):
        raise BadRecordError("second text is not a string")
    return "" if text is None or text.isspace() else text


def _spans_of(record: Mapping[str, Any], columns: tuple[str, str], length: int) -> list[Span]:
    starts, stops = (record.get(column) for column in columns)
    if starts is None or stops is None:
        raise BadRecordError("missing spans")
    if not isinstance(starts, list) and not isinstance(stops, list):
        starts, stops = [starts], [stops]
    if not isinstance(starts, list) or not isinstance(stops, list):
        raise BadRecordError("malformed spans", "one of the columns is a list, the other is not")
    if len(starts) != len(stops):
        raise BadRecordError("malformed spans", f"{len(starts)} starts, {len(stops)} stops")
    if not all(type(place) is int for place in (*starts, *stops)):  # true and false are int, too
        raise BadRecordError("malformed spans", "a start or stop is not an integer")
    spans = list(zip(starts, stops, strict=True))
    if not all(0 <= start < stop <= length for start, stop in spans):
        raise BadRecordError("span outside the text")
    return spans


def _in_code_points(spans: Sequence[Span], words: Sequence[str]) -> list[Span]:
    """Converts spans counted in words to code points of the text that joins the words."""
    begins = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    return [(begins[start], begins[stop] - 1) for start, stop in spans]


def id_of(record: Mapping[str, Any], column: str) -> str:
    """The id of a record; BadRecordError if it has none."""
    value = record.get(column)
    if value is None:
        raise BadRecordError("missing id")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRecordError("id is not a string or an integer")
    if isinstance(value, str) and len(value) > _MOST_ID_CHARS:
        raise BadRecordError(ID_TOO_LONG)
    return str(value)
