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


def test_examples_of_other_programs(tmp_path, run, tiny_bundle):
    """`input_ids` are enough; filling is left out, a record's number is its id."""
    encoder = bert_embed.load(tiny_bundle)
    texts = ["the bank", "river of money", "the bank"]
    records = []
    for row in map(encoder.tokenizer.encode, texts):
        left = [0] * (9 - len(row))
        records.append({"input_ids": row + left, "input_mask": [1] * len(row) + left})
    source = written(tmp_path / "theirs.tfrecord.gz", records)
    output = run(source, granularity="sentence,token")
    assert rows(output)["id"] == [f"{source}:{n}" for n in range(3)]
    assert_near(vectors(output), encoder.encode(texts))
    assert rows(run(source, "one", limit=1))["id"] == [f"{source}:0"]
    run(source, "two", code=2, prompt="of ")
    ids = [7, -1, 2**62]
    records = [{"id": [each], "input_ids": [2, 9, 3]} for each in ids]
    path = written(tmp_path / "in.tfrecord", [*records, {"input_ids": [2, 10, 3]}])
    assert rows(run(path, "integers"))["id"] == [*map(str, ids), f"{path}:3"]


def test_other_segments_are_another_text(tmp_path, run):
    pair = {"id": [1], "input_ids": [2, 9, 3, 10, 3], "segment_ids": [0, 0, 0, 1, 1]}
    alone = {"id": [2], "input_ids": [2, 9, 3]}
    first = written(tmp_path / "first.tfrecord", [pair, alone])
    second = written(tmp_path / "second.tfrecord", [pair | {"segment_ids": [0] * 5}, alone])
    one = run(first, "one")
    for source, counts in ((first, (0, 2)), (second, (1, 1))):
        said = record(run(source, f"after_{source.stem}", skip_existing=one))["counts"]
        assert (said["embedded"], said["skipped"]) == counts


def test_padding_that_no_mask_leaves_out_is_told(tmp_path, run, tiny_bundle, caplog):
    pad = bert_embed.load(tiny_bundle).tokenizer.pad_id
    masked = {"input_ids": [2, 9, 3, pad], "input_mask": [1, 1, 1, 0]}
    run(written(tmp_path / "masked.tfrecord", [masked, {"input_ids": [2, 9, 3]}]))
    assert "input_mask" not in run.err + caplog.text
    bare = [{"input_ids": [2, 9, 3, pad]}] * 2
    path = written(tmp_path / "bare.tfrecord", [*bare, {"input_ids": [2, 9, 3]}])
    run(path, "two")
    assert f"{path}: 2 examples without input_mask end in [PAD]" in caplog.text


def test_bad_words_of_an_example_change_no_words_of_another(tmp_path, run, tiny_bundle):
    texts = ["the bank", "river of money", "the river bank", "seven red stars"]
    (source,) = run.written({"in.txt": "".join(f"{text}\n" for text in texts)})
    flags = {"granularity": "word"}
    assert main(["tokenize", *flags_of(tmp_path / "made", tiny_bundle, source, **flags)]) == 0
    (path,) = data_files(tmp_path / "made", "examples")
    whole = run(path, "whole", **flags)
    data = tf.data.TFRecordDataset(str(path))
    examples = [tf.train.Example.FromString(each.numpy()) for each in data]
    del examples[1].features.feature["word_stops"].int64_list.value[-1]
    examples[2].features.feature["word_first"].int64_list.value[0] = -1
    path.write_bytes(framed([example.SerializeToString() for example in examples]))
    output = run(path, **flags)
    reasons = [line["reason"] for line in rejected(output)]
    assert reasons == ["no words that fit the row"] * 2
    all_rows, left = (
        pq.read_table(data_files(each, "words")).to_pylist() for each in (whole, output)
    )
    assert left == [all_rows[0], all_rows[3]]
