"""Vectors in TFRecord files, as tf.data and our readers see them; types: unit/transforms."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import rows, sentence_files

pytestmark = pytest.mark.slow

TYPES = {"bfloat16": tf.bfloat16, "int8": tf.int8, "ubinary": tf.uint8}
NUMBERS = ("window", "start", "stop", "num_tokens", "truncated", "text_hash")


def one(kind):
    return tf.io.FixedLenFeature([], kind)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "ubinary"])
def test_tensorflow_reads_what_parquet_holds(run, dtype):
    """Windows with their places, and the vectors of each type."""
    texts = {"in.txt": "the bank\nriver of money\n\n" + "the river bank " * 40}
    flags = {"long_text": "windows", "max_seq_length": 20, "output_dtype": dtype}
    parquet = run(texts, "parquet", **flags)
    output, wanted = run(texts, output_format="tfrecord", **flags), rows(parquet)
    (ids, vectors), (found_ids, found) = bert_embed.read(parquet), bert_embed.read(output)
    assert found_ids == ids == wanted["id"]
    assert len(ids) > 5
    np.testing.assert_array_equal(found, vectors)
    kind = tf.io.FixedLenFeature([32], tf.float32) if dtype == "float32" else one(tf.string)
    features = {"embedding": kind, "id": one(tf.string)} | dict.fromkeys(NUMBERS, one(tf.int64))
    features |= {"scale": one(tf.float32)} if dtype == "int8" else {}
    data = tf.data.TFRecordDataset([str(path) for path in sentence_files(output)])
    for row, record in enumerate(data):
        each = tf.io.parse_single_example(record, features)
        assert each["id"].numpy().decode() == ids[row]
        assert [each[name].numpy() for name in NUMBERS] == [wanted[name][row] for name in NUMBERS]
        numbers = each["embedding"]
        numbers = numbers if dtype == "float32" else tf.io.decode_raw(numbers, TYPES[dtype])
        if dtype == "ubinary":
            assert numbers.numpy().tolist() == wanted["embedding"][row]
            continue
        scale = each["scale"].numpy() if dtype == "int8" else np.float32(1)
        np.testing.assert_array_equal(numbers.numpy().astype(np.float32) * scale, vectors[row])


def test_ids_are_integers_again_and_search_finds_them(tmp_path, run, capsys):
    texts = ["the bank", "river of money", "the bank"]
    pq.write_table(pa.table({"id": [7, 8, 9], "text": texts}), tmp_path / "in.parquet")
    output = run(tmp_path / "in.parquet", output_format="tfrecord")
    assert bert_embed.read(output)[0] == [7, 8, 9]
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
