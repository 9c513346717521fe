"""Writes JSON lines: for OpenSearch and Elasticsearch, Qdrant, and Pyserini."""

import uuid
from collections.abc import Iterator
from typing import Any

import orjson

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import (
    deleted_files,
    deleted_names,
    entry_names,
    named_weights,
    refuse_equal_ids,
    row_id,
    write_lines,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows

_FIELDS = {"dense": "embedding", "sparse": "sparse"}  # of OpenSearch
_FACTOR = 100  # impacts are integers; what the SPLADE models of Anserini are indexed with
# Beside the folder: Anserini takes every file in it for documents.
_JOURNAL = ".export.json"


def opensearch(source: Source) -> bool:
    """Exports to files for the `_bulk` API; False if they were there already.

    Sparse vectors fit the field types `rank_features` and, of Elasticsearch, `sparse_vector`.
    """
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

    names_gone = deleted_names(source)
    deletes = deleted_files(names_gone, "bulk_deleted_{:04d}.jsonl", _delete_action)
    return write_lines(source, "bulk", lines, others=deletes)


def _delete_action(name: str) -> bytes:
    return orjson.dumps({"delete": {"_id": name}}, option=orjson.OPT_APPEND_NEWLINE)


def qdrant(source: Source) -> bool:
    """Exports points with named vectors, which Qdrant's clients upsert; False if there already."""
    refuse_equal_ids(source, "Qdrant")

    def lines(batch: Rows, values: dict[str, Any], row: int) -> Iterator[dict[str, Any]]:
        named: dict[str, Any] = {}
        for kind, vectors in source.vectors(batch).items():
            one = vectors[row]
            if kind == "dense":
                named[kind] = one
            elif len(one) and kind == "sparse":
                named[kind] = {"indices": one.indices, "values": one.values}
            elif len(one):  # Qdrant refuses an empty multi-vector
                named[kind] = one.vectors
        yield {"id": _point(row_id(values)), "vector": named, "payload": values}

    deletes = deleted_files(deleted_names(source), "deleted_{:04d}.txt", _point_line)
    return write_lines(source, "points", lines, others=deletes)


def _point(name: str) -> str:
    """Qdrant takes integers from 0 on and UUIDs as ids, and no texts."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _point_line(name: str) -> bytes:
    return f"{_point(name)}\n".encode()


def pyserini(source: Source) -> bool:
    """Exports what Anserini's JsonVectorCollection indexes as impacts; False if there already."""
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
