"""Writes vectors of texts as tf.train.Examples in TFRecord files, one a row."""

import gzip
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from bert_embed.formats.number_types import output_dtype, stored
from bert_embed.formats.tf_example import Bytes, Feature, Floats, each, encode_records
from bert_embed.storage.errors import InputError
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.write.columns import window_texts

_LEVEL = 4  # of gzip: half the time of the default, 3% more bytes


def suffix(compression: str) -> str:
    """How a TFRecord file's name ends."""
    return ".tfrecord.gz" if compression == "gzip" else ".tfrecord"


def compressed(data: bytes, compression: str) -> bytes:
    """The bytes as they are stored; without a time, so that equal bytes stay equal."""
    return gzip.compress(data, _LEVEL, mtime=0) if compression == "gzip" else data


def write_tfrecord(
    file: BinaryIO, block: EmbeddingBlock, granularity: str, metadata: dict[str, Any]
) -> None:
    """Writes a block's vectors of texts.

    `embedding` is a list of floats; numbers stored as another type are the little-endian bytes of
    one string, which `tf.io.decode_raw` takes, and int8 has its `scale`. The other features have
    the names of Parquet columns. `run.json` says what the vectors are.
    """
    if granularity != "sentence":
        raise InputError(f"TFRecord files hold vectors of texts, not of {granularity}s")
    data = encode_records(_features(block, output_dtype(metadata))).tobytes()
    file.write(compressed(data, metadata.get("compression", "none")))


def _features(block: EmbeddingBlock, dtype: str) -> dict[str, Feature]:
    assert block.vectors is not None
    windows = block.windows
    rows = np.arange(len(block)) if windows is None else windows.document
    ids = block.ids.cast(pa.binary()).to_pylist()
    found: dict[str, Feature] = {
        "id": Bytes([ids[row] for row in rows.tolist()]),
        "text_hash": each(block.text_hash[rows]),
    }
    kept = stored(block.vectors, dtype)
    if dtype == "float32":
        found["embedding"] = Floats(kept.values)
    else:
        little = kept.values.astype(kept.values.dtype.newbyteorder("<"))
        found["embedding"] = Bytes([row.tobytes() for row in little])
    if kept.scale is not None:
        found["scale"] = Floats(kept.scale[:, None])
    if block.texts is not None:
        texts = block.texts if windows is None else window_texts(block.texts, windows)
        found["text"] = Bytes(texts.fill_null("").cast(pa.binary()).to_pylist())
    if windows is None:
        found |= {"num_tokens": each(block.num_tokens), "truncated": each(block.truncated)}
        return found | {"num_tokens_full": each(block.num_tokens_full)}
    return found | {
        "num_tokens": each(windows.num_tokens),
        "truncated": each(np.zeros(len(rows))),
        windows.name: each(windows.window),
        "start": each(windows.starts),
        "stop": each(windows.stops),
    }
