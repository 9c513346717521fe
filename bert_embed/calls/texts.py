"""Reads the texts of a call, and says how many of them are done."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from typing import Any

from bert_embed.arguments import span_lists, text_list, text_or_word_lists
from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted

_PIECE = 1024  # texts between two messages: enough to group them by length
_PAUSE = 0.5  # seconds between messages, at least

# Arguments of `bert_embed.rows.documents.tokenize_documents`: texts, and what belongs to them.
Columns = dict[str, Any]


def text_columns(texts: Any, texts_b: Any = None) -> Columns:
    """Returns one text, texts or pairs; SettingError if they are none, or not equally many."""
    if isinstance(texts_b, str):
        raise SettingError(
            "texts_b",
            "must be a list of texts, got one str; a pair is encode([one], [other]), a prompt is "
            "prompt",
        )
    one = isinstance(texts, str)
    if one and texts_b is not None:
        raise SettingError("texts_b", "is for pairs, texts must be a list then")
    first = text_list("texts", [texts] if one else texts)
    second = None if texts_b is None else text_list("texts_b", texts_b)
    if second is not None and len(second) != len(first):
        raise SettingError("texts_b", f"must be {counted(len(first), 'text')}, got {len(second)}")
    return {"texts": first, "texts_b": second}


def word_columns(texts: Any) -> Columns:
    """Returns texts and lists of words, which are joined by spaces; SettingError as above."""
    listed = text_or_word_lists("texts", texts)
    words = [None if isinstance(text, str) else text for text in listed]
    joined = [text if isinstance(text, str) else " ".join(text) for text in listed]
    has_lists = any(of_text is not None for of_text in words)
    return {"texts": joined, "words": words if has_lists else None}


def span_columns(texts: Any, spans: Any) -> Columns:
    """Returns texts and their spans in characters; of a list of words, from spans of words."""
    columns = word_columns(texts)
    words = columns["words"] or [None] * len(columns["texts"])
    units = [
        text if listed is None else listed
        for text, listed in zip(columns["texts"], words, strict=True)
    ]
    checked = span_lists("spans", spans, list(map(len, units)))
    for place, listed in enumerate(words):
        if listed is not None:
            begins = list(accumulate((len(word) + 1 for word in listed), initial=0))
            checked[place] = [(begins[start], begins[stop] - 1) for start, stop in checked[place]]
    return {"texts": columns["texts"], "spans": checked}


def in_pieces(columns: Columns, progress: bool) -> Iterator[Columns]:
    """Yields columns at once, or in pieces with a line on stderr that says what is done."""
    total = len(columns["texts"])
    if not progress or total == 0:
        yield columns
        return
    started = shown = time.monotonic()
    for begin in range(0, total, _PIECE):
        piece = slice(begin, begin + _PIECE)
        yield {name: None if values is None else values[piece] for name, values in columns.items()}
        now, done = time.monotonic(), min(begin + _PIECE, total)
        if now - shown >= _PAUSE or done == total:
            shown, rate = now, done / max(now - started, 1e-3)
            end = "\n" if done == total else ""
            with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it
                sys.stderr.write(
                    f"\r{done:,} of {counted(total, 'text')}, {rate:,.0f} texts/s{end}"
                )
                sys.stderr.flush()
