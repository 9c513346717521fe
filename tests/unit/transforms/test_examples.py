"""Examples and back: the same TokenBlock for any texts; what is no example is named and counted."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import read_bundle
from bert_embed.results.tf_example import unframed
from bert_embed.settings import TextSpec
from bert_embed.storage.files import stat
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.blocks import DocumentBlock
from bert_embed.transforms.examples import ExampleSettings, example_bytes, settings_from_json
from bert_embed.transforms.listing import Listing
from bert_embed.transforms.parts import InputFile, Part
from bert_embed.transforms.read.examples import (
    ExampleReading,
    document_begins,
    example_block,
)
from bert_embed.transforms.read.reader import example_blocks, parts_of
from bert_embed.transforms.tokenize import token_block
from tests.support.blocks import example, framed

EVERY = ("sentence", "token", "word")
TOKENIZER = "0123456789abcdef"
NONE = np.empty(0, np.int64)  # no document is in an earlier output


@pytest.fixture(scope="module")
def tokenizer(tiny_bundle):
    return load_tokenizer(read_bundle(tiny_bundle))


def blocks(texts, **columns):
    ids = pa.array([f"d{n}" for n in range(len(texts))], pa.string())
    return DocumentBlock(Part(3, 1, records=len(texts)), ids, texts, ids, **columns)


def reading(spec, prompt_tokens=0):
    return ExampleReading(TOKENIZER, 1000, 2, spec, prompt_tokens)


def read_back(data, spec, prompt_tokens=0):
    records = [record for some in unframed([bytes(data)]) for record in some]
    begins = document_begins(records, spec.in_windows)
    known = reading(spec, prompt_tokens)
    return example_block(Part(3, 1), "file", records, begins, 0, known, NONE)


def assert_same(found, wanted):
    """All that the model and the writers see of a block."""
    if dataclasses.is_dataclass(wanted):
        assert type(found) is type(wanted)
        for field in dataclasses.fields(wanted):
            if field.name not in ("part", "sources"):
                assert_same(getattr(found, field.name), getattr(wanted, field.name))
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


TEXTS = st.lists(
    st.lists(
        st.sampled_from(["the", "bank ", " of", "river", " ", "\U0001f600", "é", ",", "xyz"]),
        max_size=25,
    ).map("".join),
    max_size=6,
)


@given(
    texts=TEXTS,
    long_text=st.sampled_from(["truncate", "reject", "window", "windows"]),
    length=st.integers(8, 24),
    prompt=st.sampled_from(["", "of the "]),
)
@settings(max_examples=60)
def test_a_block_comes_back_as_it_was(tokenizer, texts, long_text, length, prompt):
    overlap = 2 if "window" in long_text else None
    spec = TextSpec(length, EVERY, long_text, overlap, prompt=prompt)
    words = [text.split() if n % 2 else None for n, text in enumerate(texts)]
    texts = [text if own is None else " ".join(own) for text, own in zip(texts, words, strict=True)]
    block = blocks(texts, words=words if any(words) else None)
    wanted = token_block(block, tokenizer, spec)
    prompt_tokens = len(tokenizer.encode_flat([prompt])[0]) if prompt else 0
    found = read_back(example_bytes(wanted, TOKENIZER), spec, prompt_tokens)
    assert_same(found, wanted)
    assert found.part.records == len(wanted)
    assert found.part.rejected == ()


@given(texts=TEXTS, others=TEXTS, length=st.integers(8, 24))
@settings(max_examples=20)
def test_pairs_come_back_as_they_were(tokenizer, texts, others, length):
    others = [*others, *[""] * len(texts)][: len(texts)]
    spec = TextSpec(length, ("sentence", "token"))
    wanted = token_block(blocks(texts, texts_b=others), tokenizer, spec)
    found = read_back(example_bytes(wanted, TOKENIZER), spec)
    types = wanted.layout.rows.token_type_ids
    if not types.any():  # blank second texts: segments of 0 are kept as no segments
        assert found.layout.rows.token_type_ids is None
        layout = dataclasses.replace(wanted.layout, rows=found.layout.rows)
        wanted = dataclasses.replace(wanted, layout=layout)
    assert_same(found, wanted)


def test_examples_of_others_need_input_ids_alone():
    """As create_pretraining_data.py fills rows: zeros behind the text, told by the mask."""
    filled = {"input_mask": [1, 1, 1, 0, 0], "segment_ids": [0, 1, 1, 0, 0]}
    examples = [
        example(input_ids=[2, 9, 3]),
        example(input_ids=[2, 9, 3, 0, 0], **filled),
        example(input_ids=[2, 9, 3], segment_ids=[0, 0, 0], id=b"mine"),
    ]
    block = read_back(framed(examples), TextSpec(8, ("sentence", "token")))
    layout = block.layout
    assert block.ids.to_pylist() == ["file:0", "file:1", "mine"]
    assert layout.row.tolist() == [0, 1, 0]  # the same tokens in other segments are another row
    assert layout.rows.input_ids.tolist() == [2, 9, 3, 2, 9, 3]
    assert layout.rows.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1]
    assert layout.num_tokens.tolist() == [3, 3, 3]
    assert layout.tokens.starts.tolist() == [-1] * 9
    assert block.text_hash[0] == block.text_hash[2] != block.text_hash[1]


def test_what_is_no_row_is_rejected_with_its_reason():
    bad = {
        "no input_ids": example(input_mask=[1]),
        "features of a row differ in length": example(input_ids=[2, 3], segment_ids=[0]),
        "input_mask is not a run of ones": example(input_ids=[2, 9, 3], input_mask=[1, 0, 1]),
        "no tokens": example(input_ids=[0, 0], input_mask=[0, 0]),
        "text too long": example(input_ids=[2] * 9),
        "token id out of the vocabulary": example(input_ids=[2, 1000]),
        "segment id out of range": example(input_ids=[2, 3], segment_ids=[0, 2]),
        "id is not UTF-8": example(input_ids=[2, 3], id=b"\xff"),
        "no tf.train.Example with these features": b"\xffnothing",
    }
    good = example(input_ids=[2, 3], id=b"good")
    block = read_back(framed([good, *bad.values(), good]), TextSpec(8))
    assert block.ids.to_pylist() == ["good", "good"]
    assert [each.reason for each in block.part.rejected] == list(bad)
    assert block.part.records == len(bad) + 2
    first = block.part.rejected[0]
    assert (first.source, first.stage) == (f"file:{len(framed([good]))}", "read")


def test_words_that_do_not_fit_cost_their_row_alone():
    row = {"input_ids": [2, 9, 3], "words": b"red", "word_first": [1], "word_last": [1]}
    row |= {"word_starts": [0], "word_stops": [3], "word_truncated": [0]}
    bad = ({"word_stops": []}, {"word_first": [-1]}, {"word_last": [0]}, {"word_last": [1, 1]})
    examples = [example(**row), *(example(**row | change) for change in bad), example(**row)]
    block = read_back(framed(examples), TextSpec(8, ("word",)))
    assert block.ids.to_pylist() == ["file:0", "file:5"]
    reasons = [each.reason for each in block.part.rejected]
    assert reasons == ["no words that fit the row"] * len(bad)


def test_windows_that_are_missing_cost_their_document_alone(tokenizer):
    spec = TextSpec(8, long_text="window", overlap=2)
    texts = ["bank", "the bank of the river and the bank of the money", "river"]
    whole = token_block(blocks(texts), tokenizer, dataclasses.replace(spec, granularity=EVERY[:2]))
    records = [r for some in unframed([example_bytes(whole, TOKENIZER)]) for r in some]
    assert len(records) == 5
    damaged = [*records[:2], records[2]._replace(data=None), *records[3:]]
    for left, reasons, documents in (
        (records[:2] + records[3:], ["windows are missing", "windows that leave gaps"], 4),
        (records[:3] + records[4:], ["windows are missing"], 3),
        (records[:1] + records[2:], ["windows that leave gaps"], 3),
        (damaged, ["windows are missing", "damaged record", "windows that leave gaps"], 5),
    ):
        begins = document_begins(left, windows=True)
        block = example_block(Part(0, 0), "file", left, begins, 0, reading(spec), NONE)
        assert block.ids.to_pylist() == ["d0", "d2"]
        assert [each.reason for each in block.part.rejected] == reasons
        assert block.part.records == documents


@given(
    counts=st.lists(st.integers(1, 4), max_size=12),
    part_docs=st.integers(1, 5),
)
@settings(max_examples=40)
def test_parts_hold_whole_documents_and_the_end_counts_them(tmp_path_factory, counts, part_docs):
    path = tmp_path_factory.mktemp("parts") / "it.tfrecord"
    rows = [(n, w) for n, count in enumerate(counts) for w in range(count)]
    path.write_bytes(framed(example(input_ids=[2, n, 3], window=[w]) for n, w in rows))
    file = InputFile(stat(str(path)), "tfrecord", None, path.stat().st_size)
    *parts, mark = parts_of(file.as_block(), part_docs, 1 << 30)
    assert (mark.last, mark.end_of_file) == (True, len(counts))
    assert [part.number for part in parts] == list(range(-(-len(counts) // part_docs)))
    held = [content for part in parts for content in part.contents]
    assert b"".join(content.data for content in held) == path.read_bytes()
    begins = range(0, len(counts), part_docs)
    assert [content.count for content in held] == [len(counts[at:][:part_docs]) for at in begins]
    assert [content.first for content in held] == [sum(counts[:at]) for at in begins]
    assert sum(len(content.records) for content in held) == len(rows)
    [cut] = Listing([file], {}).first(2)
    assert cut.records == min(2, len(counts))
    (*parts, _) = parts_of(cut.as_block(), 9, 1 << 30)
    records = [record for part in parts for record in part.contents[0].records]
    assert len(records) == sum(counts[:2])


def test_a_file_that_is_cut_or_no_tfrecord_is_named(tmp_path):
    path = tmp_path / "it.tfrecord"
    whole = framed([example(input_ids=[2, 3])] * 2)
    for data, place in ((whole[:-1], "ends within the record at byte"), (b"text" * 9, "at byte 0")):
        path.write_bytes(data)
        file = InputFile(stat(str(path)), "tfrecord", None, path.stat().st_size)
        message = rf"it.tfrecord is not a complete TFRecord file: .*{place}"
        with pytest.raises(ValueError, match=message):
            list(example_blocks(file.as_block(), reading(TextSpec(8)), 10, 1000, {}))


def test_settings_read_back():
    made = ExampleSettings("ab", 64, "window", 3, "é: ", 2, ("sentence", "token"), "run", True)
    assert settings_from_json(made.to_json(), "in/it.json") == made
    for damaged in (b"", b"[]", b"{}", b'{"format":9}', b'{"format":1}'):
        with pytest.raises(InputError, match=r"^in/it\.json is "):
            settings_from_json(damaged, "in/it.json")
