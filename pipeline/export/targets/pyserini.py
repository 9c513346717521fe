"""Writes JSON lines that Anserini's JsonVectorCollection, and so Pyserini, indexes as impacts."""

from collections.abc import Iterator
from typing import Any

from bert_embed.pipeline.export.folder import entry_names, named_weights, row_id, write_lines
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows

_FACTOR = 100  # impacts are integers; what the SPLADE models of Anserini are indexed with
# Beside the folder: every file in it is taken for documents.
_JOURNAL = ".export.json"


def export(source: Source) -> bool:
    """Exports to files; False if they were there already."""
    names = entry_names(source)

    def lines(batch: Rows, values: dict[str, Any], row: int) -> Iterator[dict[str, Any]]:
        weights = named_weights(source.vectors(batch)["sparse"], row, names)
        impacts = {name: round(float(weight) * _FACTOR) for name, weight in weights.items()}
        yield {
            "id": row_id(values),
            "contents": values.get("text") or "",
            "vector": {name: impact for name, impact in impacts.items() if impact},
        }

    return write_lines(source, "docs", lines, source.options.dest + _JOURNAL)
