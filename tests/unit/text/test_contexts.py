"""Contexts of chunks: the headings of Markdown, and what is cut of a long one."""

import numpy as np
import pytest

from bert_embed.settings import TextSpec
from bert_embed.text.layout import text_rows
from bert_embed.text.tokenizer import Tokenizer
from bert_embed.text.windows import contexts_above, cut_contexts, markdown_headings

PIECES = ["the", "bank", "of", "a", "river", "un", "##aff", "##able", "##s", "red", *".!?#"]
TOKENIZER = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])


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
        for first, last in zip(found.chunks.first, found.chunks.last, strict=True)
    ]
    assert chunks == ["thebank.ariverofunaffables!", "thebankofariver.", "abank."]
