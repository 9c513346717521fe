"""Makes a table of id, embedding, content and metadata, as Beam's RAG package has it."""

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
    ids, pieces = table["id"].combine_chunks(), block.windows
    names = ["text_hash", *(block.extra.column_names if block.extra is not None else ())]
    if pieces is not None:
        names = [pieces.name, "start", "stop", *names]
        ids = pc.binary_join_element_wise(ids, pa.array(pieces.window).cast(pa.string()), ":")
    columns = {"document": table["id"]} | {name: table[name] for name in names}
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    pairs = [
        [
            {"key": key, "value": str(value)}
            for key, value in zip(columns, row, strict=True)
            if value is not None
        ]
        for row in rows
    ]
    metadata = pa.array(pairs, RAG_SCHEMA.field("metadata").type)
    values = [ids, table["embedding"], table["text"], metadata]
    return pa.table(dict(zip(RAG_SCHEMA.names, values, strict=True)))
