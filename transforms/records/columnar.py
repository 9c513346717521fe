"""Takes, joins and measures the columns of a block, whatever they are made of.

A block is a dataclass. Its columns are NumPy arrays, Arrow arrays and tables, lists, and ragged
records with `splits`; None stands for a column that a run does not have.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from bert_embed.ragged import take_rows

_Block = TypeVar("_Block")
_ARROW = (pa.Array, pa.ChunkedArray, pa.Table)
_SAMPLED = 100  # elements of a list that are measured
_SMALL = 8  # bytes of a small value, and about what a list needs for an element


def take(block: _Block, rows: np.ndarray) -> _Block:
    """Takes rows, int64 `[taken]`, or a mask where all are arrays, of every column."""
    columns: Any = block
    taken = {name: take_column(column, rows) for name, column in vars(block).items()}
    return replace(columns, **taken)


def take_column(column: Any, rows: np.ndarray) -> Any:
    """Takes rows of one column, None where there is none."""
    if isinstance(column, _ARROW):
        return column.take(pa.array(rows))
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    if hasattr(column, "splits"):
        at, splits = take_rows(column.splits, rows)
        return replace(take(replace(column, splits=None), at), splits=splits)
    return column


def join(blocks: Sequence[_Block]) -> _Block:
    """Joins the columns of blocks end to end; a column that the first block lacks stays None."""
    columns = zip(*(vars(block).values() for block in blocks), strict=True)
    return type(blocks[0])(*map(_joined, columns))


def _joined(columns: Sequence[Any]) -> Any:
    first = columns[0]
    if first is None:
        return None
    if isinstance(first, pa.Table):
        return pa.concat_tables(columns)
    if isinstance(first, pa.Array):
        return pa.concat_arrays(columns)
    return np.concatenate(columns) if isinstance(first, np.ndarray) else [*chain(*columns)]


def nbytes(value: Any) -> int:
    """About how many bytes a block has: its arrays exactly, lists by their first elements."""
    if isinstance(value, (np.ndarray, *_ARROW)):
        return value.nbytes
    if isinstance(value, (str, bytes)):
        return len(value) + _SMALL
    if isinstance(value, list | tuple):
        sample = value[:_SAMPLED]
        return _SMALL * len(value) + sum(map(nbytes, sample)) * len(value) // max(len(sample), 1)
    if is_dataclass(value):
        return sum(nbytes(getattr(value, field.name)) for field in fields(value))
    return _SMALL


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of fixed or any length."""
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
