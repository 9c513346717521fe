"""Writes one kind of an EmbeddingBlock's vectors as JSON lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise, repeat
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.formats.number_types import INTEGER_DTYPES, output_dtype, restored
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.write.token_lines import token_rows
from bert_embed.transforms.write.vector_tables import more_columns, vector_table

# JSON has no notation for their values; Arrow writes them as text.
_AS_TEXT = (pa.types.is_decimal, pa.types.is_date, pa.types.is_time)
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write_jsonl(file: BinaryIO, block: EmbeddingBlock, kind: str, metadata: dict[str, Any]) -> None:
    """Writes one kind of a block's vectors as lines with the columns of a Parquet file.

    Numbers are the shortest digits that read back as the same float32, those of tokens are rounded
    to six decimals. JSON lines have no place for `metadata`; it is in `run.json`.
    """
    if metadata.get("id_type", "string") != "string":
        block = replace(block, ids=block.ids.cast(pa.type_for_alias(metadata["id_type"])))
    dtype = output_dtype(metadata)
    if kind == "token":
        rows = _with_more(token_rows(block, metadata), block)
    else:
        table = vector_table(block, kind, metadata)
        lists = KINDS[kind].names(metadata)
        columns = {name: _values(name, table[name], dtype, lists) for name in table.column_names}
        rows = _rows(columns)
    file.writelines(orjson.dumps(row, option=_OPTIONS) for row in rows)


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _with_more(rows: Iterable[dict[str, Any]], block: EmbeddingBlock) -> Iterator[dict[str, Any]]:
    columns = {name: json_values(column) for name, column in more_columns(block).items()}
    further = _rows(columns) if columns else repeat({})
    return (row | values for row, values in zip(rows, further, strict=False))


def _values(
    name: str, column: pa.Array | pa.ChunkedArray, dtype: str, lists: Sequence[str] = ()
) -> Iterable[Any]:
    """The values of a column of vectors, of lists of numbers, of words or spans, or of others."""
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
    """Values as JSON has them: instants and dates in ISO 8601, decimals their digits as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
        end = "" if kind.tz is None else "Z"
        return [text and text.replace(" ", "T") + end for text in texts]
    if any(is_kind(kind) for is_kind in _AS_TEXT):
        return column.cast(pa.string()).to_pylist()
    if pa.types.is_float32(kind):  # NumPy's numbers are written with the few digits of float32
        return [None if value is None else np.float32(value) for value in column.to_pylist()]
    return column.to_pylist()
