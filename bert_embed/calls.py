"""Reads the texts of a call, says how far it is, and compares vectors that a caller gives."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from bert_embed.base.arguments import span_lists, text_list, text_or_word_lists
from bert_embed.base.arrays import splits_of, unit
from bert_embed.base.environment import cell_line, in_notebook
from bert_embed.base.errors import SettingError, counted
from bert_embed.models.heads.vectors import MultiVector, MultiVectors, SparseVector, SparseVectors
from bert_embed.results.similarities import MaxSim, Similarity, SparseProducts

_PIECE = 1024  # texts between two messages: enough to group them by length
_PAUSE = 0.5  # seconds between messages, at least

# Arguments of `bert_embed.text.documents.tokenize_documents`: texts, and what belongs to them.
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


_OF_KIND: dict[str, type[Similarity]] = {"sparse": SparseProducts, "multi": MaxSim}
_RAGGED = (SparseVectors, MultiVectors)


def kind_pair(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Returns both as `SparseVectors` or `MultiVectors`; None if neither is; or SettingError."""
    first, second = _ragged(one), _ragged(other)
    if not isinstance(first, _RAGGED) and not isinstance(second, _RAGGED):
        return None
    kinds = [getattr(vectors, "kind", "dense") for vectors in (first, second)]
    if kinds[0] != kinds[1]:
        raise SettingError("other", f"must be {kinds[0]} vectors as the first, got {kinds[1]} ones")
    if first.width != second.width and first.width and second.width:
        raise SettingError("other", f"must be vectors of {first.width} numbers, got {second.width}")
    return first, second


def product_matrix(one: Any, other: Any) -> np.ndarray:
    """Returns the dot products of sparse vectors or MaxSim, float32 `[n, m]`, 0 without any."""
    similarity = _OF_KIND[one.kind](one)
    scores = np.zeros((len(one), len(other)), np.float32)
    floor = np.full(len(one), -np.inf)
    for number, rows, products in similarity.scored(other, floor, len(other)):
        scores[number, rows] = products
    return scores


def product_pairs(one: Any, other: Any) -> np.ndarray:
    """Returns the same of each row and the row of `other` with its number, float32 `[n]`."""
    _check_count(one, other)
    rows = range(len(one))
    pairs = [product_matrix(one[row : row + 1], other[row : row + 1])[0, 0] for row in rows]
    return np.array(pairs, np.float32)


def _ragged(vectors: Any) -> Any:
    """One row as rows, and a SciPy array as sparse vectors; anything else as it is."""
    if isinstance(vectors, SparseVector):
        splits = splits_of(np.array([len(vectors)]))
        return SparseVectors(splits, vectors.indices, vectors.values, vectors.width)
    if isinstance(vectors, MultiVector):
        return MultiVectors(splits_of(np.array([len(vectors)])), vectors.vectors)
    if hasattr(vectors, "tocsr") and vectors.ndim == 2:
        rows = vectors.tocsr()
        splits, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        return SparseVectors(splits, indices, rows.data.astype(np.float32), rows.shape[1])
    return vectors


def dense_matrix(one: Any, other: Any, similarity: str) -> np.ndarray:
    """Does what `Encoder.similarity` says of dense vectors."""
    first, second = _dense_vectors(one, other)
    if similarity in ("euclidean", "manhattan"):
        rows = [_DENSE[similarity](vector, second) for vector in first]
        return np.array(rows, np.float32).reshape(len(first), len(second))
    if similarity == "cosine":
        first, second = unit(first), unit(second)
    return first @ second.T


def dense_pairs(one: Any, other: Any, similarity: str) -> np.ndarray:
    """Does what `Encoder.similarity_pairwise` says of dense vectors."""
    first, second = _dense_vectors(one, other)
    _check_count(first, second)
    return _DENSE[similarity](first, second).astype(np.float32)


# Of vectors `[..., dim]`, those of one with those of the other
_DENSE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda one, other: np.vecdot(unit(one), unit(other)),
    "dot": np.vecdot,
    "euclidean": lambda one, other: -np.linalg.norm(one - other, axis=-1),
    "manhattan": lambda one, other: -np.abs(one - other).sum(axis=-1),
}


def _check_count(one: Any, other: Any) -> None:
    if len(one) != len(other):
        raise SettingError(
            "other", f"must be {counted(len(one), 'vector')} as the first, got {len(other)}"
        )


def _dense_vectors(one: Any, other: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = _numbers("one", one), _numbers("other", other)
    if first.shape[1] != second.shape[1]:
        raise SettingError(
            "other", f"must be vectors of {first.shape[1]} numbers, got {second.shape[1]}"
        )
    return first, second


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        vectors = np.atleast_2d(np.asarray(values, np.float32))
    except (TypeError, ValueError) as error:
        raise SettingError(
            name, "must be vectors, numbers [vectors, dim] or [dim]; encode texts first"
        ) from error
    if vectors.ndim != 2:
        raise SettingError(name, f"must be numbers [vectors, dim] or [dim], got {vectors.shape}")
    return vectors
