"""Turns rows into the arrays and tables that other programs read."""

from collections.abc import Iterable
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.number_types import stored, stored_type, stored_width
from bert_embed.formats.result_files import Rows

_CONVERTED = ("bfloat16", "int8")  # which most programs do not read, or not with a scale a vector


def exported_dtype(dtype: str) -> str:
    """The number type that other programs get for one of a run.

    >>> [exported_dtype(each) for each in ("float16", "bfloat16", "ubinary")]
    ['float16', 'float32', 'ubinary']
    """
    return "float32" if dtype in _CONVERTED else dtype


def numbers(rows: Rows, dtype: str) -> np.ndarray:
    """float32 or float16 `[rows, width]`, or the packed bits of ubinary, uint8."""
    return stored(rows.vectors, exported_dtype(dtype)).values


def number_type(dtype: str) -> np.dtype:
    """The type of `numbers`."""
    return stored_type(exported_dtype(dtype))


def numbers_width(dtype: str, width: int) -> int:
    """How many of `numbers` a vector has."""
    return stored_width(exported_dtype(dtype), width)


def table(rows: Rows, dtype: str, column: str) -> pa.Table:
    """The columns of rows, and their vectors as lists of fixed size after `id`."""
    values = numbers(rows, dtype)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return rows.columns.add_column(1, column, lists)


def schema_of(schema: pa.Schema, dtype: str, width: int, column: str) -> pa.Schema:
    """The schema of `table`, from that of the columns."""
    item = pa.from_numpy_dtype(number_type(dtype))
    return schema.insert(1, pa.field(column, pa.list_(item, numbers_width(dtype, width))))


def write_parquet(file: BinaryIO, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes tables as they come, a row group each; equal tables give equal bytes."""
    coded = [field.name for field in schema if not pa.types.is_fixed_size_list(field.type)]
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=coded) as writer:
        for each in tables:
            writer.write_table(each)


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """float32 `[rows, width]` of length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
