"""Writes vectors of texts as tf.train.Examples in TFRecord files, one a row."""

from typing import Any, BinaryIO

import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.formats.number_types import output_dtype
from bert_embed.formats.tf_example import (
    Bytes,
    Feature,
    Floats,
    Ints,
    encode_records,
    one_int,
)
from bert_embed.storage.errors import InputError
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.write.vector_tables import vector_table


def write_tfrecord(
    file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]
) -> None:
    """Writes a block's vectors of texts.

    `embedding` is a list of floats; other numbers are the little-endian bytes of one string, which
    `tf.io.decode_raw` takes. A sparse vector is two lists, `indices` and `values`, a score a float.
    The other features have the names of Parquet columns.
    """
    if not KINDS[kind].in_tfrecord:
        raise InputError(f"TFRecord files hold one vector a text, not {KINDS[kind].folder}")
    dtype = output_dtype(metadata)
    table = vector_table(block, kind, metadata).combine_chunks()
    columns = {name: table[name].chunk(0) for name in table.column_names}
    features = {name: _feature(name, column, dtype) for name, column in columns.items()}
    file.write(encode_records(features))


def _feature(name: str, column: pa.Array, dtype: str) -> Feature:
    if pa.types.is_string(column.type):
        return Bytes(column.fill_null("").cast(pa.binary()).to_pylist())
    if pa.types.is_list(column.type):
        numbers, splits = column.values.to_numpy(), column.offsets.to_numpy()
        return Ints(numbers, splits) if name == "indices" else Floats(numbers, splits)
    if pa.types.is_float32(column.type):
        return Floats(column.to_numpy()[:, None])
    if name != "embedding":
        return one_int(column.to_numpy(zero_copy_only=False))
    numbers = column.values.to_numpy().reshape(len(column), column.type.list_size)
    if dtype == "float32":
        return Floats(numbers)
    little = numbers.astype(numbers.dtype.newbyteorder("<"))
    return Bytes([row.tobytes() for row in little])
