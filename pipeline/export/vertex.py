"""Writes a batch root of Vertex AI Vector Search: files of JSON lines, a datapoint each.

https://cloud.google.com/vertex-ai/docs/vector-search/setup/format-structure has the rules.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.errors import counted
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import rows_of_files, write_files
from bert_embed.pipeline.export.source import ExportSource, key_of, row_names
from bert_embed.results.files import Rows
from bert_embed.results.json_lines import json_values
from bert_embed.storage.files import write_whole

_JOURNAL = ".export.json"  # beside the folder: Vertex takes each `.json` in it for data
_MOST_OBJECTS = 5000  # directly under the root
_MEGABYTES = 32  # of the vectors of a file, which are about three times as many in JSON
_SPARSE_NUMBERS = 512  # that stand for the sparse vector of a row: some 200 pairs
_DELETED_ROWS = 100_000  # of a file
_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def vertex(source: ExportSource) -> str:
    """Exports datapoints to a batch root; returns what to say."""
    keys = source.row_keys()
    if equal := len(keys) - len(np.unique(keys)):
        raise UsageError(
            f"{source.place} has {counted(equal, 'row')} whose document's id another one has, "
            "Vector Search takes each id once: embed with another --id_column, or what is in "
            "several outputs with --skip_existing"
        )
    if key_of("") in keys:
        raise UsageError(
            f"{source.place} has a document whose id is empty, but Vector Search takes no such id: "
            "embed with another --id_column"
        )
    options = source.options
    restricts = _columns(source, "restricts", options.restricts, _is_token)
    numeric = _columns(source, "numeric_restricts", options.numeric_restricts, _is_number)
    metadata = _columns(source, "embedding_metadata", options.embedding_metadata)
    columns = {"id", *restricts, *numeric, *metadata}

    def points(batch: Rows) -> Iterator[bytes]:
        converted = {name: json_values(batch.columns[name]) for name in columns}
        for row, key in enumerate(row_names(batch.columns)):
            values = {name: column[row] for name, column in converted.items()}
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
            point |= {name: value for name, value in optional.items() if value}
            yield orjson.dumps(point, option=_JSON)

    def write(paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
        lines = (line for batch in batches for line in points(batch))
        write_whole(paths[0], lambda file: file.writelines(lines))

    is_new = write_files(
        source,
        rows_per_file(source),
        lambda number, _: (f"vectors_{number:04d}.json",),
        write,
        options.dest + _JOURNAL,
        _deleted_files(source),
    )
    return source.said(is_new)


def _deleted_files(source: ExportSource) -> dict[str, bytes]:
    """The files that say what an increment deletes, an id a line."""
    if not source.continued:
        return {}
    names = [name for batch in source.deleted() for name in row_names(batch)]
    for name in names:
        if name.endswith("#None"):
            raise UsageError(
                f"{source.place} deletes documents of a table, which does not say how many chunks "
                "they have: export all outputs together"
            )
        if not name or {"\n", "\r"} & set(name):
            raise UsageError(
                f"{source.place} deletes the document {name!r}, whose id is empty or has a line "
                "break, but Vector Search deletes an id a line: export all outputs together"
            )
    starts = range(0, len(names), _DELETED_ROWS)
    return {
        f"delete/deleted_{number:04d}.txt": "".join(
            f"{name}\n" for name in names[start : start + _DELETED_ROWS]
        ).encode()
        for number, start in enumerate(starts)
    }


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


def rows_per_file(source: ExportSource) -> int:
    """How many rows a file gets, such that there are not too many files."""
    numbers = {"dense": source.width, "sparse": _SPARSE_NUMBERS}
    of_row = sum(numbers[kind] for kind in source.kinds)
    return max(rows_of_files(of_row, _MEGABYTES), -(-source.rows // _MOST_OBJECTS))


def _columns(
    source: ExportSource,
    flag: str,
    names: tuple[str, ...],
    field_of: Callable[[pa.DataType], str | None] = lambda kind: "",
) -> dict[str, str]:
    """The field of each column that a flag names."""
    fields = {}
    for name in names if source.rows else ():  # a day without news shows no columns
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
