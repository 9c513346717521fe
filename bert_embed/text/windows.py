"""Splits long texts into windows that overlap, and into chunks at the ends of sentences."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_embed.base.arrays import places, splits_of
from bert_embed.base.errors import SettingError
from bert_embed.settings import DEFAULT_STRIDE, SPECIAL_TOKENS, TextSpec, text_room
from bert_embed.text.documents import NO_TOKEN, Documents, Rows


@dataclass(frozen=True)
class Windows:
    """The tokens of its text that each row holds."""

    splits: np.ndarray  # int64 [documents + 1], the windows of each document, at least one
    first: np.ndarray  # int64 [windows], the number of a window's first token in its text
    count: np.ndarray  # int64 [windows], number of tokens of the text in it

    @property
    def document(self) -> np.ndarray:
        """int64 `[windows]`, the document of each."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))


def window_tokens(
    max_seq_length: int, prompt_tokens: int, stride: int, special: int = SPECIAL_TOKENS
) -> int:
    """Returns how many tokens of a text fit a window; SettingError if not more than `stride`."""
    longest = text_room(max_seq_length, prompt_tokens, special)
    if not 0 <= stride < longest:
        raise SettingError(
            "stride",
            f"must be at least 0 and below {max(longest, 1)}, the tokens of a text that fit a row "
            f"of max_seq_length {max_seq_length}, got {stride}",
            "max_seq_length",
        )
    return longest


def default_stride(max_seq_length: int, prompt_tokens: int) -> int:
    """Returns the default number of shared tokens: 64, or half of a short window.

    >>> default_stride(512, 0), default_stride(64, 0)
    (64, 31)
    """
    return max(0, min(DEFAULT_STRIDE, text_room(max_seq_length, prompt_tokens) // 2))


def build_windows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    stride: int,
    prompt_tokens: int | np.ndarray = 0,
) -> tuple[Rows, Windows]:
    """Rows of `[CLS]`, prompt, tokens, `[SEP]` that cover each text, none of them empty.

    `ids` are int32 `[tokens]`, all texts end to end, each after its prompt; `row_splits` int64
    `[documents + 1]`. Neighbouring rows of a text that does not fit one share `stride` tokens,
    fewer where `prompt_tokens`, int64 `[documents]` where they differ, leave less room.
    """
    special = SPECIAL_TOKENS * (cls_id != NO_TOKEN)
    lengths = np.diff(row_splits) - prompt_tokens
    if not isinstance(prompt_tokens, np.ndarray):
        window_tokens(max_seq_length, prompt_tokens, stride, special)
    longest = np.broadcast_to(text_room(max_seq_length, 0, special) - prompt_tokens, lengths.shape)
    shared = np.minimum(stride, longest - 1)
    step = longest - shared
    counts = np.where(lengths <= longest, 1, -(-(lengths - shared) // step))
    splits = splits_of(counts)
    document = np.repeat(np.arange(len(lengths)), counts)
    first = (np.arange(splits[-1]) - splits[document]) * step[document]
    windows = Windows(splits, first, np.minimum(longest[document], lengths[document] - first))
    return window_rows(ids, row_splits, windows, cls_id, sep_id, prompt_tokens), windows


def window_rows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    windows: Windows,
    cls_id: int,
    sep_id: int,
    prompt_tokens: int | np.ndarray = 0,
) -> Rows:
    """Builds a row `[CLS] prompt tokens [SEP]` for each window; arguments as `build_windows`."""
    document = windows.document
    begin = int(cls_id != NO_TOKEN)
    prompt = np.broadcast_to(prompt_tokens, len(windows.splits) - 1)[document]
    borders = splits_of(windows.count + prompt + begin * SPECIAL_TOKENS)
    out = np.full(borders[-1], sep_id, np.int32)
    if begin:
        out[borders[:-1]] = cls_id
    begins, after_cls = row_splits[document], borders[:-1] + begin
    out[places(after_cls, prompt)] = ids[places(begins, prompt)]
    texts = places(begins + prompt + windows.first, windows.count)
    out[places(after_cls + prompt, windows.count)] = ids[texts]
    return Rows(out, borders, None, np.zeros(len(document), bool))


def window_spans(documents: Documents, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """int32 `[windows]` each: first character, and one past the last; in code points."""
    tokens = documents.tokens
    before = tokens.row_splits[:-1] + documents.prompt_tokens
    begins = before[windows.document] + windows.first
    return tokens.starts[begins], tokens.stops[begins + windows.count - 1]


def widest_context(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """int64 `[tokens of all texts]` each: the window with most context, and the place in it.

    The rule is that of `_check_is_max_context` in google-research/bert's run_squad.py: the largest
    smaller side, then the longer window, then the earlier one.
    """
    window = np.repeat(np.arange(len(windows.count)), windows.count)
    inside = places(np.zeros(len(windows.count), np.int64), windows.count)
    sides = np.minimum(inside, windows.count[window] - 1 - inside)
    score = sides + 0.01 * windows.count[window]
    token = windows.first[window] + inside
    document = windows.document[window]
    order = np.lexsort((window, -score, token, document))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(token[order]) != 0) | (np.diff(document[order]) != 0)
    best = order[new]
    return window[best], inside[best]


# A line break alone is a space, because most texts with short lines are wrapped; two or more, with
# only white space between them, end a paragraph.
_PARAGRAPH = re.compile(r"\n\s*\n\s*|\r\s*\r\s*|\u2029\s*")
_WRAP = re.compile(r"[\r\n]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LOCALE = "en"  # ICU's rules for sentences are those of UAX #29, the same for nearly all languages


def chunk_windows(documents: Documents, spec: TextSpec, taken: int | np.ndarray = 0) -> Windows:
    """Divides documents into chunks; a token belongs to that in which its sentence begins.

    `taken`, int64 `[documents]`, are tokens of a row beside prompt and chunk.
    """
    room = text_room(spec.max_seq_length, 0, documents.special) - documents.prompt_tokens - taken
    most = spec.chunk_tokens or room
    if not spec.pools_late:  # a chunk that is pooled in its document may be longer than a row
        most = np.minimum(most, room)
    limits = np.broadcast_to(most, len(documents))
    at, splits = documents.text_tokens()
    starts, inside = documents.tokens.starts[at], documents.tokens.continues[at]
    starts_in = _STARTS.get(spec.chunk or "")
    first, last = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    of_texts = zip(documents.texts, pairwise(splits.tolist()), limits.tolist(), strict=True)
    for text, (begin, end), most in of_texts:
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
    overlap = min(spec.chunk_overlap, most - 1)
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
        return _columns(packed(borders, most, overlap, finer))
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
