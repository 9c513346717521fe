"""Each folder of an output is one data set to the tools people use; none needs a filter."""

import datasets
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import bert_embed
from tests.support.blocks import described, every_kind, write
from tests.support.command import data_files, flip, rows, sentence_files
from tests.support.outputs import finished_run


def test_a_folder_opens_as_one_data_set(whole, tmp_path, monkeypatch):
    """What further tools make of each type: integration/readers."""
    folder, wanted = whole / "embeddings", rows(whole)["id"]
    assert len(data_files(whole)) > 2
    assert ds.dataset(folder).to_table()["id"].to_pylist() == wanted
    assert duckdb.sql(f"from '{folder}/*.parquet'").pl()["id"].to_list() == wanted
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path))
    assert list(loaded["id"]) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
def test_ids_keep_the_type_of_their_column(tmp_path, run, kind):
    """Ids are strings on the way; integers as large as they come return as they were."""
    numbers = [3, 2**63 - 1, 0]
    ids = pa.array([str(each) for each in numbers]).cast(kind)
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": ids, "text": ["one", "two", "river"]}), source)
    output = run(source, granularity="sentence,word")
    for folder in ("embeddings", "words"):
        found = ds.dataset(output / folder).to_table()["id"]
        assert found.combine_chunks() == ids
        assert found.type == kind
    assert bert_embed.read(output)[0] == ids.to_pylist()
    assert [each.id for each in bert_embed.read_words(output)] == ids.to_pylist()


def test_all_columns_but_the_vectors_are_compressed_and_have_statistics(tmp_path):
    write(tmp_path, every_kind(), described(every_kind()))
    for path in tmp_path.glob("*/part-*"):
        group = pq.read_metadata(path).row_group(0)
        for column in map(group.column, range(group.num_columns)):
            is_vector = column.path_in_schema.endswith("embedding.list.element")
            assert column.compression == ("UNCOMPRESSED" if is_vector else "ZSTD")
            assert column.is_stats_set != is_vector, column.path_in_schema


def test_a_flipped_bit_is_noticed_by_any_reader_that_looks(output):
    path = data_files(output)[0]
    flip(path, pq.read_metadata(path).row_group(0).column(1).data_page_offset + 200)
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.read_table(path, page_checksum_verification=True)


TYPES = {"bfloat16": tf.bfloat16, "int8": tf.int8, "ubinary": tf.uint8}
NUMBERS = ("chunk", "start", "stop", "num_tokens", "truncated", "text_hash")


def one(kind):
    return tf.io.FixedLenFeature([], kind)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "ubinary"])
def test_tensorflow_reads_what_parquet_holds(tmp_path, dtype):
    """Chunks with their places, and the vectors of each type."""
    parquet, output = (
        finished_run(tmp_path / each, [9], 16, dtype, each, kept=False, chunks=True)
        for each in ("parquet", "tfrecord")
    )
    wanted = rows(parquet)
    (ids, vectors), (found_ids, found) = bert_embed.read(parquet), bert_embed.read(output)
    assert found_ids == ids == wanted["id"]
    np.testing.assert_array_equal(found, vectors)
    kind = tf.io.FixedLenFeature([16], tf.float32) if dtype == "float32" else one(tf.string)
    features = {"embedding": kind, "id": one(tf.string)} | dict.fromkeys(NUMBERS, one(tf.int64))
    features |= {"scale": one(tf.float32)} if dtype == "int8" else {}
    data = tf.data.TFRecordDataset([str(path) for path in sentence_files(output)])
    for row, each in enumerate(data):
        example = tf.io.parse_single_example(each, features)
        assert example["id"].numpy().decode() == ids[row]
        assert [example[one].numpy() for one in NUMBERS] == [wanted[one][row] for one in NUMBERS]
        numbers = example["embedding"]
        numbers = numbers if dtype == "float32" else tf.io.decode_raw(numbers, TYPES[dtype])
        if dtype == "ubinary":
            assert numbers.numpy().tolist() == wanted["embedding"][row]
            continue
        scale = example["scale"].numpy() if dtype == "int8" else np.float32(1)
        np.testing.assert_array_equal(numbers.numpy().astype(np.float32) * scale, vectors[row])
