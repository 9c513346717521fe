"""Divides the tokens of texts into chunks: sentences, paragraphs, or runs of tokens."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bert_embed.ragged import splits_of
from bert_embed.rows.windows import Windows
from bert_embed.specs import TextSpec

if TYPE_CHECKING:
    from bert_embed.rows.documents import Documents

# A line break alone is a space, because most texts with short lines are wrapped; two or more, with
# only white space between them, end a paragraph.
_PARAGRAPH = re.compile(r"\n\s*\n\s*|\r\s*\r\s*|\u2029\s*")
_WRAP = re.compile(r"[\r\n]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LOCALE = "en"  # ICU's rules for sentences are those of UAX #29, the same for nearly all languages


def chunk_windows(documents: "Documents", spec: TextSpec) -> Windows:
    """Divides documents into chunks; a token belongs to that in which its sentence begins."""
    most = spec.most_chunk_tokens(documents.prompt_tokens)
    at, splits = documents.text_tokens()
    starts, inside = documents.tokens.starts[at], documents.tokens.continues[at]
    starts_in = _STARTS.get(spec.chunk or "")
    first, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for text, (begin, end) in zip(documents.texts, pairwise(splits.tolist()), strict=True):
        token_starts = starts[begin:end]
        units = None if starts_in is None else _borders(token_starts, starts_in(text))
        # Few paragraphs are so short that a whole one could be shared.
        shared = spec.chunk == "paragraph" and spec.chunk_overlap
        finer = _borders(token_starts, sentence_starts(text)) if shared else None
        firsts, lasts = _ranges(units, inside[begin:end], most, spec, finer)
        first.append(firsts)
        last.append(lasts)
    counts = np.array([len(chunks) for chunks in first[1:]], np.int64)
    begins = np.concatenate(first)
    return Windows(splits_of(counts), begins, np.concatenate(last) - begins)


def _borders(starts: np.ndarray, characters: np.ndarray) -> np.ndarray:
    """Returns the first tokens of parts that begin at some characters, and the number of tokens."""
    return np.unique(np.append(np.searchsorted(starts, characters), len(starts)))


def _ranges(
    units: np.ndarray | None,
    inside: np.ndarray,
    most: int,
    spec: TextSpec,
    finer: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """First token, and one past the last, int64 `[chunks]` each, of a document's chunks.

    `units` are where sentences begin, and the number of tokens, None for words; `inside`, bool
    `[tokens]`, continue a word; a chunk may begin within the one before at `finer`.
    """
    long = np.empty(0, np.int64) if units is None else np.flatnonzero(np.diff(units) > most)
    if units is not None and not len(long) and not spec.fills_chunks:
        return units[:-1], units[1:]
    words = _bounded(np.flatnonzero(~inside), len(inside), most)
    if units is None:
        units = words
    after = np.searchsorted(words, units[long], side="right").tolist()
    upto = np.searchsorted(words, units[long + 1]).tolist()
    within = [words[first:last] for first, last in zip(after, upto, strict=True)]
    if spec.fills_chunks:
        borders = np.sort(np.concatenate([units, *within]))
        return _columns(packed(borders, most, spec.chunk_overlap, finer))
    ranges: list[tuple[int, int]] = []
    divided = dict(zip(long.tolist(), within, strict=True))
    for number, (start, stop) in enumerate(pairwise(units.tolist())):
        if number in divided:
            ranges += packed(np.concatenate([[start], divided[number], [stop]]), most, 0)
        else:
            ranges.append((start, stop))
    return _columns(ranges)


def _columns(ranges: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    first, last = np.array(list(ranges), np.int64).T
    return first, last


def _bounded(begins: np.ndarray, length: int, most: int) -> np.ndarray:
    """Returns where words begin, and `length`; a word of more than `most` tokens is divided."""
    borders = np.unique(np.concatenate([[0], begins, [length]]))
    if (np.diff(borders) <= most).all():
        return borders
    parts = [np.arange(start, stop, most) for start, stop in pairwise(borders.tolist())]
    return np.append(np.concatenate(parts), length)


def packed(
    borders: np.ndarray, most: int, overlap: int, finer: np.ndarray | None = None
) -> Iterator[tuple[int, int]]:
    """Yields ranges of whole units, as many as have `most` tokens together.

    A range begins with as many of the last units of the range before as have `overlap` tokens
    together and leave room for the next unit. `borders`, int64 `[units + 1]`, and within the range
    before also `finer`, are where ranges may begin.

    >>> list(packed(np.array([0, 2, 4, 6, 8]), 5, 2))
    [(0, 4), (2, 6), (4, 8)]
    """
    begins = borders if finer is None else np.union1d(borders, finer)
    start = int(borders[0])
    while True:
        stop = int(np.searchsorted(borders, start + most, side="right")) - 1
        yield start, int(borders[stop])
        if stop == len(borders) - 1:
            return
        back = max(borders[stop] - overlap, borders[stop + 1] - most)
        start = int(begins[np.searchsorted(begins, back)])


def paragraph_starts(text: str) -> np.ndarray:
    """Returns where each paragraph begins, int64 `[paragraphs]`, in code points; the first is 0."""
    return np.array([0, *(border.end() for border in _PARAGRAPH.finditer(text))], np.int64)


def sentence_starts(text: str) -> np.ndarray:
    """Where each sentence begins, int64 `[sentences]`, in code points, by ICU's rules (UAX #29)."""
    from icu4py.breakers import SentenceBreaker  # 42 MB of ICU, which nothing else needs

    starts: list[np.ndarray] = []
    paragraphs = paragraph_starts(text)
    for start, stop in zip(paragraphs.tolist(), [*paragraphs[1:].tolist(), len(text)], strict=True):
        flat = _SURROGATE.sub("\ufffd", _WRAP.sub(" ", text[start:stop]))
        lengths = np.fromiter(map(len, SentenceBreaker(flat, _LOCALE)), np.int64)
        starts.append(start + np.append(0, np.cumsum(lengths)[:-1]))
    return np.concatenate(starts)


_STARTS: dict[str, Callable[[str], np.ndarray]] = {
    "sentence": sentence_starts,
    "paragraph": paragraph_starts,
}
