"""Defines EmbeddingBlock, the vectors of a part as columns."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bert_embed.transforms.records.columnar import take
from bert_embed.transforms.records.part import Part


@dataclass(frozen=True)
class KeptWindows:
    """The windows of long texts, or the chunks of texts, where each has a vector of its own.

    Attributes:
        document: int32 `[windows]`, the place of each window's document; never decreasing.
        window: int32 `[windows]`, its number in the document, from 0.
        starts, stops: int32 `[windows]`, code points of the text, from its first to after its last.
        num_tokens: int32 `[windows]`, its tokens, special tokens included; without these where a
            chunk is pooled in its document.
        name: `window` or `chunk`.
    """

    document: np.ndarray
    window: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    num_tokens: np.ndarray
    name: str = "window"


@dataclass(frozen=True)
class TokenVectors:
    """A vector of every token, all documents end to end.

    Attributes:
        splits: int64 `[documents + 1]`, where each document begins and ends in the rest.
        tokens: Arrow strings `[tokens]`, special tokens included.
        segments: int32 `[tokens]`, 0 for the first text and 1 for the second.
        starts, stops: int32 `[tokens]`, code points in the text; -1 for special tokens.
        vectors: float32 `[tokens, width]`.
    """

    splits: np.ndarray
    tokens: pa.StringArray
    segments: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class UnitVectors:
    """A vector of every word, or of every requested span, all documents end to end.

    Attributes:
        splits: int64 `[documents + 1]`, where each document begins and ends in the rest.
        texts: Arrow strings `[units]`, or None where units have no text of their own.
        starts, stops: int32 `[units]`, code points in the text.
        truncated: bool `[units]`, whether tokens of it were cut off.
        missing: bool `[units]`, whether all its tokens were cut off, so that it has no vector.
        vectors: float32 `[units, width]`; without meaning where `missing`.
    """

    splits: np.ndarray
    texts: pa.StringArray | None
    starts: np.ndarray
    stops: np.ndarray
    truncated: np.ndarray
    missing: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class EmbeddingBlock:
    """The vectors of a part, as columns in the order of its documents.

    Attributes:
        part, ids, num_tokens, truncated, text_hash, extra, texts: As in `TokenBlock`.
        full_lengths: int32 `[documents]`, as `num_tokens` if nothing had been cut; None: nothing
            was.
        vectors: float32 `[documents, width]`, `[windows, width]` if windows are kept, None if no
            vectors of whole texts are requested.
        windows: Which windows the vectors are of, None if they are of documents.
        tokens: Vectors of tokens, None if not requested.
        words: Vectors of words, likewise.
        spans: Vectors of spans, likewise.
        computed_tokens: Tokens the model ran on.
        padded_tokens: The same with padding.
        batches: Batches it ran.
        compiled: Shapes of batches that were compiled for them.
    """

    part: Part
    ids: pa.StringArray
    num_tokens: np.ndarray
    truncated: np.ndarray
    text_hash: np.ndarray
    vectors: np.ndarray | None = None
    windows: KeptWindows | None = None
    tokens: TokenVectors | None = None
    words: UnitVectors | None = None
    spans: UnitVectors | None = None
    extra: pa.Table | None = None
    texts: pa.StringArray | None = None
    full_lengths: np.ndarray | None = None
    computed_tokens: int = 0
    padded_tokens: int = 0
    batches: int = 0
    compiled: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens_full(self) -> np.ndarray:
        """int32 `[documents]`: `num_tokens` if nothing had been cut."""
        return self.num_tokens if self.full_lengths is None else self.full_lengths

    @property
    def granularities(self) -> tuple[str, ...]:
        """Which kinds of vectors it holds: sentence, token, word, span, in this order."""
        held = {
            "sentence": self.vectors,
            "token": self.tokens,
            "word": self.words,
            "span": self.spans,
        }
        return tuple(name for name, vectors in held.items() if vectors is not None)


def take_documents(block: EmbeddingBlock, documents: np.ndarray) -> EmbeddingBlock:
    """The vectors of some documents, int64 `[kept]`, ascending."""
    vectors, windows = block.vectors, block.windows
    if vectors is None or windows is None:
        return take(block, documents)
    at = np.flatnonzero(np.isin(windows.document, documents))
    windows = take(windows, at)
    document = np.searchsorted(documents, windows.document).astype(np.int32)
    others = take(replace(block, vectors=None, windows=None), documents)
    return replace(others, vectors=vectors[at], windows=replace(windows, document=document))
