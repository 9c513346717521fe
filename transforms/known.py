"""Known documents: a block in, the same without what an earlier output has out."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms.keys import rows_of_part

if TYPE_CHECKING:
    from transforms.sources import DocumentBlock


def without_known(block: "DocumentBlock", found: bytes) -> "DocumentBlock":
    """A part without the documents to skip, which its report counts.

    Args:
        block: What was read.
        found: `BlockSpec.known` of its block.
    """
    skipped = rows_of_part(np.frombuffer(found, np.int64), block.part.number)
    if len(skipped) == 0:
        return block
    kept = np.delete(np.arange(len(block)), skipped)
    return replace(take_documents(block, kept), part=replace(block.part, skipped=len(skipped)))


def take_documents(block: "DocumentBlock", kept: np.ndarray) -> "DocumentBlock":
    """Some documents of a part, int64 `[kept]`, in that order; its numbers stay what they are."""
    columns = {name: _taken(each, kept) for name, each in vars(block).items() if name != "part"}
    return replace(block, **columns)


def _taken(column: Any, kept: np.ndarray) -> Any:
    """Some rows of a column of whatever kind; None stays None."""
    if isinstance(column, (pa.Array, pa.ChunkedArray, pa.Table)):
        return column.take(pa.array(kept))
    if isinstance(column, np.ndarray):
        return column[kept]
    return None if column is None else [column[row] for row in kept.tolist()]
