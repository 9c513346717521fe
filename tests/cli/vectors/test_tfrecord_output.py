"""Vectors in TFRecord files: tf.data reads them, and so do bert_embed.read and search."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.results.names import OUTPUT_DTYPES
from tests.support.command import rows, sentence_files

pytestmark = pytest.mark.slow

TYPES = {"float16": tf.float16, "bfloat16": tf.bfloat16, "int8": tf.int8, "ubinary": tf.uint8}


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "in.txt").write_text("the bank\nriver of money\n\n" + "the river bank " * 40)
    return tmp_path / "in.txt"


def examples(folder, **features):
    paths = list(map(str, sentence_files(folder)))
    data = tf.data.TFRecordDataset(paths)
    return [tf.io.parse_single_example(each, features) for each in data]


def one(kind):
    return tf.io.FixedLenFeature([], kind)


def test_ids_are_integers_again_where_the_input_had_integers(tmp_path, run):
    texts = ["the bank", "river", "the bank"]
    pq.write_table(pa.table({"id": [7, 8, 9], "text": texts}), tmp_path / "in.parquet")
    output = run(tmp_path / "in.parquet", output_format="tfrecord")
    assert bert_embed.read(output)[0] == [7, 8, 9]


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_each_output_type_reads_as_from_parquet(run, texts, dtype):
    parquet = run(texts, "parquet", output_dtype=dtype)
    output = run(texts, output_dtype=dtype, output_format="tfrecord")
    (ids, vectors), (found_ids, found) = bert_embed.read(parquet), bert_embed.read(output)
    assert found_ids == ids
    np.testing.assert_array_equal(found, vectors)
    wanted = rows(parquet)
    kind = tf.io.FixedLenFeature([32], tf.float32) if dtype == "float32" else one(tf.string)
    features = {"embedding": kind, "id": one(tf.string)}
    names = ("text_hash", "num_tokens", "num_tokens_full", "truncated")
    features |= {name: one(tf.int64) for name in names}
    if dtype == "int8":
        features["scale"] = one(tf.float32)
    for row, each in enumerate(examples(output, **features)):
        assert each["id"].numpy().decode() == ids[row]
        for name in names:
            assert each[name].numpy() == wanted[name][row]
        numbers = each["embedding"]
        if dtype != "float32":
            numbers = tf.io.decode_raw(numbers, TYPES[dtype])
        if dtype == "ubinary":
            assert numbers.numpy().tolist() == wanted["embedding"][row]
            continue
        scale = each["scale"].numpy() if dtype == "int8" else np.float32(1)
        np.testing.assert_array_equal(numbers.numpy().astype(np.float32) * scale, vectors[row])


def test_windows_keep_their_places(run, texts):
    flags = {"long_text": "windows", "max_seq_length": 20}
    wanted = rows(run(texts, "parquet", **flags))
    output = run(texts, output_format="tfrecord", **flags)
    assert len(wanted["id"]) > 5
    names = ("window", "start", "stop", "num_tokens", "truncated")
    found = examples(output, **{name: one(tf.int64) for name in names})
    for name in names:
        assert [each[name].numpy() for each in found] == wanted[name]
    assert bert_embed.read(output)[0] == wanted["id"]


def test_search_reads_them_and_tells_the_texts(run, texts, capsys):
    output = run(texts, output_format="tfrecord")
    assert main(["search", str(output), "river of money", "--k", "1"]) == 0
    said = capsys.readouterr().out
    assert "1. 1.0000" in said
    assert "river of money" in said
    (path,) = output.glob("embeddings/part-*.tfrecord")
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        bert_embed.read(output)
