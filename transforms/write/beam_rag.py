"""Makes a table of id, embedding, content and metadata, as Beam's RAG package has it."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.transforms.bigquery.schema import RAG_SCHEMA
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.write.columns import sentence_table


def rag_table(block: EmbeddingBlock) -> pa.Table:
    """The default columns of `apache_beam.ml.rag.ingestion.bigquery`, a row a document or piece.

    The id of a chunk or window is its document's with `:` and its number, so that each row has
    another. `metadata` has the document's id, the chunk's number and place, the hash of the text
    and the extra columns, all as strings; a null is left out.
    """
    table = sentence_table(block, "float32")
    pieces = block.windows
    ids = table["id"].combine_chunks()
    if pieces is not None:
        numbers = pa.array(pieces.window).cast(pa.string())
        ids = pc.binary_join_element_wise(ids, numbers, ":")
    names = [] if pieces is None else [pieces.name, "start", "stop"]
    names += ["text_hash", *(block.extra.column_names if block.extra is not None else ())]
    columns = {"document": table["id"]} | {name: table[name] for name in names}
    return pa.table(
        {
            "id": ids,
            "embedding": table["embedding"],
            "content": table["text"],
            "metadata": _key_values(columns),
        }
    )


def _key_values(columns: Mapping[str, pa.ChunkedArray]) -> pa.Array:
    """Lists of key and value, one for each row; a null is left out."""
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    pairs = [
        [
            {"key": key, "value": str(value)}
            for key, value in zip(columns, row, strict=True)
            if value is not None
        ]
        for row in rows
    ]
    return pa.array(pairs, RAG_SCHEMA.field("metadata").type)
