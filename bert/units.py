"""Units: words and spans as ranges of tokens in, one vector each out."""

from collections.abc import Callable

import numpy as np

from bert.ragged import places, splits_of

WORD_POOLINGS = ("mean", "sum", "first", "last", "max")
_AT_ONCE = 4096  # tokens that are copied together: spans may overlap, all of them would be many


def word_ranges(
    continues: np.ndarray, token_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the words that WordPiece split: a piece with `##` goes on with the word before it.

    Args:
        continues: bool `[tokens]`, whether a token begins with `##`.
        token_splits: int64 `[documents + 1]`.

    Returns:
        int64 `[documents + 1]`, the words of each document, and int64 `[words]` each: first token
        and one past the last.
    """
    begins = ~continues
    begins[token_splits[:-1][np.diff(token_splits) > 0]] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(continues))[: len(first)]
    return np.searchsorted(first, token_splits), first, last


def span_ranges(
    starts: np.ndarray,
    stops: np.ndarray,
    token_splits: np.ndarray,
    span_splits: np.ndarray,
    span_starts: np.ndarray,
    span_stops: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the tokens that overlap each span of characters.

    Args:
        starts: int `[tokens]`, the first character of each token; ascending in a document.
        stops: int `[tokens]`, one past its last.
        token_splits: int64 `[documents + 1]`.
        span_splits: int64 `[documents + 1]`, the spans of each document.
        span_starts: int `[spans]`.
        span_stops: int `[spans]`.

    Returns:
        int64 `[spans]` each: first token and one past the last; equal where there is none.
    """
    # Each document gets a stretch of the number line to itself, so that one search serves all.
    stretch = int(max(stops.max(initial=0), span_stops.max(initial=0))) + 1
    documents = np.arange(len(token_splits) - 1, dtype=np.int64) * stretch
    ours = np.repeat(documents, np.diff(token_splits))
    theirs = np.repeat(documents, np.diff(span_splits))
    first = np.searchsorted(ours + stops, theirs + span_starts, side="right")
    last = np.searchsorted(ours + starts, theirs + span_stops, side="left")
    return first, np.maximum(first, last)


def merge_tokens(
    vectors: np.ndarray, first: np.ndarray, last: np.ndarray, pooling: str
) -> np.ndarray:
    """Makes one vector of the tokens of each unit.

    Args:
        vectors: float32 `[tokens, width]`.
        first: int64 `[units]`, first token; units may overlap.
        last: int64 `[units]`, one past the last.
        pooling: One of `WORD_POOLINGS`.

    Returns:
        float32 `[units, width]`; zeros for a unit without a token.
    """
    counts = last - first
    filled = np.flatnonzero(counts > 0)
    merged = np.zeros((len(counts), vectors.shape[1]), np.float32)
    if len(filled) == 0:
        return merged
    if pooling in ("first", "last"):
        merged[filled] = vectors[first[filled] if pooling == "first" else last[filled] - 1]
        return merged
    borders = np.flatnonzero(np.diff(np.cumsum(counts[filled]) // _AT_ONCE)) + 1
    for some in np.split(filled, borders):
        taken = vectors[places(first[some], counts[some])]
        merged[some] = _REDUCED[pooling](taken, splits_of(counts[some])[:-1])
    if pooling == "mean":
        merged[filled] /= counts[filled, None].astype(np.float32)
    return merged


def _sums(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, begins, axis=0)


def _maxima(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(values, begins, axis=0)


_REDUCED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": _sums,
    "sum": _sums,
    "max": _maxima,
}
