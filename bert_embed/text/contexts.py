"""What the model sees before a chunk: columns of its document, and the Markdown headings above it.

A context, one space and the chunk are tokenized as one text, after the prompt, which models were
trained to see first.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_embed.base.arrays import splits_of
from bert_embed.settings import TextSpec, text_room
from bert_embed.text.documents import Documents, Rows, TextTokenizer, build_rows
from bert_embed.text.windows import Windows, window_spans

SEPARATOR = " "  # between values, headings and the chunk, as between the columns of a text

# CommonMark 0.31, sections 4.2, 4.3 and 4.5; a heading with an underline is one line here.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}(?!.*`)|~{3,}).*")
_INDENTED = re.compile(r" {4}| {0,3}\t")
# Of a list, a quotation or a table, below which a line of dashes makes no heading.
_WITHIN = re.compile(r" {0,3}(?:[>|]|[-+*][ \t]|[0-9]{1,9}[.)][ \t])")


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
    found: list[Heading] = []
    fence, before, begin, length, paragraph = "", "", 0, 0, 0
    for line in _LINE.findall(text):
        content = line.rstrip("\r\n")
        mark = _FENCE.fullmatch(content)
        if fence:
            closes = mark is not None and mark[1].startswith(fence)
            if closes and not content.strip(" \t" + fence[0]):
                fence = ""
        elif mark is not None:
            fence, paragraph = mark[1], 0
        elif (matched := _HEADING.match(content)) is not None:
            title = _without_closing(content[matched.end() :].strip())
            found.append(Heading(begin + matched.start(1), len(matched[1]), title))
            paragraph = 0
        elif paragraph == 1 and (under := _UNDERLINE.fullmatch(content)) is not None:
            indent = len(before) - len(before.lstrip())
            level = 1 if under[1][0] == "=" else 2
            found.append(Heading(begin - length + indent, level, before.strip()))
            paragraph = 0
        elif not content.strip() or (not paragraph and _INDENTED.match(content)):
            paragraph = 0
        else:
            paragraph += 2 if _WITHIN.match(content) else 1
        before, length = content, len(line)
        begin += length
    return found


def _without_closing(title: str) -> str:
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title


def contexts_above(text: str, column: str, headings: bool) -> tuple[list[int], list[str]]:
    """The contexts of a text's chunks, and the first characters where each begins to hold.

    A heading that a chunk begins with is its own text, and ends the sections of its level.
    """
    starts, contexts = [0], [column]
    above: list[Heading] = []
    for heading in markdown_headings(text) if headings else ():
        above = [one for one in above if one.level < heading.level]
        for start, path in ((heading.start, above), (heading.start + 1, [*above, heading])):
            values = [column, *(one.text for one in path)]
            starts.append(start)
            contexts.append(SEPARATOR.join(value for value in values if value))
        above = path
    return starts, contexts


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
        for (context, kept), (first, last) in zip(left.items(), splits, strict=True):
            if last - first <= most:
                cut[context] = kept, last - first
                continue
            stop = first + most
            while stop > first and tokens.continues[stop]:
                stop -= 1
            stop = stop if stop > first else first + most  # of one long word, its beginning
            end = int(tokens.stops[stop - 1]) if stop > first else 0
            longer[context] = kept[: min(end, len(kept) - 1)].rstrip()
        left = longer
    return cut


def late_contexts(
    contexts: Sequence[str], spec: TextSpec, tokenizer: TextTokenizer
) -> tuple[list[str], np.ndarray]:
    """Contexts that are before whole documents, cut; and bool `[documents]`, which of them were."""
    prompt_tokens = tokenizer.prompt_length(spec.prompt)
    cut = cut_contexts(tokenizer, contexts, _most(spec, prompt_tokens, tokenizer.special_tokens))
    kept = [cut[context][0] for context in contexts]
    return kept, np.array([one != whole for one, whole in zip(kept, contexts, strict=True)], bool)


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
    def of(cls, documents: Documents, spec: TextSpec, tokenizer: TextTokenizer) -> "ChunkContexts":
        """Those of documents with the `contexts` of their columns."""
        above = [
            contexts_above(text, column, spec.reads_headings)
            for text, column in zip(documents.texts, documents.contexts or (), strict=True)
        ]
        most = _most(spec, int(documents.prompt_tokens), documents.special)
        cut = cut_contexts(tokenizer, (one for _, few in above for one in few), most)
        return cls(
            [starts for starts, _ in above],
            [[cut[context][0] for context in few] for _, few in above],
            np.array([max(cut[context][1] for context in few) for _, few in above], np.int64),
            np.array([any(cut[one][0] != one for one in few) for _, few in above], bool),
        )

    def rows(
        self, documents: Documents, chunks: Windows, spec: TextSpec, tokenizer: TextTokenizer
    ) -> Rows:
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
        texts = [
            f"{spec.prompt}{context}{SEPARATOR}{documents.texts[row][start:stop]}"
            for row, start, stop, context in zip(
                document.tolist(), starts.tolist(), stops.tolist(), contexts, strict=True
            )
        ]
        joined = tokenizer.tokenize_texts(texts, offsets=False)
        marker = np.array([] if spec.marker is None else [spec.marker], np.int32)
        most = spec.max_seq_length - documents.special - len(marker)
        bodies = [ids[:0]]
        for number, context in enumerate(contexts):
            own = joined.ids[joined.row_splits[number] : joined.row_splits[number + 1]]
            if context and len(own) <= most:
                bodies.append(np.concatenate([marker, own]))
                continue
            begin = begins[number] + head
            first = begin + chunks.first[number]
            before = tokenizer.tokenize_texts([context], offsets=False).ids if context else ids[:0]
            chunk = ids[first : first + chunks.count[number]]
            bodies.append(np.concatenate([ids[begins[number] : begin], before, chunk]))
        splits = splits_of(np.array([len(body) for body in bodies[1:]], np.int64))
        special = tokenizer.cls_id, tokenizer.sep_id
        return build_rows(np.concatenate(bodies), splits, spec.max_seq_length, *special)
