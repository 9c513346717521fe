"""Turns vectors of a kind into Arrow columns as files store them, and back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.head import EMBEDDING, PIECES, SCALE, Column, Kind, Settings, Type
from bert_embed.results.names import output_dtype, restored, stored, stored_type, stored_width

# What a run notes of each row for itself; it is of no use beside a vector elsewhere.
FACTS = ("num_tokens", "num_tokens_full", "truncated", "text_hash")
INTEGERS = (*PIECES, "start", "stop", "num_tokens_full")
Columns = dict[str, pa.Array]
_VECTOR = pa.list_(pa.float32())


@dataclass(frozen=True)
class WantedColumns:
    """What to read of each row, and how many rows at a time."""

    kind: Kind
    settings: Settings
    columns: Collection[str] | None  # None: all that say something of a document
    vectors: bool
    rows: int
    types: Mapping[str, str]  # Arrow's, of the extra columns and the id; else the id is text
    check_pages: bool = True

    def has(self, name: str) -> bool:
        """Whether a column is wanted that is no part of the vectors."""
        if self.columns is None:
            of_vectors = (*self.kind.names(self.settings), SCALE, self.kind.folder)
            return name not in (*of_vectors, *FACTS)
        return name in self.columns

    def takes(self, name: str) -> bool:
        """Whether a column is wanted, or one of the vectors."""
        of_vectors = self.stored if self.kind.by_row else (self.kind.folder,)
        return self.has(name) or (self.vectors and name in of_vectors)

    @property
    def stored(self) -> dict[str, Type]:
        """The columns of the vectors; none if they are not wanted."""
        return stored_types(self.kind, self.settings) if self.vectors else {}


def stored_types(kind: Kind, settings: Settings) -> dict[str, Type]:
    """Returns the types of the columns that vectors are read from, as files store them."""
    written, dtype = kind.types(settings), output_dtype(settings)
    types = {name: written[name] for name in kind.names(settings)}
    if kind.has_dtype:
        vectors = types[EMBEDDING]
        width = stored_width(dtype, vectors.width)
        types[EMBEDDING] = vectors._replace(numbers=stored_type(dtype).name, width=width)
        if dtype == "int8":
            types[SCALE] = Type("float32", vectors.ragged)
    return types


def arrow_type(described: Type) -> pa.DataType:
    """Returns Arrow's type of a column, whose lists may be null."""
    kind = pa.type_for_alias(described.numbers)
    for _ in range((described.width > 0) + described.ragged):
        kind = pa.list_(kind)
    return kind


def encoded(kind: Kind, vectors: Any, settings: Settings) -> Columns:
    """Returns the columns of vectors as `EmbeddingBlock` has them."""
    columns: Columns = {}
    splits = None
    for name, column in kind.columns(vectors, settings).items():
        splits = column.splits
        if kind.has_dtype and name == EMBEDDING:
            columns |= _dense(column, output_dtype(settings))
        elif isinstance(column.values, np.ndarray):
            text = pa.string() if column.values.dtype == object else None
            columns[name] = pa.array(column.values, text)
        else:
            columns[name] = column.values
    if not kind.by_row:
        structs = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        return {kind.folder: pa.LargeListArray.from_arrays(pa.array(splits, pa.int64()), structs)}
    if splits is None:
        return columns
    offsets = pa.array(splits, pa.int32())
    return {name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()}


def _dense(column: Column, dtype: str) -> Columns:
    """The vectors as lists, and scales; lists of fixed size cannot be null in Parquet."""
    vectors, missing = column.values, column.missing
    coded = stored(vectors if missing is None else vectors[~missing], dtype)
    numbers, width = pa.array(coded.values.reshape(-1)), coded.values.shape[1]
    scale = coded.scale
    if missing is None:
        lists = pa.FixedSizeListArray.from_arrays(numbers, width)
    else:
        offsets = pa.array(np.append(0, np.cumsum(~missing) * width), pa.int64())
        lists = pa.LargeListArray.from_arrays(offsets, numbers, mask=pa.array(missing))
        if scale is not None:
            scale = np.zeros(len(missing), np.float32)
            scale[~missing] = coded.scale
    scales = {} if scale is None else {SCALE: pa.array(scale, mask=missing)}
    return {EMBEDDING: lists} | scales


def decoded(kind: Kind, columns: Mapping[str, Any], settings: Settings) -> Any:
    """Returns the vectors of columns that `stored_types` names."""
    types = {name: kind.types(settings)[name] for name in kind.names(settings)}
    parts = {}
    for name, described in types.items():
        values, splits, scale = columns[name], None, columns.get(SCALE)
        if described.ragged:
            splits = splits_of(_lengths(values))
            values, scale = values.flatten(), None if scale is None else scale.flatten()
        if kind.has_dtype and name == EMBEDDING:
            numbers = _restored(values, scale, output_dtype(settings), described.width)
        else:
            numbers = np.from_dlpack(values)
        parts[name] = Column(numbers, splits)
    return kind.of_columns(parts, settings)


def _lengths(lists: Any) -> np.ndarray:
    # to_numpy would import pandas where it is installed: a third of a second.
    lengths = lists.value_lengths()
    return np.from_dlpack(lengths.fill_null(0) if lengths.null_count else lengths)


def _restored(lists: Any, scale: Any, dtype: str, width: int) -> np.ndarray:
    """float32 `[rows, width]`, NaN for rows that are null."""
    present = _lengths(lists) > 0
    scales = None if scale is None else np.from_dlpack(scale.fill_null(np.nan))[present]
    rows = np.from_dlpack(lists.flatten()).reshape(int(present.sum()), stored_width(dtype, width))
    vectors = restored(rows, scales, dtype, width)
    if present.all():
        return vectors
    spread = np.full((len(present), width), np.nan, np.float32)
    spread[present] = vectors
    return spread


def loaded_types(kind: Kind, settings: Settings) -> dict[str, pa.DataType]:
    """Returns the columns of float32 vectors in BigQuery, which has no lists of lists."""
    types = kind.types(settings)
    values = {
        name: _VECTOR if one.width else pa.type_for_alias(one.numbers)
        for name, one in types.items()
    }
    if kind.structs:
        structs = {field: values[name] for name, field in kind.structs.items()}
        return {kind.name: pa.list_(pa.struct(structs))}
    return values if kind.by_row else {kind.folder: pa.list_(pa.struct(values))}


def loadable(table: pa.Table, kind: Kind) -> pa.Table:
    """Returns a table with the columns of `loaded_types` instead of those of `encoded`."""
    if kind.structs:
        lists = [table[column].combine_chunks() for column in kind.structs]
        values = [column.values for column in lists]
        structs = pa.StructArray.from_arrays(values, list(kind.structs.values()))
        column = pa.ListArray.from_arrays(lists[0].offsets, structs)
        return table.drop_columns(list(kind.structs)).add_column(1, kind.name, column)
    if kind.by_row:
        return table
    lists = table[kind.folder].combine_chunks()
    units = lists.values
    fields = {field.name: units.field(field.name) for field in units.type}
    vectors = fields[EMBEDDING]
    if not pa.types.is_large_list(vectors.type):  # none is missing
        return table
    fields[EMBEDDING] = pa.LargeListArray.from_arrays(vectors.offsets, vectors.values)
    structs = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    filled = pa.LargeListArray.from_arrays(lists.offsets, structs)
    return table.set_column(table.column_names.index(kind.folder), kind.folder, filled)


def requiring(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Returns a schema whose columns of these names cannot be null."""
    return pa.schema([one.with_nullable(one.nullable and one.name not in names) for one in schema])


def lists_of(structs: pa.ListArray, names: Sequence[str]) -> Columns:
    """Lists of structs as a list of each of their fields; `names` are what they are called."""
    splits = pa.array(splits_of(_lengths(structs)), pa.int32())
    fields = structs.flatten().flatten()
    return {
        name: pa.ListArray.from_arrays(splits, field)
        for name, field in zip(names, fields, strict=False)
    }


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of fixed or any length."""
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as Python has them: instants of UTC, and no nanoseconds, which it lacks.

    Of a column with times that Python cannot hold, as of the year 10000, all are text.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us" if kind.unit == "ns" else kind.unit, kind.tz and "UTC")
    elif pa.types.is_time64(kind):
        kind = pa.time64("us")
    try:
        return column.cast(kind, safe=False).to_pylist()
    except (OverflowError, ValueError):
        return column.cast(pa.string()).to_pylist()


def typed_ids(table: pa.Table, settings: Settings) -> pa.Table:
    """Returns a table whose ids have the type of the column that they came from."""
    ids = table["id"].cast(pa.type_for_alias(settings.get("id_type", "string")))
    return table.set_column(0, "id", ids)


def read_as_decimals(wanted: WantedColumns) -> WantedColumns:
    """Returns what is wanted of a format that holds floating numbers as decimals."""
    dtype = output_dtype(wanted.settings)
    if stored_type(dtype).kind in "iu" and dtype != "bfloat16":
        return wanted
    return replace(wanted, settings={**wanted.settings, "output_dtype": "float32"})
