"""Reads and writes vectors as JSON lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, repeat
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import EMBEDDING, SCALE, Kind, Settings
from bert_embed.results.columns import (
    FACTS,
    INTEGERS,
    MOST_BYTES,
    Columns,
    WantedColumns,
    arrow_type,
    decoded,
    stored_types,
    typed_ids,
)
from bert_embed.results.names import INTEGER_DTYPES, output_dtype, restored

# JSON has no notation for their values; Arrow writes them as text.
_AS_TEXT = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time)
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
_DECIMALS = 6  # of tokens
_PIECE = 4 << 20
_FEATURES = "features"  # the key of a line's tokens, as google-research calls them


def write_jsonl(file: BinaryIO, table: pa.Table, kind: Kind, settings: Settings) -> None:
    """Writes a table of vectors as lines with the columns of a Parquet file.

    Numbers are the shortest digits that read back as the same float32, those of tokens are rounded
    to six decimals. JSON lines have no place for the settings; they are in `run.json`.
    """
    table, dtype = typed_ids(table, settings), output_dtype(settings)
    if kind.name == "token":
        rows = token_rows(table, kind, settings)
    else:
        lists = [*kind.names(settings), SCALE]
        rows = _rows(
            {name: _values(name, table[name], dtype, lists) for name in table.column_names}
        )
    file.writelines(orjson.dumps(row, option=_OPTIONS) for row in rows)


def token_rows(table: pa.Table, kind: Kind, settings: Settings) -> Iterator[dict[str, Any]]:
    """Rows of `features`, tokens with layers (index and rounded numbers), `id`, and more columns.

    A stack gives each layer its entry; layers that were combined share one, whose index is the list
    of them, or the one layer that was taken.
    """
    indexes, lists = layer_indexes(settings), table[kind.folder].combine_chunks()
    fields = {field.name: lists.values.field(field.name) for field in lists.type.value_type}
    vectors = np.round(decoded(kind, fields, settings).astype(np.float64), _DECIMALS)
    by_layer = vectors.reshape(len(vectors), len(indexes), -1)
    texts, splits = fields["token"].to_pylist(), lists.offsets.to_pylist()
    names = [name for name in table.column_names if name not in ("id", kind.folder, *FACTS)]
    more = {name: json_values(table[name]) for name in names}
    further = _rows(more) if more else repeat({})
    ids = zip(table["id"].to_pylist(), pairwise(splits), further, strict=False)
    for name, (start, stop), values_of in ids:
        features = [
            {
                "token": token,
                "layers": [
                    {"index": index, "values": values}
                    for index, values in zip(indexes, layers, strict=True)
                ],
            }
            for token, layers in zip(texts[start:stop], by_layer[start:stop], strict=True)
        ]
        yield {_FEATURES: features, "id": name} | values_of


def layer_indexes(settings: Settings) -> list[int | list[int]]:
    """The names of a token's layers, as they were requested.

    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "stack"})
    [-1, -2]
    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "sum"})
    [[-1, -2]]
    >>> layer_indexes({"layers": [-2, 5], "layer_combine": "last", "num_hidden_layers": 6})
    [-2]
    """
    layers = settings["layers"]
    if settings["layer_combine"] == "stack":
        return list(layers)
    if len(layers) == 1:
        return [layers[0]]
    if settings["layer_combine"] == "last":
        states = settings["num_hidden_layers"] + 1
        return [max(layers, key=lambda layer: layer % states)]
    return [list(layers)]


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _values(
    name: str, column: pa.Array | pa.ChunkedArray, dtype: str, lists: Sequence[str] = ()
) -> Iterable[Any]:
    """The values of a column of vectors, of lists of numbers, of words, or of others."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if name == "embedding" and pa.types.is_list(column.type):  # of multi-vectors
        vectors = _vectors(column.values, dtype)
        return (list(islice(vectors, count)) for count in np.diff(column.offsets).tolist())
    if name == "embedding":
        return _vectors(column, dtype)
    if name in lists and pa.types.is_list(column.type):
        numbers, borders = column.values.to_numpy(), column.offsets.to_numpy()
        return (numbers[start:stop] for start, stop in pairwise(borders.tolist()))
    if pa.types.is_large_list(column.type) and pa.types.is_struct(column.type.value_type):
        units = column.values
        fields = {field.name: units.field(field.name) for field in units.type}
        rows = _rows({name: _values(name, values, dtype) for name, values in fields.items()})
        return (list(islice(rows, count)) for count in np.diff(column.offsets).tolist())
    return json_values(column)


def _vectors(column: pa.Array, dtype: str) -> Iterator[Any]:
    """A vector a row, None for missing ones."""
    present = column.is_valid().to_numpy(zero_copy_only=False)
    if not present.any():
        return iter([None] * len(column))
    numbers = column.values.to_numpy().reshape(int(present.sum()), -1)
    if dtype not in INTEGER_DTYPES:
        numbers = np.ascontiguousarray(restored(numbers, None, dtype, numbers.shape[1]))
    vectors = iter(numbers)
    return (next(vectors) if is_present else None for is_present in present.tolist())


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as JSON has them: instants and dates in ISO 8601, decimals their digits as text.

    >>> json_values(pa.array([0, 2**31 - 1], pa.date32()))  # the latter is infinite for DuckDB
    ['1970-01-01', None]
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = _texts(column.cast(pa.timestamp(kind.unit)))
        end = "" if kind.tz is None else "Z"
        return [text and text.replace(" ", "T") + end for text in texts]
    if any(is_kind(kind) for is_kind in _AS_TEXT):
        return _texts(column)
    if pa.types.is_float32(kind):  # NumPy's numbers are written with the few digits of float32
        return [None if value is None else np.float32(value) for value in column.to_pylist()]
    return column.to_pylist()


def _texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Values as text, None for dates and times so far off that Arrow has none."""
    texts = column.cast(pa.string()).to_pylist()
    return [text if text is None or text[0] != "<" else None for text in texts]


def read_lines(source: Any, wanted: WantedColumns) -> Iterator[Columns]:
    """Yields the wanted columns of some rows at a time."""
    kind, lines = wanted.kind, _json_lines(source)
    types = {name: arrow_type(one) for name, one in wanted.stored.items()}
    while batch := list(islice(lines, wanted.rows)):
        if "id" not in wanted.types:
            batch = [{**row, "id": str(row["id"])} for row in batch]
        columns = {
            name: pa.array([row[name] for row in batch], _type_in_json(name, wanted.types))
            for name in batch[0]
            if wanted.has(name) and name not in (kind.folder, _FEATURES)
        }
        if wanted.vectors and not kind.by_row:
            columns[kind.folder] = _units(batch, wanted)
        elif wanted.vectors:
            columns |= {
                name: pa.array([row[name] for row in batch], one) for name, one in types.items()
            }
        yield columns


def _units(batch: Sequence[Mapping[str, Any]], wanted: WantedColumns) -> pa.Array:
    kind, settings = wanted.kind, wanted.settings
    types = {name: arrow_type(one) for name, one in stored_types(kind, settings).items()}
    written = kind.types(settings)
    if kind.name != "token":
        units = [row[kind.folder] for row in batch]
        types |= {name: arrow_type(one) for name, one in written.items() if name != EMBEDDING}
    else:
        types["token"] = pa.string()
        units = [
            [
                {
                    "token": token["token"],
                    EMBEDDING: [number for layer in token["layers"] for number in layer["values"]],
                }
                for token in row[_FEATURES]
            ]
            for row in batch
        ]
    return pa.array(units, pa.large_list(pa.struct(types)))


def _json_lines(file: BinaryIO) -> Iterator[dict[str, Any]]:
    size = 0
    for line in file:
        size += len(line)
        if size > MOST_BYTES:
            raise InputError("too large to be a file of a run")
        yield orjson.loads(line)


def _type_in_json(name: str, types: Mapping[str, str]) -> pa.DataType:
    """The type of a column of JSON lines, which have times and decimals as text."""
    if name in INTEGERS:
        return pa.int32()
    if name == "text_hash":
        return pa.int64()
    declared = types.get(name, "string")
    inner = declared.removeprefix("list<item: ").removesuffix(">")
    in_json = inner in ("bool", "float", "double", "halffloat") or "int" in inner
    kind = pa.type_for_alias(inner) if in_json else pa.string()
    return kind if inner == declared else pa.list_(kind)


def count_lines(file: BinaryIO) -> int:
    """Returns the number of lines of a file."""
    return sum(piece.count(b"\n") for piece in iter(lambda: file.read(_PIECE), b""))
