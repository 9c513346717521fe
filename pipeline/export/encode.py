"""Turns rows into the arrays and tables that other programs read."""

from collections.abc import Iterable
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.number_types import stored, stored_type, stored_width
from bert_embed.formats.result_rows import Rows

_CONVERTED = ("bfloat16", "int8")  # which most programs do not read, or not with a scale a vector


def exported_dtype(dtype: str) -> str:
    """The number type that other programs get for one of a run.

    >>> [exported_dtype(dtype) for dtype in ("float16", "bfloat16", "ubinary")]
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


def write_parquet(file: BinaryIO, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes tables as they come, a row group each; equal tables give equal bytes."""
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
