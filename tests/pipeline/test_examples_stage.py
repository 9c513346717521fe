"""The TFRecord stage: text to examples, examples to the very vectors that texts give directly."""

import json

import pytest
import tensorflow as tf

from pipeline.cli import main
from tests.pipeline.helpers import embed, flags_of, record, rejected

LONG = " ".join(["the bank of the river", "and the money of the bank"] * 9)
ROW = {
    "id": tf.io.FixedLenFeature([], tf.string),
    "input_ids": tf.io.RaggedFeature(tf.int64),
    "input_mask": tf.io.RaggedFeature(tf.int64),
    "segment_ids": tf.io.RaggedFeature(tf.int64),
    "starts": tf.io.RaggedFeature(tf.int64),
    "stops": tf.io.RaggedFeature(tf.int64),
    "num_tokens": tf.io.FixedLenFeature([], tf.int64),
    "truncated": tf.io.FixedLenFeature([], tf.int64),
    "tokenizer": tf.io.FixedLenFeature([], tf.string),
}


def tokenize(output, model, *inputs, **flags):
    return main(["tokenize", *flags_of(output, model, *inputs, **flags)])


def write_json(path, *records):
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return path


def all_files(folder):
    """Every file of vectors by its name."""
    kinds = ("embeddings-*", "tokens-*", "words-*", "spans-*")
    return {path.name: path.read_bytes() for kind in kinds for path in sorted(folder.glob(kind))}


def examples_in(folder, compression=""):
    paths = sorted(map(str, folder.glob("examples-*")))
    data = tf.data.TFRecordDataset(paths, compression_type=compression)
    return [tf.io.parse_single_example(each, ROW) for each in data]


@pytest.fixture
def mixed(tmp_path):
    """Texts of every kind: plain, empty of tokens, long, doubled, words of their own, spans."""
    return write_json(
        tmp_path / "in.jsonl",
        {"id": 1, "text": "the river, money bank", "start": [0, 11], "stop": [9, 21], "b": "of"},
        {"id": 2, "text": ["of", "", "banks", "\u200b"], "start": 3, "stop": 8, "b": ""},
        {"id": "ü", "text": LONG, "start": [], "stop": [], "b": "money bank"},
        {"id": 4, "text": "the river, money bank", "start": 1, "stop": 2, "b": "of"},
        {"id": 5, "text": "\u200b", "start": [], "stop": [], "b": ""},
        {"id": 6, "text": "Ünïcode \U0001f600 bank", "start": [8], "stop": [14], "b": "a"},
        {"id": 7},
    )


EVERY = "sentence,token,word,span"


@pytest.mark.parametrize(
    ("texts", "vectors_of"),
    [
        ({}, {}),
        ({}, {"granularity": "token", "layers": "-1,-2", "layer_combine": "stack"}),
        ({"granularity": EVERY}, {"granularity": EVERY, "word_pooling": "first"}),
        ({"max_seq_length": 9, "granularity": "word,span"}, {"granularity": "span,word"}),
        ({"prompt": "bank: ", "granularity": EVERY}, {"granularity": EVERY}),
        ({"text_b_column": "b", "max_seq_length": 20}, {"granularity": "sentence,token"}),
        ({"long_text": "reject", "max_seq_length": 20}, {}),
        ({"long_text": "window", "max_seq_length": 12}, {"pooling": "mean,cls"}),
        ({"long_text": "window", "max_seq_length": 12}, {"no_merge_windows": True}),
        (
            {"long_text": "window", "max_seq_length": 16, "stride": 5, "prompt": "of the "}
            | {"granularity": EVERY},
            {"granularity": EVERY, "no_merge_windows": True},
        ),
    ],
    ids=["plain", "tokens", "all", "cut", "prompt", "pairs", "reject", "windows", "kept", "each"],
)
def test_vectors_of_examples_are_those_of_the_texts(
    tmp_path, tiny_bundle, mixed, texts, vectors_of
):
    """Whole files are equal, byte for byte, to those of the direct way."""
    compression = "gzip" if texts else "none"
    examples = tmp_path / "examples"
    assert tokenize(examples, tiny_bundle, mixed, compression=compression, **texts) == 0
    assert embed(tmp_path / "out", tiny_bundle, examples, **vectors_of) == 0
    assert embed(tmp_path / "direct", tiny_bundle, mixed, **(texts | vectors_of)) == 0
    wanted = all_files(tmp_path / "direct")
    assert wanted
    assert all_files(tmp_path / "out") == wanted
    made, read = record(examples), record(tmp_path / "out")
    assert made["counts"]["records"] == 7
    assert made["counts"]["rejected"] == len(rejected(examples)) >= 2
    assert read["counts"]["records"] == read["counts"]["embedded"] == made["counts"]["embedded"]
    direct = record(tmp_path / "direct")
    for name in ("tokens", "computed_tokens", "lengths"):
        assert read[name] == direct[name]
    assert read["counts"]["truncated"] == direct["counts"]["truncated"]


def test_a_plain_reader_sees_rows_of_the_model(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("the bank\nriver of money\n")
    assert tokenize(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    said = capsys.readouterr()
    assert "2 records: 2 tokenized, 0 rejected" in said.out
    first, second = examples_in(tmp_path / "out")
    assert first["id"].numpy().decode() == f"{tmp_path}/in.txt:0"
    assert first["input_ids"].shape == (4,)
    assert first["input_mask"].numpy().tolist() == [1] * 4
    assert first["segment_ids"].numpy().tolist() == [0] * 4
    assert first["starts"].numpy().tolist() == [-1, 0, 4, -1]
    assert first["stops"].numpy().tolist() == [-1, 3, 8, -1]
    assert second["num_tokens"].numpy() == 5
    settings = json.loads((tmp_path / "out" / "examples.json").read_text())
    assert first["tokenizer"].numpy().decode() == settings["tokenizer"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "blocks",
        "examples-0000000-00000.tfrecord",
        "examples.json",
        "run.json",
    ]
