"""SparseHead: a weight for each entry of the vocabulary, most of them zero."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import required
from bert_embed.models.encoder import EncoderConfig, Ops, norm_shapes, product_shapes
from bert_embed.models.heads.head import BatchRows, Column, DocumentRows, Head, Kind, Settings, Type
from bert_embed.models.heads.similarities import SparseProducts
from bert_embed.models.heads.vectors import SparseVectors, merged_entries

QUERY_WEIGHTS = "heads/sparse/query_weights"
_WORDS = "embeddings/word"
_TRANSFORM, _NORM, _TOKENS = "heads/sparse/transform", "heads/sparse/norm", "heads/sparse/tokens"
_DECODER, _BIAS = "heads/sparse/decoder", "heads/sparse/decoder_bias"
# Entries of the vocabulary whose logits are in memory at a time: 8 MB for a batch of 512 tokens.
_BLOCK = 4096
_PASSAGE_ENTRIES = 200  # that SPLADE gives a passage


@dataclass(frozen=True)
class SparseHead(Head):
    """SPLADE: logits of a masked language model, or bge-m3: a weight for each token of the text.

    "splade" pools `log1p(relu(logits))` of all tokens; "tokens" takes the largest weight of the
    tokens that have an id.
    """

    kind: ClassVar[str] = "sparse"
    form: Literal["splade", "tokens"] = "splade"
    pooling: Literal["max", "sum"] = "max"
    activation: Literal["relu", "log1p_relu"] = "relu"  # the latter takes the logarithm twice
    transform: str = "gelu"  # activation of the product before the decoder
    transform_bias: bool = True
    norm_bias: bool = True
    decoder: Literal["tied", "own"] = "tied"  # to the word embeddings
    decoder_bias: bool = True
    skip_ids: tuple[int, ...] = ()  # never in a vector
    query_weights: bool = False  # queries need no model: their tokens have these weights

    @property
    def per_token(self) -> bool:
        return self.form == "tokens"

    @property
    def unread(self) -> tuple[str, ...]:
        return (QUERY_WEIGHTS,) if self.query_weights else ()

    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        if self.query_weights:
            shapes[QUERY_WEIGHTS] = (config.vocab_size,)
        if self.form == "tokens":
            return shapes | product_shapes({_TOKENS: (config.hidden_size, 1)})
        table = config.shapes()[_WORDS]
        shapes |= product_shapes({_TRANSFORM: (config.hidden_size, table[1])}, self.transform_bias)
        shapes |= norm_shapes({_NORM: table[1]}, self.norm_bias)
        if self.decoder == "own":
            shapes[_DECODER] = table
        if self.decoder_bias:
            shapes[_BIAS] = table[:1]
        return shapes

    def graph(self, ops: Ops, states: Any) -> Any:
        if self.form == "tokens":
            return ops.activated(ops.product(states, _TOKENS), "relu")
        x = ops.activated(ops.product(states, _TRANSFORM), self.transform)
        x = ops.norm(x, _NORM)
        table = _DECODER if self.decoder == "own" else _WORDS
        against = x, table, _BIAS if self.decoder_bias else None, _BLOCK
        if self.pooling == "max":  # log1p keeps the order, and follows for the few entries
            return ops.largest_against(*against)
        pooled = []
        for logits in ops.against(*against):
            weights = ops.activated(logits, "relu")
            for _ in range(self._logarithms):
                weights = ops.activated(weights, "log1p")
            pooled.append(ops.over_tokens(weights, "sum"))
        return ops.joined(pooled)

    def empty(self) -> tuple[np.ndarray, ...]:
        return np.empty(0, np.int32), np.empty(0, np.float32)

    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        if self.form == "tokens":
            return self._of_tokens(output[:, :, 0], ids, mask)
        finite = np.isfinite(output).all(axis=1)
        counts = (output > 0) & finite[:, None]
        counts[:, list(self.skip_ids)] = False
        row, indices = np.nonzero(counts)
        values = output[row, indices]
        if self.pooling == "max":
            for _ in range(self._logarithms):
                values = np.log1p(values)
        return BatchRows(finite, counts.sum(axis=1), (indices.astype(np.int32), values))

    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> SparseVectors:
        indices, values = columns
        return SparseVectors(splits_of(lengths), indices, values)

    def documents(
        self, rows: SparseVectors, places: DocumentRows, options: Mapping[str, Any]
    ) -> SparseVectors:
        """See `Head.documents`; windows are merged as the tokens of a row are pooled."""
        vectors = rows.take(places.row)
        if places.splits is not None:
            vectors = vectors.merged(places.splits, self.pooling)
        return vectors.largest(options["top_k"])

    def described(self, config: EncoderConfig, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"entries": config.vocab_size, "similarity": "dot", **options}

    def of_text(self, vectors: SparseVectors, number: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Head.of_text`; entries and weights."""
        row = vectors[number]
        return row.indices, row.values

    @property
    def _logarithms(self) -> int:
        return 2 if self.activation == "log1p_relu" else 1

    def _of_tokens(self, weights: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        inside = mask > 0
        finite = (np.isfinite(weights) | ~inside).all(axis=1)
        with np.errstate(invalid="ignore"):
            counts = (weights > 0) & inside & finite[:, None] & ~np.isin(ids, self.skip_ids)
        row, place = np.nonzero(counts)
        merged = merged_entries(len(ids), row, ids[row, place], weights[row, place], "max")
        return BatchRows(finite, np.diff(merged.splits), (merged.indices, merged.values))


class SparseKind(Kind):
    """`SparseVectors` of documents, windows or chunks: lists of indices and of values."""

    similarity = SparseProducts
    structs: ClassVar[Mapping[str, str]] = {"indices": "index", "values": "value"}

    def words(self, settings: Settings, unit: str) -> str:
        head = settings["heads"]["sparse"]
        most = f", up to {head['top_k']:,} weights" if head["top_k"] else ""
        return f"a sparse vector over {head['entries']:,} entries a {unit}{most}"

    def types(self, settings: Settings) -> dict[str, Type]:
        return {"indices": Type("int32", ragged=True), "values": Type("float32", ragged=True)}

    def columns(self, vectors: SparseVectors, settings: Settings) -> dict[str, Column]:
        parts = {"indices": vectors.indices, "values": vectors.values}
        return {name: Column(numbers, vectors.splits) for name, numbers in parts.items()}

    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> SparseVectors:
        indices, values = columns["indices"], columns["values"].values
        return SparseVectors(required(indices.splits, "splits"), indices.values, values)

    def numbers(self, settings: Settings) -> Counter[str]:
        head = settings["heads"]["sparse"]
        return Counter(plain=2 * min(head["top_k"] or _PASSAGE_ENTRIES, head["entries"]))
