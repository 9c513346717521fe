"""Reads the texts of a call, and says how many of them are done."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any

from bert_embed.arguments import span_lists, text_list, text_or_word_lists
from bert_embed.notebook import cell_line, in_notebook
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


def in_pieces(
    columns: Columns, progress: bool
) -> Iterator[tuple[Columns, Callable[[float], None] | None]]:
    """Yields columns at once, or in pieces with a line that says what is done.

    With each piece comes what takes further shares of it that are done, from any thread.
    """
    total = len(columns["texts"])
    if not progress or total == 0:
        yield columns, None
        return
    in_cell = in_notebook()
    show = cell_line() if in_cell else _stderr_line()
    started = shown = time.monotonic()
    lock, done, is_over = threading.Lock(), 0.0, False

    def add(size: int, share: float) -> None:
        nonlocal done, shown
        with lock:
            done += size * share
            now = time.monotonic()
            if now - shown >= _PAUSE and not is_over:
                shown = now
                show(_progress(int(done), total, now - started))

    try:
        for begin in range(0, total, _PIECE):
            piece = slice(begin, begin + _PIECE)
            some = {
                name: None if values is None else values[piece] for name, values in columns.items()
            }
            size = min(_PIECE, total - begin)
            yield some, partial(add, size)
            done = begin + size  # of all threads, which have come to an end
    finally:
        is_over = True  # also where Ctrl-C left threads that compute
    show(_progress(total, total, time.monotonic() - started))
    if not in_cell:
        _put("\n")


def _progress(done: int, total: int, seconds: float) -> str:
    return f"{done:,} of {counted(total, 'text')}, {done / max(seconds, 1e-3):,.0f} texts/s"


def _stderr_line() -> Callable[[str], None]:
    """What writes a line over the one that it wrote before."""
    length = 0

    def show(line: str) -> None:
        nonlocal length
        _put(f"\r{line.ljust(length)}")
        length = len(line)

    return show


def _put(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it
        sys.stderr.write(text)
        sys.stderr.flush()
