"""Computes the vectors of documents, tokens, words and spans from those of rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.errors import required
from bert_embed.base.ragged import splits_of
from bert_embed.base.vectors import unit_length
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.multi import MultiHead, pool_tokens
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.sparse import SparseHead
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.settings import TextSpec
from bert_embed.text.documents import merge_tokens
from bert_embed.text.layout import Layout, TokenPlaces, Units
from bert_embed.text.windows import merge_windows


@dataclass
class EmbeddedRows:
    """Vectors of rows, and counts of their computation."""

    vectors: np.ndarray | None  # float32 [rows, width]; None where not requested
    token_vectors: np.ndarray | None = None  # float32 [tokens, width], all rows end to end
    sparse: SparseVectors | None = None
    multi: MultiVectors | None = None  # of all tokens of each row
    scores: np.ndarray | None = None  # float32 [rows, labels], logits
    failed: dict[int, str] = field(default_factory=dict)  # a fixed reason by row; vectors are 0
    tokens: int = 0  # of all rows, special tokens included
    padded_tokens: int = 0  # as computed, padding included
    batches: int = 0
    compiled: int = 0  # shapes compiled before the first batch
    compile_seconds: float = 0.0  # duration of that


@dataclass(frozen=True)
class GranularVectors:
    """The vectors of some documents; None for what was not requested."""

    sentences: np.ndarray | None  # float32 [documents, windows or chunks, width]
    tokens: np.ndarray | None = None  # float32 [tokens, width], as `Layout.tokens` lists them
    words: np.ndarray | None = None  # float32 [words, width], zeros for a word without a token
    spans: np.ndarray | None = None  # float32 [spans, width], likewise
    sparse: SparseVectors | None = None  # of documents, windows or chunks
    multi: MultiVectors | None = None  # likewise
    scores: np.ndarray | None = None  # float32 [documents, windows or chunks, labels]


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
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]
    vectors: NDArray[np.float32]

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
    heads: Mapping[str, Head] | None = None,
) -> GranularVectors:
    """Computes the vectors of documents from those of their distinct rows.

    `row` is that of `TextRows`, `row_splits` int64 `[distinct rows + 1]`, `finish` applies Dense
    modules, `dim` and `normalize` to merged vectors; each of a token's `layers` is scaled alone.
    `heads` are the model's, by their kind.
    """
    vectors = _dense_vectors(layout, embedded, row, row_splits, spec, finish, layers)
    windows = None if spec.keeps_windows else layout.windows
    for head in (heads or {}).values():
        if isinstance(head, SparseHead) and embedded.sparse is not None:
            sparse = embedded.sparse.take(row)
            if windows is not None:
                sparse = sparse.merged(windows.splits, head.pooling)
            vectors = replace(vectors, sparse=sparse.pruned(spec.top_k, spec.min_weight))
        elif isinstance(head, MultiHead) and embedded.multi is not None:
            places = required(layout.multi, "places of multi-vectors")
            multi = chosen_vectors(head, embedded.multi, places, row)
            vectors = replace(vectors, multi=pool_tokens(multi, spec.pool_factor))
        elif isinstance(head, ScoresHead) and embedded.scores is not None:
            logits = embedded.scores[row]
            if windows is not None:
                logits = merge_windows(logits, windows)
            vectors = replace(vectors, scores=head.activated(logits))
    return vectors


def chosen_vectors(
    head: MultiHead, rows: MultiVectors, tokens: TokenPlaces, row: np.ndarray, query: bool = False
) -> MultiVectors:
    """Returns the vectors of `tokens` that count, from those of distinct rows, which `row` names.

    A row that failed has none.
    """
    distinct = row[tokens.row]
    counts = head.keeps(tokens.ids, tokens.place, query)
    counts &= tokens.place < np.diff(rows.splits)[distinct]
    at = (rows.splits[distinct] + tokens.place)[counts]
    splits = splits_of(counts)[tokens.splits]
    return MultiVectors(splits, rows.vectors[at])


def _dense_vectors(
    layout: Layout,
    embedded: EmbeddedRows,
    row: np.ndarray,
    row_splits: np.ndarray,
    spec: TextSpec,
    finish: Callable[[np.ndarray], np.ndarray],
    layers: int,
) -> GranularVectors:
    """Those of documents, tokens, words and spans."""
    sentences = None
    if embedded.vectors is not None:
        same = len(row) == len(embedded.vectors) and bool((np.diff(row) == 1).all())
        sentences = embedded.vectors if same else embedded.vectors[row]
        if layout.windows is not None and not spec.keeps_windows:
            sentences = finish(merge_windows(sentences, layout.windows))
    if layout.tokens is None or embedded.token_vectors is None:
        return GranularVectors(sentences)
    tokens = embedded.token_vectors[row_splits[row[layout.tokens.row]] + layout.tokens.place]
    if layout.chunks is not None:
        pooled = merge_tokens(tokens, layout.chunks.first, layout.chunks.last, "mean")
        return GranularVectors(finish(pooled))

    def merged_units(units: Units | None) -> np.ndarray | None:
        if units is None:
            return None
        merged = merge_tokens(tokens, units.first, units.last, spec.word_pooling)
        return scaled(merged, layers) if spec.normalize_tokens else merged

    words, spans = merged_units(layout.words), merged_units(layout.spans)
    if "token" not in spec.granularity:
        return GranularVectors(sentences, None, words, spans)
    tokens = scaled(tokens, layers) if spec.normalize_tokens else tokens
    return GranularVectors(sentences, tokens, words, spans)


def scaled(vectors: np.ndarray, layers: int) -> np.ndarray:
    """Returns vectors of unit length, for each of `layers` side by side; zeros stay zeros."""
    split = vectors.reshape(len(vectors), layers, vectors.shape[1] // layers)  # also without rows
    return unit_length(split).reshape(vectors.shape)


def per_document(
    splits: np.ndarray,
    texts: Sequence[str],
    starts: np.ndarray,
    stops: np.ndarray,
    vectors: np.ndarray,
) -> list[TextVectors]:
    """Returns the columns of all documents as one record for each."""
    return [
        TextVectors(list(texts[a:b]), starts[a:b], stops[a:b], vectors[a:b])
        for a, b in pairwise(splits.tolist())
    ]
