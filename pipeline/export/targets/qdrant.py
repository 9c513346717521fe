"""Writes JSON lines of points with named vectors, which Qdrant's clients upsert."""

import uuid
from collections.abc import Iterator
from typing import Any

from bert_embed.pipeline.export.folder import refuse_equal_ids, row_id, write_lines
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows


def export(source: Source) -> bool:
    """Exports to files; False if they were there already."""
    refuse_equal_ids(source, "Qdrant")

    def lines(batch: Rows, values: dict[str, Any], row: int) -> Iterator[dict[str, Any]]:
        named: dict[str, Any] = {}
        for kind, vectors in source.vectors(batch).items():
            if kind == "dense":
                named[kind] = vectors[row]
                continue
            entries = slice(*vectors.splits[row : row + 2])
            if entries.start == entries.stop:  # Qdrant refuses an empty multi-vector
                continue
            if kind == "sparse":
                indices, weights = vectors.indices[entries], vectors.values[entries]
                named[kind] = {"indices": indices, "values": weights}
            else:
                named[kind] = vectors.vectors[entries]
        # Qdrant takes integers from 0 on and UUIDs as ids, and no texts.
        point = uuid.uuid5(uuid.NAMESPACE_URL, row_id(values))
        yield {"id": str(point), "vector": named, "payload": values}

    return write_lines(source, "points", lines)
