"""Chunks: every token is in one, none is too long; their borders and contexts are the text's."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.base.errors import SettingError
from bert_embed.settings import TextSpec
from bert_embed.text.documents import tokenize_documents
from bert_embed.text.layout import text_rows
from bert_embed.text.tokenizer import Tokenizer
from bert_embed.text.windows import (
    chunk_windows,
    contexts_above,
    cut_contexts,
    markdown_headings,
    packed,
    paragraph_starts,
    sentence_starts,
)

PIECES = ["the", "bank", "of", "a", "river", "un", "##aff", "##able", "##s", "red", *".!?#你好。"]
TOKENIZER = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])


def chunks(texts, **settings):
    """The chunks of texts as characters; each document's by itself."""
    spec = TextSpec(settings.pop("max_seq_length", 64), **settings)
    documents = tokenize_documents(TOKENIZER, texts, offsets=True)
    found = chunk_windows(documents, spec)
    tokens, splits = documents.tokens, documents.tokens.row_splits
    shown = [[] for _ in texts]
    for row, first, count in zip(found.document, found.first, found.count, strict=True):
        at = splits[row] + first
        shown[row].append(texts[row][tokens.starts[at] : tokens.stops[at + count - 1]])
    return shown


def parts(text, starts):
    borders = [*starts(text).tolist(), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is. Is it?", ["It is. ", "Is it?"]),
        ("wrapped\nline. End", ["wrapped\nline. ", "End"]),
        ("你好。再见！好", ["你好。", "再见！", "好"]),
        ("😀 one. 😀😀 Two\r\n\r\nthree", ["😀 one. ", "😀😀 Two\r\n\r\n", "three"]),
        ("यह है। वह है।", ["यह है। ", "वह है।"]),
        ("v1.5 is out. \ud800 Next.", ["v1.5 is out. ", "\ud800 Next."]),
        ("", [""]),
    ],
)
def test_sentences_of_all_scripts(text, sentences):
    assert parts(text, sentence_starts) == sentences


def test_paragraphs_end_at_blank_lines():
    text = "one\ntwo\n\nthree\r\n \r\nfour\u2029five\n"
    wanted = ["one\ntwo\n\n", "three\r\n \r\n", "four\u2029", "five\n"]
    assert parts(text, paragraph_starts) == wanted


FOUR = "The bank. A river. The bank of a river. The river."
TWO = "The bank. A river.\n\nThe river of a bank. The river.\n\nA bank."
LONG = "A bank.\n\nThe river of a bank. The bank of the river. The river."
WORDS = "the unaffables of a river. The bank."


@pytest.mark.parametrize(
    ("text", "settings", "wanted"),
    [
        # A sentence is a chunk, and white space is none.
        ("The bank. A river!  ", "sentence 0 0 64", "The bank.|A river!"),
        (" \n\n unaffable \n\n\n ", "sentence 0 0 64", "unaffable"),
        ("你好。river", "sentence 0 0 64", "你好。|river"),
        # Sentences fill a chunk, and overlap as wholes.
        (FOUR, "sentence 6 3 64", "The bank. A river.|The bank of a river.|The river."),
        (FOUR, "sentence 9 3 64", "The bank. A river.|A river. The bank of a river.|The river."),
        (TWO, "paragraph 12 4 64", f"The bank. A river.|{TWO[10:-9]}|The river.\n\nA bank."),
        # A long paragraph is divided between sentences, what is longer than a chunk between words.
        (LONG, "paragraph 0 0 12", LONG.replace(".\n\n", ".|").replace("bank. T", "bank.|T")),
        (LONG, "paragraph 8 0 12", LONG.replace(".\n\n", ".|").replace(". ", ".|")),
        (LONG, "paragraph 12 0 12", LONG.replace("bank. T", "bank.|T")),
        (WORDS, "sentence 0 0 6", "the|unaffables|of a river.|The bank."),
        (WORDS, "tokens 5 1 64", "the unaffables|of a river. The|The bank."),
        ("unaffables", "tokens 3 0 64", "unaffable|s"),
    ],
)
def test_chunks_are_whole_sentences_where_they_fit(text, settings, wanted):
    chunk, most, overlap, longest = settings.split()
    spec = {"chunk": chunk, "max_seq_length": int(longest)}
    spec |= {"chunk_tokens": int(most)} if most != "0" else {}
    spec |= {"overlap": int(overlap)} if overlap != "0" else {}
    assert chunks(["a bank", text], **spec) == [["a bank"], wanted.split("|")]


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    most=st.integers(5, 12),
    overlap=st.integers(0, 4),
    finer=st.sets(st.integers(0, 150)),
)
def test_ranges_cover_all_and_advance(lengths, most, overlap, finer):
    borders = np.cumsum([0, *lengths])
    inside = np.array(sorted(each for each in finer if each < borders[-1]), np.int64)
    ranges = list(packed(borders, most, overlap, inside if finer else None))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == borders[-1]
    for start, stop in ranges:
        assert 0 < stop - start <= most
        assert stop in borders
        assert start in borders or start in finer
    for (start, stop), (next_start, next_stop) in pairwise(ranges):
        assert start < next_start <= stop < next_stop
        assert stop - next_start <= overlap


LATE = {"chunk": "sentence", "chunk_context": ("document",)}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"chunk_tokens": 5}, "chunk_tokens requires chunk"),
        ({"chunk": "line"}, "chunk must be one of sentence, paragraph, tokens, got 'line'"),
        ({"chunk": "sentence", "overlap": 2}, "their most tokens, such as chunk sentence:200"),
        ({"chunk": "tokens", "granularity": ("token",)}, "requires granularity sentence alone"),
        ({**LATE, "long_text": "reject"}, "chunk conflicts with long_text reject"),
        ({**LATE, "vectors": ("sparse",)}, "chunk_context document is for vectors dense, not s"),
        ({"vectors": ("sparse", "sparse")}, "vectors must name at least one kind, and each once"),
        ({"vectors": ("sparse",), "granularity": ("token",)}, "granularity is of dense vectors"),
        ({"top_k": 5}, "top_k requires vectors sparse"),
        ({"vectors": ("sparse",), "top_k": 0}, "top_k must be at least 1, got 0"),
    ],
)
def test_settings_that_conflict_are_named(settings, problem):
    with pytest.raises(SettingError, match=problem):
        TextSpec(64, **settings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# One\n\ntext\n## Two ##\n###### Six #x", [(1, "One"), (2, "Two"), (6, "Six #x")]),
        ("#no\n####### no\n    # no\n\\# no\na # no", []),
        ("```\n# no\n~~~\n````\n# One", [(1, "One")]),
        ("~~~ python\n# no", []),
        ("One\n===\n\n Two \n ---\r\nthree\nlines\n---", [(1, "One"), (2, "Two")]),
        ("- item\n---\n> quote\n---\n| table |\n---\n\n---\n    code\n---", []),
        ("#\n# #\n#\tTab\t", [(1, ""), (1, ""), (1, "Tab")]),
        ("---\n---\n***\nOne\n===\n_ _ _\n---", [(1, "One")]),
        ("1. ```sh\n   # no\n   ```\n# One", [(1, "One")]),
        ("10. - ~~~\n      # no\n\n      ~~~\n# One", [(1, "One")]),
        ("- ```\n# One", [(1, "One")]),
        ("- " * 5_000 + "```\n# One", [(1, "One")]),
        ("`" * 500_000 + " x`\n# One", [(1, "One")]),
        ("", []),
        ("# " + " " * 50_000 + "x", [(1, "x")]),
    ],
)
def test_headings_are_those_of_markdown(text, found):
    headings = markdown_headings(text)
    assert [(one.level, one.text) for one in headings] == found
    for one in headings:
        assert text[one.start :].startswith(("#", one.text.split(" ")[0]))


def test_a_heading_ends_sections_of_its_level_and_is_above_what_follows_it():
    text = "# A\na\n### B\nb\n## C\nc\n# D\nd"
    starts, contexts = contexts_above(text, "title", headings=True)
    at = [int(np.searchsorted(starts, text.index(one), side="right")) - 1 for one in "abcd"]
    assert [contexts[place] for place in at] == ["title A", "title A B", "title A C", "title D"]
    own = [int(np.searchsorted(starts, text.index(one), side="right")) - 1 for one in ("#", "## C")]
    assert [contexts[place] for place in own] == ["title", "title A"]


def test_a_context_is_cut_at_the_end_of_a_word():
    contexts = ["the bank", "the bank of unaffables", "unaffables of", ""]
    cut = cut_contexts(TOKENIZER, contexts, 3)
    wanted = [("the bank", 2), ("the bank of", 3), ("unaffable", 3), ("", 0)]
    assert [cut[one] for one in contexts] == wanted
    assert {kept for kept, _ in cut_contexts(TOKENIZER, contexts, 0).values()} == {""}


def test_a_long_heading_is_not_read_again_for_each_one_below_it():
    read = []

    class Counting(Tokenizer):
        def tokenize_texts(self, texts, offsets=True):
            read.extend(map(len, texts))
            return super().tokenize_texts(texts, offsets)

    texts = ["# " + "bank " * 20_000 + "".join(f"\n\n## {n}\n\nred" for n in range(500))]
    spec = TextSpec(12, chunk="paragraph", chunk_context=("headings",))
    _, found = text_rows(Counting(TOKENIZER.vocab), spec, texts)
    rows = np.split(found.rows.input_ids, found.rows.row_splits[1:-1])
    assert TOKENIZER.tokens(rows[found.row[-1]])[1:-1] == ["bank"] * 5 + ["red"]
    assert found.cut_contexts == 1
    assert sum(read) < 10 * len(texts[0])


def test_windows_of_a_document_begin_with_its_context():
    chunk = {"chunk": "sentence", "chunk_tokens": 16, "chunk_context": ("title", "document")}
    spec = TextSpec(12, prompt="red ", **chunk)
    texts = ["The bank. A river of unaffables! The bank of a river.", "A bank."]
    _, found = text_rows(TOKENIZER, spec, texts, contexts=["bank of river " * 5, ""])
    rows = np.split(found.rows.input_ids, found.rows.row_splits[1:-1])
    *long, short = map(TOKENIZER.tokens, rows)
    head = ["[CLS]", "red", "bank", "of", "river", "bank"]
    assert all(row[:6] == head and len(row) <= 12 for row in long)
    assert short == ["[CLS]", "red", "a", "bank", ".", "[SEP]"]
    tokens = found.tokens
    assert found.cut_contexts == 1
    ids = found.rows.input_ids[found.rows.row_splits[found.row[tokens.row]] + tokens.place]
    chunks = [
        "".join(TOKENIZER.tokens(ids[first:last])).replace("##", "")
        for first, last in zip(*found.chunks, strict=True)
    ]
    assert chunks == ["thebank.ariverofunaffables!", "thebankofariver.", "abank."]
