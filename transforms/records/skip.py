"""Leaves out documents of a block: those that an earlier output has, or all of them."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from bert_embed.transforms.records.columnar import take
from bert_embed.transforms.records.documents import DocumentBlock
from bert_embed.transforms.records.rejected import BLOCK_SKIPPED, Rejected
from bert_embed.transforms.redact import RedactErrors

ROW_BITS = 32  # of a place are the row; the bits above them are the part


def places(part: int, rows: int) -> np.ndarray:
    """int64 `[rows]`: the places of all documents of a part, in one number each."""
    return (part << ROW_BITS) + np.arange(rows, dtype=np.int64)


def rows_of_part(places: np.ndarray, part: int) -> np.ndarray:
    """Row numbers of those of the sorted places that are in a part."""
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
    rest = np.delete(np.arange(len(block)), rows)
    return replace(take(block, rest), part=replace(block.part, skipped=len(rows)))


def without_blocks(block: DocumentBlock, numbers: Collection[int]) -> DocumentBlock:
    """The part, all rejected if its block, which crashes workers, has such a number."""
    if block.part.block not in numbers:
        return block
    with RedactErrors("skip blocks"):
        columns = block.ids.to_pylist(), block.sources.to_pylist(), block.texts
        rejected = tuple(
            Rejected(document, source, "read", BLOCK_SKIPPED, text)
            for document, source, text in zip(*columns, strict=True)
        )
        part = replace(block.part, rejected=block.part.rejected + rejected)
        return replace(take(block, np.zeros(0, np.int64)), part=part)
