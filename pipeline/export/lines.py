"""Writes JSON lines: for OpenSearch and Elasticsearch, Qdrant, Pyserini, and Vertex AI.

https://cloud.google.com/vertex-ai/docs/vector-search/setup/format-structure has the rules of the
last.
"""

import math
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import (
    deleted_files,
    deleted_names,
    entry_names,
    named_weights,
    numbers_of_row,
    refuse_equal_ids,
    rows_of_files,
    write_lines,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows

_LONGEST_ID = 512  # bytes, of OpenSearch and Elasticsearch
_FIELDS = {"dense": "embedding", "sparse": "sparse"}  # of OpenSearch
# Fields that OpenSearch or Elasticsearch has of every document; no document may hold them.
_METADATA = frozenset(
    (
        *("_id", "_index", "_type", "_source", "_routing", "_version", "_seq_no", "_primary_term"),
        *("_field_names", "_ignored", "_ignored_source", "_nested_path", "_tier", "_feature"),
        *("_doc_count", "_data_stream_timestamp", "_size"),
    )
)
_FACTOR = 100  # impacts are integers; what the SPLADE models of Anserini are indexed with
# Beside the folder: Anserini takes every file in it for documents, Vertex each `.json` for data.
_JOURNAL = ".export.json"
_MOST_OBJECTS = 5000  # directly under the root
_MEGABYTES = 32  # of the vectors of a file, which are about three times as many in JSON


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
    _check_fields(source)
    names = []
    if "sparse" in source.kinds:
        # A query of OpenSearch finds no name with a dot; Elasticsearch's own models spell it so.
        names = [name.replace(".", "__") for name in entry_names(source)]

    def lines(batch: Rows, row: int, key: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        vectors = source.vectors(batch)
        if not 0 < (size := len(key.encode())) <= _LONGEST_ID:
            raise UsageError(
                f"{source.place} has an id of {size} bytes, {key[:40]!r}, but an index takes ids "
                f"of 1 to {_LONGEST_ID}: embed with another --id_column"
            )
        yield {"index": {"_id": key}}
        document = dict(values)
        if "dense" in vectors:
            document[_FIELDS["dense"]] = vectors["dense"][row]
        if "sparse" in vectors:
            document[_FIELDS["sparse"]] = named_weights(vectors["sparse"], row, names)
        yield document

    def deletion(name: str) -> bytes:
        return orjson.dumps({"delete": {"_id": name}}, option=orjson.OPT_APPEND_NEWLINE)

    deletes = deleted_files(deleted_names(source), "bulk_deleted_{:04d}.jsonl", deletion)
    return write_lines(source, "bulk_{:04d}.jsonl", lines, others=deletes)


def _check_fields(source: Source) -> None:
    """Refuses columns that no field is named like: an index takes a dot for a field in another."""
    fields = {*source.schema.names, *(_FIELDS[kind] for kind in source.kinds)}
    for name in source.schema.names:
        parts = name.split(".")
        above = {".".join(parts[:count]) for count in range(1, len(parts))}
        if name in _METADATA or above & fields or not all(map(str.strip, parts)):
            raise UsageError(
                f"{source.place} has a column {name!r}, but an index has no such field beside its "
                "own and these: rename it in the input, or embed without it"
            )


def qdrant(source: Source) -> bool:
    """Exports points with named vectors, which Qdrant's clients upsert; False if there already."""
    refuse_equal_ids(source, "Qdrant")

    def lines(batch: Rows, row: int, key: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        named: dict[str, Any] = {}
        for kind, vectors in source.vectors(batch).items():
            one = vectors[row]
            if kind == "dense":
                named[kind] = one
            elif len(one) and kind == "sparse":
                named[kind] = {"indices": one.indices, "values": one.values}
            elif len(one):  # Qdrant refuses an empty multi-vector
                named[kind] = one.vectors
        yield {"id": _point(key), "vector": named, "payload": values}

    deletes = deleted_files(
        deleted_names(source), "deleted_{:04d}.txt", lambda name: f"{_point(name)}\n".encode()
    )
    return write_lines(source, "points_{:04d}.jsonl", lines, others=deletes)


def _point(name: str) -> str:
    """Qdrant takes integers from 0 on and UUIDs as ids, and no texts."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def pyserini(source: Source) -> bool:
    """Exports what Anserini's JsonVectorCollection indexes as impacts; False if there already."""
    names = entry_names(source)

    def lines(batch: Rows, row: int, key: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        weights = named_weights(source.vectors(batch)["sparse"], row, names)
        impacts = {name: round(float(weight) * _FACTOR) for name, weight in weights.items()}
        yield {
            "id": key,
            "contents": values.get("text") or "",
            "vector": {name: impact for name, impact in impacts.items() if impact},
        }

    return write_lines(source, "docs_{:04d}.jsonl", lines, source.options.dest + _JOURNAL)


def vertex(source: Source) -> bool:
    """Exports datapoints to a batch root; False if it was there already."""
    refuse_equal_ids(source, "Vector Search")
    options = source.options
    restricts = _columns(source, "restricts", options.restricts, _is_token)
    numeric = _columns(source, "numeric_restricts", options.numeric_restricts, _is_number)
    metadata = _columns(source, "embedding_metadata", options.embedding_metadata)

    def lines(batch: Rows, row: int, key: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        crowding = {"crowding_tag": str(values["id"])} if source.parts else {}
        allowed = ((name, _tokens(values[name])) for name in restricts)
        optional = {
            "restricts": [{"namespace": name, "allow": some} for name, some in allowed if some],
            "numeric_restricts": [
                {"namespace": name, field: values[name]}
                for name, field in numeric.items()
                if values[name] is not None and math.isfinite(values[name])
            ],
            "embedding_metadata": {name: values[name] for name in metadata},
        }
        point = {"id": key, **_embeddings(source.vectors(batch), row), **crowding}
        yield point | {name: value for name, value in optional.items() if value}

    names = deleted_names(source)
    for name in names:
        if not name or {"\n", "\r"} & set(name):
            raise UsageError(
                f"{source.place} deletes the document {name!r}, whose id is empty or has a line "
                "break, but Vector Search deletes an id a line: export all outputs together"
            )
    deletes = deleted_files(names, "delete/deleted_{:04d}.txt", lambda name: f"{name}\n".encode())
    return write_lines(
        source,
        "vectors_{:04d}.json",
        lines,
        options.dest + _JOURNAL,
        deletes,
        columns={"id", *restricts, *numeric, *metadata},
        rows=rows_per_file(source),
    )


def _embeddings(vectors: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The fields of a row's dense and sparse vector; an empty one has none."""
    fields: dict[str, Any] = {}
    if "dense" in vectors:
        fields["embedding"] = vectors["dense"][row]
    if "sparse" in vectors:
        sparse = vectors["sparse"]
        entries = slice(*sparse.splits[row : row + 2])
        if entries.stop > entries.start:
            values, dimensions = sparse.values[entries], sparse.indices[entries]
            fields["sparse_embedding"] = {"values": values, "dimensions": dimensions}
    return fields


def rows_per_file(source: Source) -> int:
    """How many rows a file gets, such that there are not too many files."""
    return max(rows_of_files(numbers_of_row(source), _MEGABYTES), -(-source.rows // _MOST_OBJECTS))


def _columns(
    source: Source,
    flag: str,
    names: tuple[str, ...],
    field_of: Callable[[pa.DataType], str | None] = lambda kind: "",
) -> dict[str, str]:
    """The field of each column that a flag names."""
    fields = {}
    for name in names:
        if name not in source.schema.names:
            columns = ", ".join(source.schema.names)
            raise UsageError(f"--{flag} names {name}, but the output has {columns}")
        field = field_of(kind := source.schema.field(name).type)
        if field is None:
            raise UsageError(f"--{flag} cannot take {name}, which is {kind}")
        fields[name] = field
    return fields


def _is_token(kind: pa.DataType) -> str | None:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return "allow" if any(is_kind(kind) for is_kind in known) else None


def _is_number(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        return "value_int"
    if pa.types.is_float32(kind):
        return "value_float"
    return "value_double" if pa.types.is_float64(kind) else None


def _tokens(value: Any) -> list[str]:
    """The values of a restrict as text.

    >>> _tokens(["a", None]), _tokens(True), _tokens(None)
    (['a'], ['true'], [])
    """
    tokens = value if isinstance(value, list) else [value]
    return [
        str(token).lower() if isinstance(token, bool) else str(token)
        for token in tokens
        if token is not None
    ]
