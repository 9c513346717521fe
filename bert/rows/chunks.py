"""Divides the tokens of texts into chunks: sentences, paragraphs, or runs of tokens."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bert.ragged import splits_of
from bert.rows.boundaries import paragraph_starts, sentence_starts
from bert.rows.windows import Windows
from bert.specs import TextSpec

if TYPE_CHECKING:
    from bert.rows.documents import Documents

_STARTS: dict[str, Callable[[str], np.ndarray]] = {
    "sentence": sentence_starts,
    "paragraph": paragraph_starts,
}


def chunk_windows(documents: "Documents", spec: TextSpec, continues: np.ndarray) -> Windows:
    """Divides documents into chunks, each a range of its document's tokens.

    Every token belongs to a chunk, and every chunk has a token: a sentence of white space alone
    gives none. A token belongs to the sentence in which it begins.

    Args:
        documents: With offsets; each has at least one token.
        spec: What a chunk is.
        continues: bool `[vocabulary]`, which entries begin with `##`.
    """
    most = spec.chunk_room(documents.prompt_tokens)
    at, splits = documents.text_tokens()
    starts, inside = documents.tokens.starts[at], continues[documents.tokens.ids[at]]
    starts_in = _STARTS.get(spec.chunk or "")
    counts, first, last = [], [], []
    for text, (begin, end) in zip(documents.texts, pairwise(splits.tolist()), strict=True):
        units = words = _bounded(np.flatnonzero(~inside[begin:end]), end - begin, most)
        if starts_in is not None:
            places = np.searchsorted(starts[begin:end], starts_in(text))
            units = np.unique(np.append(places, end - begin))
        found = list(_ranges(units, words, most, spec))
        counts.append(len(found))
        first += [one for one, _ in found]
        last += [other for _, other in found]
    begins = np.array(first, np.int64)
    return Windows(splits_of(np.array(counts, np.int64)), begins, np.array(last) - begins)


def _bounded(begins: np.ndarray, length: int, most: int) -> np.ndarray:
    """Returns where words begin, and `length`; a word of more than `most` tokens is divided."""
    borders = np.unique(np.concatenate([[0], begins, [length]]))
    if (np.diff(borders) <= most).all():
        return borders
    more = [np.arange(start, stop, most) for start, stop in pairwise(borders.tolist())]
    return np.append(np.concatenate(more), length)


def _ranges(
    units: np.ndarray, words: np.ndarray, most: int, spec: TextSpec
) -> Iterator[tuple[int, int]]:
    """Yields first token, and one past the last, of each chunk of a document.

    Args:
        units: Where each sentence, paragraph or word begins, and the number of tokens.
        words: Where each word begins, and the number of tokens.
        most: Tokens of a chunk.
        spec: As in `chunk_windows`.
    """
    long = np.flatnonzero(np.diff(units) > most)
    if spec.fills_chunks:
        within = [words[(words > units[one]) & (words < units[one + 1])] for one in long.tolist()]
        yield from packed(np.sort(np.concatenate([units, *within])), most, spec.chunk_overlap)
        return
    too_long = set(long.tolist())
    for number, (start, stop) in enumerate(pairwise(units.tolist())):
        if number in too_long:
            own = words[(words > start) & (words < stop)]
            yield from packed(np.concatenate([[start], own, [stop]]), most, 0)
        else:
            yield start, stop


def packed(borders: np.ndarray, most: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of whole units, as many as have `most` tokens together.

    A range begins with as many of the last units of the range before as have `overlap` tokens
    together and leave room for the next unit.

    Args:
        borders: int64 `[units + 1]`, where each unit begins, and the end; none is over `most`.
        most: Tokens of a range.
        overlap: Tokens that neighbouring ranges share.

    >>> list(packed(np.array([0, 2, 4, 6, 8]), 5, 2))
    [(0, 4), (2, 6), (4, 8)]
    """
    start = 0
    while True:
        stop = int(np.searchsorted(borders, borders[start] + most, side="right")) - 1
        yield int(borders[start]), int(borders[stop])
        if stop == len(borders) - 1:
            return
        back = max(borders[stop] - overlap, borders[stop + 1] - most)
        start = int(np.searchsorted(borders, back))
