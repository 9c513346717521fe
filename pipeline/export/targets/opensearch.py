"""Writes files for the `_bulk` API of OpenSearch and Elasticsearch.

Sparse vectors fit the field types `rank_features` and, of Elasticsearch, `sparse_vector`.
"""

from collections.abc import Iterator
from typing import Any

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import (
    entry_names,
    named_weights,
    refuse_equal_ids,
    row_id,
    write_lines,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows

_FIELDS = {"dense": "embedding", "sparse": "sparse"}


def export(source: Source) -> bool:
    """Exports to files; False if they were there already."""
    refuse_equal_ids(source, "an index")
    for kind in source.kinds:
        if _FIELDS[kind] in source.schema.names:
            raise UsageError(
                f"{source.place} has a column {_FIELDS[kind]}, as the field of {kind} vectors is "
                "called: embed without it"
            )
    names = []
    if "sparse" in source.kinds:
        # A query of OpenSearch finds no name with a dot; Elasticsearch's own models spell it so.
        names = [name.replace(".", "__") for name in entry_names(source)]

    def lines(batch: Rows, values: dict[str, Any], row: int) -> Iterator[dict[str, Any]]:
        vectors = source.vectors(batch)
        yield {"index": {"_id": row_id(values)}}
        document = dict(values)
        if "dense" in vectors:
            document[_FIELDS["dense"]] = vectors["dense"][row]
        if "sparse" in vectors:
            document[_FIELDS["sparse"]] = named_weights(vectors["sparse"], row, names)
        yield document

    return write_lines(source, "bulk", lines)
