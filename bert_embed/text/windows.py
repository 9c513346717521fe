"""Splits long texts into windows that overlap, and into chunks, with what the model sees before.

A chunk ends with a sentence. Before it may be columns of its document, and the Markdown headings
above it: such a context, one space and the chunk are tokenized as one text, after the prompt, which
models were trained to see first.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_embed.base.arrays import first_of_equal, places, splits_of
from bert_embed.settings import DEFAULT_OVERLAP, SPECIAL_TOKENS, TextSpec, text_room
from bert_embed.text.documents import (
    NO_TOKEN,
    TextTokenizer,
    TokenizedDocuments,
    TokenRows,
    build_rows,
)
from bert_embed.text.normalizer import SURROGATES


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


def default_overlap(max_seq_length: int, prompt_tokens: int) -> int:
    """Returns the default number of shared tokens: 64, or half of a short window.

    >>> default_overlap(512, 0), default_overlap(64, 0)
    (64, 31)
    """
    return max(0, min(DEFAULT_OVERLAP, text_room(max_seq_length, prompt_tokens) // 2))


def build_windows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    overlap: int,
    prompt_tokens: int | np.ndarray = 0,
) -> tuple[TokenRows, Windows]:
    """Rows of `[CLS]`, prompt, tokens, `[SEP]` that cover each text, none of them empty.

    `ids` are int32 `[tokens]`, all texts end to end, each after its prompt; `row_splits` int64
    `[documents + 1]`. Neighbouring rows of a text that does not fit one share `overlap` tokens,
    fewer where `prompt_tokens`, int64 `[documents]` where they differ, leave less room.
    """
    special = SPECIAL_TOKENS * (cls_id != NO_TOKEN)
    lengths = np.diff(row_splits) - prompt_tokens
    longest = np.broadcast_to(text_room(max_seq_length, 0, special) - prompt_tokens, lengths.shape)
    shared = np.minimum(overlap, longest - 1)
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
) -> TokenRows:
    """Builds a row `[CLS] prompt tokens [SEP]` for each window; arguments as `build_windows`."""
    begins = row_splits[windows.document]
    prompt = np.broadcast_to(prompt_tokens, len(windows.splits) - 1)[windows.document]
    starts = np.stack([begins, begins + prompt + windows.first], axis=1).ravel()
    lengths = np.stack([prompt, windows.count], axis=1).ravel()
    counts = prompt + windows.count
    most = SPECIAL_TOKENS + int(counts.max(initial=0))
    return build_rows(ids[places(starts, lengths)], splits_of(counts), most, cls_id, sep_id)


def window_spans(documents: TokenizedDocuments, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
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
    best = order[first_of_equal(token[order], document[order])]
    return window[best], inside[best]


# A line break alone is a space, because most texts with short lines are wrapped; two or more, with
# only white space between them, end a paragraph.
_PARAGRAPH = re.compile(r"\n\s*\n\s*|\r\s*\r\s*|\u2029\s*")
_WRAP = re.compile(r"[\r\n]")
_LOCALE = "en"  # ICU's rules for sentences are those of UAX #29, the same for nearly all languages


def chunk_windows(
    documents: TokenizedDocuments, spec: TextSpec, taken: int | np.ndarray = 0
) -> Windows:
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
        finer = None
        # Few paragraphs are so short that a whole one could be shared, and long ones are divided.
        divides = units is not None and (spec.overlap or (np.diff(units) > most).any())
        if spec.chunk == "paragraph" and divides:
            finer = _borders(token_starts, sentence_starts(text))
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

    `units` are where sentences or paragraphs begin, and the number of tokens, None for words;
    `inside`, bool `[tokens]`, continue a word. `finer` are where the sentences of paragraphs begin:
    there long ones are divided, and a chunk may begin within the one before.
    """
    overlap = min(spec.overlap or 0, most - 1)
    long = np.empty(0, np.int64) if units is None else np.flatnonzero(np.diff(units) > most)
    if units is not None and not len(long) and not spec.fills_chunks:
        return units[:-1], units[1:]
    words = _bounded(np.flatnonzero(~inside), len(inside), most)
    if units is None:
        units = words
    sentences = np.empty(0, np.int64) if finer is None else finer
    within = [
        _within(start, stop, sentences, words, most)
        for start, stop in zip(units[long].tolist(), units[long + 1].tolist(), strict=True)
    ]
    borders = np.sort(np.concatenate([units, *within]))
    if spec.fills_chunks:
        return _columns(packed(borders, most, overlap, finer))
    ranges: list[tuple[int, int]] = []
    for first, last in pairwise(np.searchsorted(borders, units).tolist()):
        ranges += packed(borders[first : last + 1], most, 0)
    return _columns(ranges)


def _within(
    start: int, stop: int, sentences: np.ndarray, words: np.ndarray, most: int
) -> np.ndarray:
    """Where a part of more than `most` tokens is divided: at sentences, long ones at words."""
    borders = sentences[(start < sentences) & (sentences < stop)]
    divided = [borders]
    for first, last in pairwise([start, *borders.tolist(), stop]):
        if last - first > most:
            divided.append(words[(first < words) & (words < last)])
    return np.sort(np.concatenate(divided))


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
        flat = SURROGATES.sub("\ufffd", _WRAP.sub(" ", text[start:stop]))
        lengths = np.fromiter(map(len, SentenceBreaker(flat, _LOCALE)), np.int64)
        starts.append(start + np.append(0, np.cumsum(lengths)[:-1]))
    return np.concatenate(starts)


_STARTS: dict[str, Callable[[str], np.ndarray]] = {
    "sentence": sentence_starts,
    "paragraph": paragraph_starts,
}


SEPARATOR = " "  # between values, headings and the chunk, as between the columns of a text

# CommonMark 0.31, sections 4.1 to 4.3 and 4.5; a heading with an underline is one line here.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_ITEM = r"(?:[-+*]|[0-9]{1,9}[.)])[ \t]"  # begins an item of a list
# Of all marks, as a part of them has one behind it: to try each part would take their square.
_FENCE = re.compile(rf"( {{0,3}}(?:{_ITEM}{{1,4}})*)(`{{3,}}+(?!.*`)|~{{3,}}).*")
_INDENTED = re.compile(r" {4}| {0,3}\t")
_BREAK = re.compile(r" {0,3}([-_*])[ \t]*(?:\1[ \t]*){2,}")  # a line across the page
# Of a list, a quotation or a table, below which a line of dashes makes no heading.
_WITHIN = re.compile(rf" {{0,3}}(?:[>|]|{_ITEM})")


@dataclass(frozen=True)
class Heading:
    """A heading of a Markdown text."""

    start: int  # of its first character that is no space, in code points
    level: int  # 1 to 6
    text: str  # without marks and underline


def markdown_headings(text: str) -> list[Heading]:
    """The headings of a text, in order; none of them in fenced code.

    >>> [(one.level, one.text) for one in markdown_headings("# One #\\n\\nTwo\\n---\\n#no")]
    [(1, 'One'), (2, 'Two')]
    """
    headings: list[Heading] = []
    fence, before, begin, length, paragraph, item = "", "", 0, 0, 0, 0
    for line in _LINE.findall(text):
        content = line.rstrip("\r\n")
        bare, white = content.strip(" \t"), len(content) - len(content.lstrip(" \t"))
        indent = len(content[:white].expandtabs(4)) - item
        if bare and indent < 0:
            fence, item = "", 0  # with the item of a list that held it
        mark = _FENCE.fullmatch(content)
        if fence:
            if indent < 4 and bare.startswith(fence) and not bare.strip(fence[0]):
                fence, item = "", 0
        elif mark is not None:
            fence, paragraph = mark[2], 0
            item = len(mark[1].expandtabs(4)) if mark[1].strip() else 0
        elif (matched := _HEADING.match(content)) is not None:
            title = content[matched.end() :].strip()
            if (unclosed := title.rstrip("#"))[-1:] in ("", " ", "\t"):
                title = unclosed.rstrip()
            headings.append(Heading(begin + matched.start(1), len(matched[1]), title))
            paragraph = 0
        elif paragraph == 1 and (under := _UNDERLINE.fullmatch(content)) is not None:
            indent = len(before) - len(before.lstrip())
            level = 1 if under[1][0] == "=" else 2
            headings.append(Heading(begin - length + indent, level, before.strip()))
            paragraph = 0
        elif not content.strip() or _BREAK.fullmatch(content):
            paragraph = 0
        elif not paragraph and _INDENTED.match(content):
            pass  # code
        else:
            paragraph += 2 if _WITHIN.match(content) else 1
        before, length = content, len(line)
        begin += length
    return headings


def contexts_above(
    text: str, column: str, headings: bool, most: int | None = None
) -> tuple[list[int], list[str]]:
    """The contexts of a text's chunks, and the first characters where each begins to hold.

    A heading that a chunk begins with is its own text, and ends the sections of its level. Each
    context is of the first `most` characters of values; None: all.
    """
    column = column[:most]
    starts, contexts = [0], [column]
    above: list[tuple[int, str]] = []
    for heading in markdown_headings(text) if headings else ():
        above = [(level, value) for level, value in above if level < heading.level]
        own = heading.level, heading.text[:most]
        for start, path in ((heading.start, above), (heading.start + 1, [*above, own])):
            values = [column, *(value for _, value in path)]
            starts.append(start)
            contexts.append(SEPARATOR.join(value for value in values if value))
        above = path
    return starts, contexts


# Characters of a column or a heading for each token that a context may have: all headings below a
# long one would have the whole of it in their contexts.
_LONG = 64


def cut_contexts(
    tokenizer: TextTokenizer, contexts: Iterable[str], most: int
) -> dict[str, tuple[str, int]]:
    """Each context, its end cut off at a word so that it has `most` tokens, and how many it has."""
    cut: dict[str, tuple[str, int]] = {}
    left = {context: context for context in contexts}
    while left:
        tokens = tokenizer.tokenize_texts(list(left.values()))
        longer: dict[str, str] = {}
        splits = pairwise(tokens.row_splits.tolist())
        for (context, text), (first, last) in zip(left.items(), splits, strict=True):
            if last - first <= most:
                cut[context] = text, last - first
                continue
            stop = first + most
            while stop > first and tokens.continues[stop]:
                stop -= 1
            stop = stop if stop > first else first + most  # of one long word, its beginning
            end = int(tokens.stops[stop - 1]) if stop > first else 0
            longer[context] = text[: min(end, len(text) - 1)].rstrip()
        left = longer
    return cut


def late_contexts(
    contexts: Sequence[str], spec: TextSpec, tokenizer: TextTokenizer
) -> tuple[list[str], np.ndarray]:
    """Contexts that are before whole documents, cut; and bool `[documents]`, which of them were."""
    prompt_tokens = tokenizer.prompt_length(spec.prompt)
    cut = cut_contexts(tokenizer, contexts, _most(spec, prompt_tokens, tokenizer.special_tokens))
    cut_texts = [cut[context][0] for context in contexts]
    differ = [one != whole for one, whole in zip(cut_texts, contexts, strict=True)]
    return cut_texts, np.array(differ, bool)


def _most(spec: TextSpec, prompt_tokens: int, special: int) -> int:
    """How many tokens a context may have: half of a row's beside prompt and special tokens."""
    return max(text_room(spec.max_seq_length, prompt_tokens, special) // 2, 0)


@dataclass(frozen=True)
class ChunkContexts:
    """The contexts of some documents' chunks, on which the model runs one by one."""

    starts: list[list[int]]  # of each document, as `contexts_above` returns them
    contexts: list[list[str]]  # likewise, cut
    tokens: np.ndarray  # int64 [documents], of the longest context of each
    cut: np.ndarray  # bool [documents], whether one was cut

    @classmethod
    def of(
        cls, documents: TokenizedDocuments, spec: TextSpec, tokenizer: TextTokenizer
    ) -> "ChunkContexts":
        """Those of documents with the `contexts` of their columns."""
        most = _most(spec, int(documents.prompt_tokens), documents.special)
        above = [
            contexts_above(text, column, spec.reads_headings, _LONG * max(most, 1))
            for text, column in zip(documents.texts, documents.contexts or (), strict=True)
        ]
        cut = cut_contexts(tokenizer, (one for _, few in above for one in few), most)
        return cls(
            [starts for starts, _ in above],
            [[cut[context][0] for context in few] for _, few in above],
            np.array([max(cut[context][1] for context in few) for _, few in above], np.int64),
            np.array([any(cut[one][0] != one for one in few) for _, few in above], bool),
        )

    def rows(
        self,
        documents: TokenizedDocuments,
        chunks: Windows,
        spec: TextSpec,
        tokenizer: TextTokenizer,
    ) -> TokenRows:
        """A row for each chunk, of the ids of prompt, context and chunk as one text.

        A chunk without a context has the ids that it has in its document. So has one that would not
        fit a row otherwise: a part of a word that was divided may have more tokens alone.
        """
        document, ids, head = chunks.document, documents.tokens.ids, int(documents.prompt_tokens)
        begins = documents.tokens.row_splits[document]
        starts, stops = window_spans(documents, chunks)
        contexts = [
            self.contexts[row][bisect_right(self.starts[row], start) - 1]
            for row, start in zip(document.tolist(), starts.tolist(), strict=True)
        ]
        of_chunks = zip(document.tolist(), starts.tolist(), stops.tolist(), contexts, strict=True)
        texts = [
            f"{spec.prompt}{context}{SEPARATOR}{documents.texts[row][start:stop]}"
            for row, start, stop, context in of_chunks
        ]
        joined = tokenizer.tokenize_texts(texts, offsets=False)
        marker = np.array([] if spec.marker is None else [spec.marker], np.int32)
        most = spec.max_seq_length - documents.special - len(marker)
        bodies = [ids[:0]]
        for number, context in enumerate(contexts):
            body = joined.ids[joined.row_splits[number] : joined.row_splits[number + 1]]
            if context and len(body) <= most:
                bodies.append(np.concatenate([marker, body]))
                continue
            begin = begins[number] + head
            first = begin + chunks.first[number]
            before = tokenizer.tokenize_texts([context], offsets=False).ids if context else ids[:0]
            chunk = ids[first : first + chunks.count[number]]
            bodies.append(np.concatenate([ids[begins[number] : begin], before, chunk]))
        splits = splits_of(np.array([len(body) for body in bodies[1:]], np.int64))
        special = tokenizer.cls_id, tokenizer.sep_id
        return build_rows(np.concatenate(bodies), splits, spec.max_seq_length, *special)
