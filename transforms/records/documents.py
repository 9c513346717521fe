"""Defines DocumentBlock, the documents that were read from a part of a block, and hashes ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from bert_embed.transforms.records.part import Part


@dataclass(frozen=True)
class DocumentBlock:
    """The documents of a part, as columns."""

    part: Part
    ids: pa.StringArray  # [documents], unique in the run where the input's are
    texts: list[str]  # none of them blank
    sources: pa.StringArray  # [documents], file and position of each
    texts_b: list[str] | None = None  # "" for a document without; None: no pairs
    words: list[list[str] | None] | None = None  # None where a text did not come as a list of words
    spans: list[list[tuple[int, int]]] | None = None  # code points [start, stop); None: unasked
    extra: pa.Table | None = None  # a row a document

    def __len__(self) -> int:
        return len(self.texts)


def id_hashes(ids: Sequence[str] | pa.StringArray) -> np.ndarray:
    """uint64 `[ids]`: XXH3 (64 bits, seed 0) of each id's UTF-8.

    A document counts as embedded only if the hash of its text agrees, too. Counts of ids rely on
    this hash alone: among a billion ids there is a collision in one of 37 cases.
    """
    digest = xxhash.xxh3_64_intdigest
    listed = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return np.array([digest(document_id.encode()) for document_id in listed], np.uint64)
