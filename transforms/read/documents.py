"""Defines Documents, the parsed records of a file, and joins those of a part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.records.columnar import join
from bert_embed.transforms.records.rejected import Rejected


@dataclass(frozen=True)
class Documents:
    """Documents as columns, which are those of `DocumentBlock`, and the records that give none.

    Attributes:
        rejected: The rejected records, in their order.
        texts_b, spans, extra: None if no record can have any.
    """

    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    rejected: list[Rejected]
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    extra: pa.Table | None = None


_NO_DOCUMENTS = Documents(pa.array([], pa.string()), [], pa.array([], pa.string()), [])


def join_documents(several: Sequence[Documents], columns: Columns) -> Documents:
    """Joins the documents of several files end to end.

    A file may lack a column: its documents then get "" for a second text, no spans, and null in the
    extra columns.
    """
    listed = any(each.words is not None for each in several)
    return join([_completed(each, columns, listed) for each in (_NO_DOCUMENTS, *several)])


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
