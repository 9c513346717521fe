"""Turns texts into the distinct rows that the model runs on, and says which texts get none."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_embed.rows.build import Rows
from bert_embed.rows.documents import Documents, Spans, tokenize_documents
from bert_embed.rows.layout import Layout, is_too_long, lay_out
from bert_embed.rows.unique import unique_rows
from bert_embed.specs import TextSpec
from bert_embed.tokenization.protocol import TextTokenizer

NO_TOKENS, TOO_LONG = "no tokens", "text too long"


@dataclass(frozen=True)
class TextRows:
    """The rows of some texts."""

    numbers: np.ndarray  # int64 [documents], which of the texts have rows, ascending
    rejected: dict[int, str]  # reasons of the other texts, by their numbers in order
    documents: Documents  # those with rows
    layout: Layout  # how these were cut into rows: one each, or windows
    row: np.ndarray  # int32 [rows of the layout], which of the distinct rows each one equals
    rows: Rows  # the distinct rows, with [CLS] and [SEP]


def text_rows(
    tokenizer: TextTokenizer,
    spec: TextSpec,
    texts: Sequence[str],
    *,
    texts_b: Sequence[str] | None = None,
    words: Sequence[Sequence[str] | None] | None = None,
    spans: Spans | None = None,
) -> TextRows:
    """Tokenizes texts in one call; one without tokens, or too long to "reject", gets no rows."""
    documents = tokenize_documents(
        tokenizer,
        texts,
        offsets=spec.needs_tokens or spec.keeps_windows,
        prompt=spec.prompt,
        marker=spec.marker,
        texts_b=texts_b,
        words=words,
        spans=spans,
    )
    empty = documents.lengths == 0
    bad = empty
    if spec.long_text == "reject":
        bad = empty | is_too_long(documents, spec, tokenizer)
    reasons = {
        number: NO_TOKENS if empty[number] else TOO_LONG for number in np.flatnonzero(bad).tolist()
    }
    numbers = np.flatnonzero(~bad)
    documents = documents.take(numbers)
    rows, layout = lay_out(documents, spec, tokenizer)
    rows, row = unique_rows(rows, rows.input_ids)
    return TextRows(numbers, reasons, documents, layout, row, rows)


def failed_documents(layout: Layout, row: np.ndarray, failed: dict[int, str]) -> dict[int, str]:
    """Documents with a distinct row that `failed`, in order, and the reason of the first one."""
    if not failed:
        return {}
    windows = np.flatnonzero(np.isin(row, list(failed)))
    documents = windows if layout.windows is None else layout.windows.document[windows]
    first, at = np.unique(documents, return_index=True)
    return {
        int(document): failed[int(row[windows[place]])]
        for document, place in zip(first, at, strict=True)
    }
