"""Parquet: an EmbeddingBlock into a file, what the vectors are in its metadata."""

import json
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa

from transforms.vectors import EmbeddingBlock

METADATA_KEY = "bert_embed"


def write_parquet(file: BinaryIO, block: EmbeddingBlock, metadata: dict[str, Any]) -> None:
    """Writes the block as one row group; equal blocks give equal bytes.

    Nothing is compressed: vectors are noise to a compressor, and nearly all of the file. Polars
    writes lists of fixed size in a quarter of Arrow's time, which is what a fast model waits for.
    """
    pl.DataFrame(embedding_table(block)).write_parquet(
        file,
        compression="uncompressed",
        statistics=False,
        row_group_size=max(len(block), 1),
        metadata={METADATA_KEY: json.dumps(metadata, sort_keys=True)},
    )


def embedding_table(block: EmbeddingBlock) -> pa.Table:
    """Columns: id, embedding (fixed-size list of float), num_tokens, truncated, text_hash."""
    values = pa.array(block.vectors.reshape(-1), pa.float32())
    return pa.table(
        {
            "id": block.ids,
            "embedding": pa.FixedSizeListArray.from_arrays(values, block.vectors.shape[1]),
            "num_tokens": pa.array(block.num_tokens, pa.int32()),
            "truncated": pa.array(block.truncated, pa.bool_()),
            "text_hash": pa.array(block.text_hash, pa.int64()),
        }
    )
