"""Defines DocumentBlock, the documents that were read from a part of a block, and hashes ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from bert_embed.transforms.records.part import Part


@dataclass(frozen=True)
class DocumentBlock:
    """The documents of a part, as columns.

    Attributes:
        part: What was read and rejected so far.
        ids: Arrow strings `[documents]`, unique in the run where the input's are.
        texts: The texts, none of them blank.
        sources: Arrow strings `[documents]`, file and position of each.
        texts_b: The second texts, "" for a document without; None if the run has no pairs.
        words: The words of a text that came as a list of words (some may be empty), None for any
            other text; None if no text of the part came so.
        spans: Code points `[start, stop)` in the text; None if not requested.
        extra: Extra columns, a row a document; None if not requested.
    """

    part: Part
    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    extra: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.texts)


def id_hashes(ids: Sequence[str] | pa.StringArray) -> np.ndarray:
    """uint64 `[ids]`: XXH3 (64 bits, seed 0) of each id's UTF-8.

    Two different ids have the same hash with a probability of 1 in 2**64. A document counts as
    embedded only if the hash of its text agrees, too. Counts of ids rely on this hash alone: among
    a billion ids there is a collision in one of 37 cases.
    """
    digest = xxhash.xxh3_64_intdigest
    listed = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return np.array([digest(document_id.encode()) for document_id in listed], np.uint64)
