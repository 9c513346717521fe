"""Writes a batch root of JSON lines for Vertex AI Vector Search.

https://cloud.google.com/vertex-ai/docs/vector-search/setup/format-structure has the rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import (
    PARTS,
    deleted_files,
    deleted_names,
    numbers_of_row,
    refuse_equal_ids,
    rows_of_files,
    write_files,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows
from bert_embed.results.json_lines import json_values
from bert_embed.storage.files import write_whole

_MOST_OBJECTS = 5000  # directly under the root
_MEGABYTES = 32  # of the vectors of a file, which are about three times as many in JSON
# Beside the root: in it, every name that ends with .json is taken for data.
_JOURNAL = ".export.json"
_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


class _Datapoints:
    """Turns rows into lines of JSON."""

    def __init__(self, source: Source) -> None:
        options = source.options
        self._source = source
        self._restricts = _columns(source, "restricts", options.restricts, _is_token)
        self._numeric = _columns(source, "numeric_restricts", options.numeric_restricts, _is_number)
        self._metadata = _columns(source, "embedding_metadata", options.embedding_metadata)
        self._part = next((name for name in PARTS if name in source.schema.names), None)

    def write(self, paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
        """Writes one file."""
        lines = (line for batch in batches for line in self._lines(batch))
        write_whole(paths[0], lambda file: file.writelines(lines))

    def _lines(self, batch: Rows) -> Iterator[bytes]:
        parts = () if self._part is None else (self._part,)
        wanted = {"id", *self._restricts, *self._numeric, *self._metadata, *parts}
        columns = {name: json_values(batch.columns[name]) for name in wanted}
        vectors = self._source.vectors(batch)
        for row in range(len(batch)):
            values = {name: column[row] for name, column in columns.items()}
            embeddings = _embeddings(vectors, row)
            yield orjson.dumps(self._datapoint(values, embeddings), option=_JSON)

    def _datapoint(
        self, values: Mapping[str, Any], embeddings: Mapping[str, Any]
    ) -> dict[str, Any]:
        document = str(values["id"])
        point = {"id": document, **embeddings}
        if self._part is not None:
            point |= {"id": f"{document}#{values[self._part]}", "crowding_tag": document}
        allowed = ((name, _tokens(values[name])) for name in self._restricts)
        restricts = [{"namespace": name, "allow": tokens} for name, tokens in allowed if tokens]
        numeric = [
            {"namespace": name, field: values[name]}
            for name, field in self._numeric.items()
            if values[name] is not None
        ]
        metadata = {name: values[name] for name in self._metadata}
        optional = {
            "restricts": restricts,
            "numeric_restricts": numeric,
            "embedding_metadata": metadata,
        }
        return point | {name: value for name, value in optional.items() if value}


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


def vertex(source: Source) -> bool:
    """Exports to a batch root; False if it was there already."""
    refuse_equal_ids(source, "Vector Search")
    journal = source.options.dest + _JOURNAL
    deletes = deleted_files(
        deleted_names(source), "delete/deleted_{:04d}.txt", lambda name: f"{name}\n".encode()
    )
    write = _Datapoints(source).write
    return write_files(source, rows_per_file(source), _names, write, journal, deletes)


def rows_per_file(source: Source) -> int:
    """How many rows a file gets, such that there are not too many files."""
    return max(rows_of_files(numbers_of_row(source), _MEGABYTES), -(-source.rows // _MOST_OBJECTS))


def _names(number: int, count: int) -> tuple[str, ...]:
    return (f"vectors_{number:04d}.json",)


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
