"""Defines EmbeddingBlock, the vectors of a part as columns."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.heads.vectors import MultiVectors, SparseVectors
from bert_embed.transforms.records.columnar import take, take_column
from bert_embed.transforms.records.part import Part


@dataclass(frozen=True)
class KeptWindows:
    """The windows of long texts, or the chunks of texts, where each has a vector of its own."""

    document: np.ndarray  # int32 [windows], place of its document; never decreasing
    window: np.ndarray  # int32 [windows], number in the document, from 0
    starts: np.ndarray  # int32 [windows], code point of the text
    stops: np.ndarray  # int32 [windows], after its last code point
    num_tokens: np.ndarray  # int32 [windows], with special tokens unless pooled in its document
    name: str = "window"  # or `chunk`


@dataclass(frozen=True)
class TokenVectors:
    """A vector of every token, all documents end to end."""

    splits: np.ndarray  # int64 [documents + 1], where each begins and ends in the rest
    tokens: pa.StringArray  # [tokens], special tokens included
    segments: np.ndarray  # int32 [tokens], 0 for the first text and 1 for the second
    starts: np.ndarray  # int32 [tokens], code points in the text; -1 for special tokens
    stops: np.ndarray  # likewise
    vectors: np.ndarray  # float32 [tokens, width]


@dataclass(frozen=True)
class UnitVectors:
    """A vector of every word, or of every requested span, all documents end to end."""

    splits: np.ndarray  # int64 [documents + 1], where each begins and ends in the rest
    texts: pa.StringArray | None  # [units]; None: they have no text of their own
    starts: np.ndarray  # int32 [units], code points in the text
    stops: np.ndarray  # likewise
    truncated: np.ndarray  # bool [units], tokens of it were cut off
    missing: np.ndarray  # bool [units], all its tokens were cut off, so that it has no vector
    vectors: np.ndarray  # float32 [units, width]; without meaning where `missing`


@dataclass(frozen=True)
class EmbeddingBlock:
    """The vectors of a part, in its documents' order; other columns are as in `TokenBlock`."""

    part: Part
    ids: pa.StringArray
    num_tokens: np.ndarray  # int32 [documents]
    truncated: np.ndarray  # bool [documents]
    text_hash: np.ndarray
    vectors: np.ndarray | None = None  # float32 [documents or kept windows, width]
    windows: KeptWindows | None = None  # that the rows of `ROW_KINDS` are; None: documents
    tokens: TokenVectors | None = None  # this and the next five: None: not requested
    words: UnitVectors | None = None
    spans: UnitVectors | None = None
    sparse: SparseVectors | None = None  # of documents or kept windows, as the next two
    multi: MultiVectors | None = None
    scores: np.ndarray | None = None  # float32 [documents or kept windows, labels]
    extra: pa.Table | None = None
    texts: pa.StringArray | None = None
    full_lengths: np.ndarray | None = None  # int32 [documents], uncut; None: nothing was cut
    computed_tokens: int = 0  # that the model ran on
    padded_tokens: int = 0  # the same with padding
    batches: int = 0  # that it ran
    compiled: int = 0  # shapes of batches that were compiled for them

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens_full(self) -> np.ndarray:
        """int32 `[documents]`: `num_tokens` if nothing had been cut."""
        return self.num_tokens if self.full_lengths is None else self.full_lengths

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of vectors it holds, in the order of `KINDS`."""
        return tuple(kind for kind in KINDS if self.of(kind) is not None)

    def of(self, kind: str) -> Any:
        """Returns the vectors of a kind; None if it holds none."""
        return getattr(self, _column(kind))


def _column(kind: str) -> str:
    return "vectors" if kind == "sentence" else KINDS[kind].folder


def take_documents(block: EmbeddingBlock, documents: np.ndarray) -> EmbeddingBlock:
    """The vectors of some documents, int64 `[kept]`, ascending."""
    windows = block.windows
    if windows is None:
        return take(block, documents)
    at = np.flatnonzero(np.isin(windows.document, documents))
    windows = take(windows, at)
    document = np.searchsorted(documents, windows.document).astype(np.int32)
    names = [_column(name) for name, kind in KINDS.items() if kind.by_row]
    of_windows = {name: take_column(getattr(block, name), at) for name in names}
    without: Any = dict.fromkeys(("windows", *names))
    others: Any = take(replace(block, **without), documents)
    return replace(others, windows=replace(windows, document=document), **of_windows)
