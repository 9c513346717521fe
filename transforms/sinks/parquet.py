"""Parquet: an EmbeddingBlock to the bytes of a file, what the vectors are in its metadata."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.inference import EmbeddingBlock

METADATA_KEY = b"bert_embed"


def parquet_bytes(block: EmbeddingBlock, metadata: dict[str, Any]) -> memoryview:
    """The block as a Parquet file of one row group; equal blocks give equal bytes."""
    table = embedding_table(block).replace_schema_metadata(
        {METADATA_KEY: json.dumps(metadata, sort_keys=True)}
    )
    sink = pa.BufferOutputStream()
    # Vectors are noise to a compressor and all different to a dictionary; ids are neither.
    plain = "embedding.list.element"
    pq.write_table(
        table,
        sink,
        row_group_size=max(len(block), 1),
        compression={name: "none" if name == "embedding" else "zstd" for name in table.column_names}
        | {plain: "none"},
        use_dictionary=["truncated"],
        write_statistics=["id", "num_tokens", "truncated", "text_hash"],
    )
    return memoryview(sink.getvalue())


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
