"""Defines DocumentBlock, the documents that were read from a part of a block."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.records.part import Part


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
        line_numbers: int64 `[documents]`, number of each one's line in its file, from 0, where
            every line counts; None if not requested.
        extra: Extra columns, a row a document; None if not requested.
    """

    part: Part
    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    line_numbers: np.ndarray | None = None
    extra: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.texts)
