"""Document vectors: vectors of rows and a layout in, vectors of documents, tokens and words out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert.layout import Layout, Units
from bert.row_runner import EmbeddedRows
from bert.text_spec import TextSpec
from bert.units import merge_tokens
from bert.windows import merge_windows


@dataclass(frozen=True)
class GranularVectors:
    """The vectors of some documents; None for what was not wanted.

    Attributes:
        sentences: float32 `[documents, width]`, or `[windows, width]` where windows are kept.
        tokens: float32 `[tokens, width]`, as `Layout.tokens` lists them.
        words: float32 `[words, width]`, zeros for a word without a token.
        spans: float32 `[spans, width]`, zeros for a span without a token.
    """

    sentences: np.ndarray | None
    tokens: np.ndarray | None = None
    words: np.ndarray | None = None
    spans: np.ndarray | None = None


@dataclass(frozen=True)
class TextVectors:
    """The vectors of one text's tokens or words.

    Attributes:
        texts: The tokens or words.
        starts: int32 `[n]`, the first character of each; -1 for special tokens.
        stops: int32 `[n]`, one past the last; -1 likewise.
        vectors: float32 `[n, width]`.
    """

    texts: list[str]
    starts: np.ndarray
    stops: np.ndarray
    vectors: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)


def document_vectors(
    layout: Layout,
    embedded: EmbeddedRows,
    row: np.ndarray,
    row_splits: np.ndarray,
    spec: TextSpec,
    finish: Callable[[np.ndarray], np.ndarray],
    layers: int = 1,
) -> GranularVectors:
    """Gives documents the vectors of the rows that were computed for them.

    Args:
        layout: How documents were cut to rows.
        embedded: Vectors of the distinct rows.
        row: int `[rows of the layout]`, which distinct row each is equal to.
        row_splits: int64 `[distinct rows + 1]`, their tokens.
        spec: What is wanted.
        finish: Makes of merged vectors what the model makes of those of single rows.
        layers: How many vectors stand side by side in a token's, each scaled for itself.
    """
    sentences = None
    if embedded.vectors is not None:
        same = len(row) == len(embedded.vectors) and bool((np.diff(row) == 1).all())
        sentences = embedded.vectors if same else embedded.vectors[row]
        if layout.windows is not None and not spec.keeps_windows:
            sentences = finish(merge_windows(sentences, layout.windows))
    if layout.tokens is None or embedded.token_vectors is None:
        return GranularVectors(sentences)
    tokens = embedded.token_vectors[row_splits[row[layout.tokens.row]] + layout.tokens.place]

    def units(wanted: Units | None) -> np.ndarray | None:
        if wanted is None:
            return None
        merged = merge_tokens(tokens, wanted.first, wanted.last, spec.word_pooling)
        return scaled(merged, layers) if spec.normalize_tokens else merged

    words, spans = units(layout.words), units(layout.spans)
    if "token" not in spec.granularity:
        return GranularVectors(sentences, None, words, spans)
    tokens = scaled(tokens, layers) if spec.normalize_tokens else tokens
    return GranularVectors(sentences, tokens, words, spans)


def scaled(vectors: np.ndarray, layers: int) -> np.ndarray:
    """Vectors of unit length, each of `layers` side by side by itself; zeros stay zeros."""
    split = vectors.reshape(len(vectors), layers, -1)
    lengths = np.linalg.norm(split, axis=-1, keepdims=True)
    return (split / np.maximum(lengths, np.float32(1e-12))).reshape(vectors.shape)


def per_document(
    splits: np.ndarray,
    texts: Sequence[str],
    starts: np.ndarray,
    stops: np.ndarray,
    vectors: np.ndarray,
) -> list[TextVectors]:
    """Columns of all documents to one record each."""
    return [
        TextVectors(list(texts[a:b]), starts[a:b], stops[a:b], vectors[a:b])
        for a, b in pairwise(splits.tolist())
    ]
