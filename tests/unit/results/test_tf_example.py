"""Our bytes are those of tf.train.Example in TFRecord files, and what is read is what was meant."""

import struct
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.base.arrays import splits_of
from bert_embed.results.tf_example import (
    FeatureColumn,
    decode_records,
    encode_records,
    masked_crc,
    one_each,
    unframed,
)
from tests.support.blocks import example, framed

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 300)


def ints(rows):
    flat = [value for row in rows for value in row]
    return FeatureColumn(np.array(flat, np.int64), splits_of(np.array([*map(len, rows)], int)))


records = st.lists(
    st.tuples(
        st.lists(INT64, max_size=200),
        st.lists(st.binary(max_size=200), min_size=1, max_size=3),
        INT64,
        st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
    ),
    max_size=8,
)


@given(records)
@settings(max_examples=150)
def test_the_bytes_are_those_of_tf_train_example(found):
    many, some, one, three = ([row[column] for row in found] for column in range(4))
    splits, longer = splits_of(np.array([*map(len, some)], int)), "name of over a few bytes"
    columns = {"zeros": ints(many), "a": FeatureColumn([b for row in some for b in row], splits)}
    columns["one"] = one_each(np.array(one, np.int64))
    flat = np.array(three, np.float32).reshape(-1)
    columns[longer] = FeatureColumn(flat, 3 * np.arange(len(found) + 1))
    wanted = [example(**{"zeros": a, "a": b, "one": [c], longer: d}) for a, b, c, d in found]
    assert bytes(encode_records(columns)) == framed(wanted)


def test_tensorflow_reads_the_files(tmp_path):
    rows = [example(a=[1, 2]), example(a=[-1]), example(a=[])]
    for data in (encode_records({"a": ints([[1, 2], [-1], []])}), framed(rows)):
        (tmp_path / "it.tfrecord").write_bytes(bytes(data))
        records = tf.data.TFRecordDataset(str(tmp_path / "it.tfrecord"))
        assert [record.numpy() for record in records] == rows


@given(st.lists(st.lists(INT64, max_size=30), max_size=20), st.integers(1, 50))
def test_what_was_written_is_read_whatever_the_pieces(rows, size):
    data = encode_records({"a": ints(rows)})
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = [record.data for some in unframed(pieces) for record in some]
    columns, readable = decode_records(found, {"a": int, "b": bytes})
    assert readable.tolist() == list(range(len(rows)))
    splits = columns["a"].splits.tolist()
    assert [columns["a"].values[a:b].tolist() for a, b in pairwise(splits)] == rows
    assert columns["b"].counts.tolist() == [0] * len(rows)


def test_damage_is_told_by_its_offset():
    rows = [example(a=[n] * 50) for n in range(3)]
    data = bytearray(framed(rows))
    second = len(framed(rows[:1]))
    data[second + 30] ^= 1
    found = [record for some in unframed([bytes(data)]) for record in some]
    assert [record.data for record in found] == [rows[0], None, rows[2]]
    assert found[1].offset == second
    data[second] ^= 1
    with pytest.raises(ValueError, match=f"length of the record at byte {second} is damaged"):
        list(unframed([bytes(data)]))
    with pytest.raises(ValueError, match=f"ends within the record at byte {second}"):
        list(unframed([framed(rows)[: second + 20]]))
    huge = struct.pack("<Q", 1 << 40)
    with pytest.raises(ValueError, match="at byte 0"):
        list(unframed([huge + struct.pack("<I", masked_crc(huge))]))


def test_records_that_are_no_examples_are_left_out():
    good = example(a=[1])
    rows = [good, b"\xff\xff", good, example(a=[0.5]), good]
    columns, readable = decode_records(rows, {"a": int})
    assert readable.tolist() == [0, 2, 4]
    assert columns["a"].values.tolist() == [1, 1, 1]
