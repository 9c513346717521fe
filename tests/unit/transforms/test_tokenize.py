"""Rows: equal ones run once, every document finds its own again."""

import pyarrow as pa

from bert_embed.base.arrays import text_hashes
from bert_embed.bundle.bundle import read_bundle
from bert_embed.settings import TextSpec
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.blocks import DocumentBlock
from bert_embed.transforms.parts import Part
from bert_embed.transforms.tokenize import hashed_texts, token_block


def documents(texts, **columns):
    places = pa.array([f"in.txt:{n}" for n in range(len(texts))], pa.string())
    return DocumentBlock(Part(0, 0, records=len(texts)), places, texts, places, **columns)


def reasons(block):
    return [(each.source, each.reason) for each in block.part.rejected]


def test_a_text_without_tokens_is_rejected_alone(tiny_bundle):
    block = documents(["a", "\u200b\x00", "a", "a b c d e f"])
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), TextSpec(5))
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2", "in.txt:3"]
    assert found.layout.row.tolist() == [0, 0, 1]
    assert found.layout.num_tokens.tolist() == [3, 3, 5]
    assert found.layout.truncated.tolist() == [False, False, True]
    assert reasons(found) == [("in.txt:1", "no tokens")]


def test_a_text_too_long_is_rejected_where_asked(tiny_bundle):
    block = documents(["a b c", "a b c d", "\x00", "e"])
    spec = TextSpec(5, long_text="reject")
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), spec)
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:3"]
    assert reasons(found) == [("in.txt:1", "text too long"), ("in.txt:2", "no tokens")]
    assert [each.record for each in found.part.rejected] == ["a b c d", "\x00"]


def test_equal_windows_run_once(tiny_bundle):
    block = documents(["a b a b a b", "a b"])
    spec = TextSpec(4, long_text="window", overlap=0)
    found = token_block(block, load_tokenizer(read_bundle(tiny_bundle)), spec)
    assert found.layout.windows.splits.tolist() == [0, 3, 4]
    assert found.layout.row.tolist() == [0, 0, 0, 0]
    assert len(found.layout.rows.input_ids) == 4


def test_what_is_embedded_is_what_is_hashed():
    pairs = documents(["a", "a", "ab"], texts_b=["b", "", ""])
    words = documents(["a b", "a b", "a b"], words=[["a", "b"], ["a b"], None])
    single = documents(["a", "a b"])
    assert len(set(hashed_texts(pairs))) == 3
    assert hashed_texts(pairs)[1] == hashed_texts(single)[0]
    assert len(set(hashed_texts(words))) == 2
    assert hashed_texts(words)[2] == hashed_texts(single)[1]


def test_text_hashes_are_the_same_everywhere():
    """XXH3 of UTF-8, as the algorithm's own test vectors have it for the empty input."""
    assert text_hashes([""])[0] == 0x2D06800538D394C2
    assert text_hashes(["a", "b"])[0] != text_hashes(["a", "b"])[1]
