"""Examples that other programs wrote."""

import gzip

import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.blocks import framed
from tests.support.command import (
    data_files,
    embed,
    flags_of,
    record,
    rejected,
    rows,
    vectors,
)
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow


def written(path, records):
    """A TFRecord file of Examples, each a dict of lists of whole numbers."""
    data = []
    for features in records:
        made = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            for name, value in features.items()
        }
        example = tf.train.Example(features=tf.train.Features(feature=made))
        data.append(example.SerializeToString())
    path.write_bytes(gzip.compress(framed(data)) if path.suffix == ".gz" else framed(data))
    return path


def test_examples_of_other_programs(tmp_path, tiny_bundle):
    """`input_ids` are enough; filling is left out, a record's number is its id."""
    encoder = bert_embed.load(tiny_bundle)
    texts = ["the bank", "river of money", "the bank"]
    ids = list(map(encoder.tokenizer.encode, texts))
    filling = [9 - len(row) for row in ids]
    records = [
        {"input_ids": row + [0] * left, "input_mask": [1] * len(row) + [0] * left}
        for row, left in zip(ids, filling, strict=True)
    ]
    source = written(tmp_path / "theirs.tfrecord.gz", records)
    assert embed(tmp_path / "out", tiny_bundle, source, granularity="sentence,token") == 0
    assert rows(tmp_path / "out")["id"] == [f"{source}:{n}" for n in range(3)]
    assert_near(vectors(tmp_path / "out"), encoder.encode(texts))
    assert embed(tmp_path / "one", tiny_bundle, source, limit=1) == 0
    assert rows(tmp_path / "one")["id"] == [f"{source}:0"]
    assert embed(tmp_path / "two", tiny_bundle, source, prompt="of ") == 2


def test_ids_may_be_integers(tmp_path, tiny_bundle):
    ids = [7, -1, 2**62]
    rows_of_ids = [{"id": [each], "input_ids": [2, 9, 3]} for each in ids]
    path = written(tmp_path / "in.tfrecord", [*rows_of_ids, {"input_ids": [2, 10, 3]}])
    assert embed(tmp_path / "out", tiny_bundle, path) == 0
    assert rows(tmp_path / "out")["id"] == [*map(str, ids), f"{path}:3"]


def test_other_segments_are_another_text(tmp_path, tiny_bundle):
    pair = {"id": [1], "input_ids": [2, 9, 3, 10, 3], "segment_ids": [0, 0, 0, 1, 1]}
    alone = {"id": [2], "input_ids": [2, 9, 3]}
    first = written(tmp_path / "first.tfrecord", [pair, alone])
    assert embed(tmp_path / "one", tiny_bundle, first) == 0
    second = written(tmp_path / "second.tfrecord", [pair | {"segment_ids": [0] * 5}, alone])
    for source, counts in ((first, (0, 2)), (second, (1, 1))):
        output = tmp_path / f"after_{source.stem}"
        assert embed(output, tiny_bundle, source, skip_existing=tmp_path / "one") == 0
        said = record(output)["counts"]
        assert (said["embedded"], said["skipped"]) == counts


def test_padding_that_no_mask_leaves_out_is_told(tmp_path, tiny_bundle, capfd, caplog):
    pad = bert_embed.load(tiny_bundle).tokenizer.pad_id
    masked = {"input_ids": [2, 9, 3, pad], "input_mask": [1, 1, 1, 0]}
    path = written(tmp_path / "masked.tfrecord", [masked, {"input_ids": [2, 9, 3]}])
    assert embed(tmp_path / "one", tiny_bundle, path) == 0
    assert "input_mask" not in capfd.readouterr().err + caplog.text
    bare = [{"input_ids": [2, 9, 3, pad]}] * 2
    path = written(tmp_path / "bare.tfrecord", [*bare, {"input_ids": [2, 9, 3]}])
    assert embed(tmp_path / "two", tiny_bundle, path) == 0
    assert f"{path}: 2 examples without input_mask end in [PAD]" in caplog.text


def test_bad_words_of_an_example_change_no_words_of_another(tmp_path, tiny_bundle):
    texts = ["the bank", "river of money", "the river bank", "seven red stars"]
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{text}\n" for text in texts))
    flags = {"granularity": "word"}
    words = flags_of(tmp_path / "examples", tiny_bundle, source, **flags)
    assert main(["tokenize", *words]) == 0
    (path,) = data_files(tmp_path / "examples", "examples")
    assert embed(tmp_path / "whole", tiny_bundle, path, **flags) == 0
    examples = [
        tf.train.Example.FromString(data.numpy()) for data in tf.data.TFRecordDataset(str(path))
    ]
    del examples[1].features.feature["word_stops"].int64_list.value[-1]
    examples[2].features.feature["word_first"].int64_list.value[0] = -1
    path.write_bytes(framed([example.SerializeToString() for example in examples]))
    assert embed(tmp_path / "out", tiny_bundle, path, **flags) == 0
    reasons = [line["reason"] for line in rejected(tmp_path / "out")]
    assert reasons == ["no words that fit the row"] * 2
    whole, left = (
        pq.read_table(data_files(tmp_path / name, "words")).to_pylist() for name in ("whole", "out")
    )
    assert left == [whole[0], whole[3]]
