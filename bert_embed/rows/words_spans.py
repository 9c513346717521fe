"""Finds the tokens of words and spans, and merges their vectors."""

import numpy as np

from bert_embed.ragged import places, splits_of

_AT_ONCE = 4096  # tokens to copy at a time; spans may overlap, so all of them may be many


def word_ranges(
    continues: np.ndarray, token_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words of tokens, bool `[tokens]`, of which some continue the word before.

    int64 `[documents + 1]`, and int64 `[words]` each: first token and one past the last.
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
    """int64 `[spans]` each: first token, and one past the last, that overlap a span of characters.

    Both are equal where there is none. Splits are int64 `[documents + 1]`; tokens are in order.
    """
    # Each document gets a range of numbers of its own, so that one search is enough.
    stretch = int(max(stops.max(initial=0), span_stops.max(initial=0))) + 1
    documents = np.arange(len(token_splits) - 1, dtype=np.int64) * stretch
    of_tokens = np.repeat(documents, np.diff(token_splits))
    of_spans = np.repeat(documents, np.diff(span_splits))
    first = np.searchsorted(of_tokens + stops, of_spans + span_starts, side="right")
    last = np.searchsorted(of_tokens + starts, of_spans + span_stops, side="left")
    return first, np.maximum(first, last)


def merge_tokens(
    vectors: np.ndarray, first: np.ndarray, last: np.ndarray, pooling: str
) -> np.ndarray:
    """float32 `[units, width]`: tokens `[first, last)` of each unit merged; zeros without any."""
    counts = last - first
    filled = np.flatnonzero(counts > 0)
    merged = np.zeros((len(counts), vectors.shape[1]), np.float32)
    if len(filled) == 0:
        return merged
    if pooling in ("first", "last"):
        merged[filled] = vectors[first[filled] if pooling == "first" else last[filled] - 1]
        return merged
    borders = np.flatnonzero(np.diff(np.cumsum(counts[filled]) // _AT_ONCE)) + 1
    reduce = np.maximum if pooling == "max" else np.add
    for units in np.split(filled, borders):
        of_units = vectors[places(first[units], counts[units])]
        merged[units] = reduce.reduceat(of_units, splits_of(counts[units])[:-1], axis=0)
    if pooling == "mean":
        merged[filled] /= counts[filled, None].astype(np.float32)
    return merged
