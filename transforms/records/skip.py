"""Leaves out the documents of a block that an earlier output has."""

from dataclasses import replace

import numpy as np

from bert_embed.transforms.records.columnar import take
from bert_embed.transforms.records.documents import DocumentBlock

ROW_BITS = 32  # of a place are the row; the bits above them are the part


def places(part: int, rows: int) -> np.ndarray:
    """int64 `[rows]`: the places of all documents of a part, in one number each."""
    return (part << ROW_BITS) + np.arange(rows, dtype=np.int64)


def rows_of_part(places: np.ndarray, part: int) -> np.ndarray:
    """Row numbers of those of the sorted places that are in a part.

    >>> rows_of_part(np.append(places(0, 2), places(3, 2)), 3)
    array([0, 1])
    """
    return places_of_part(places, part) - (part << ROW_BITS)


def places_of_part(places: np.ndarray, part: int) -> np.ndarray:
    """Those of the sorted places that are in a part."""
    first, last = np.searchsorted(places, [part << ROW_BITS, (part + 1) << ROW_BITS])
    return places[first:last]


def without_skipped(block: DocumentBlock, skipped: bytes) -> DocumentBlock:
    """The documents of a part without those of `BlockSpec.skipped`, which the part counts."""
    rows = rows_of_part(np.frombuffer(skipped, np.int64), block.part.number)
    if len(rows) == 0:
        return block
    kept = np.delete(np.arange(len(block)), rows)
    return replace(take(block, kept), part=replace(block.part, skipped=len(rows)))
