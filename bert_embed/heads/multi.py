"""MultiHead: a vector for each token of a text, for late interaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.architectures.ops import Ops
from bert_embed.config import DenseModule
from bert_embed.heads.head import BatchRows, Head
from bert_embed.heads.vectors import MultiVectors
from bert_embed.ragged import splits_of
from bert_embed.vectors import unit_length

_LAYER = "heads/multi/{}"


@dataclass(frozen=True)
class MultiHead(Head):
    """ColBERT: the last state of each token through linear layers, of unit length.

    A marker is an id behind the one that begins a row; it says whether the text is a document or
    a query, and no text contains it. Queries can be filled up with [MASK], whose vectors count.
    """

    kind: ClassVar[str] = "multi"
    dim: int
    layers: tuple[DenseModule, ...] = ()
    unit_length: bool = True
    document_marker: int | None = None
    query_marker: int | None = None
    query_length: int | None = None  # most tokens of a query's row; None: as of a document's
    fill_length: int = 0  # tokens up to which a query's row is filled; 0: it is not
    fill_id: int = 0
    attends_fill: bool = True  # whether other tokens see those that fill a row
    skip_ids: tuple[int, ...] = ()  # tokens of documents that get no vector, such as punctuation
    skips_in_queries: bool = False  # nor in queries
    drops_first: bool = False  # the token that begins a row gets no vector

    @property
    def per_token(self) -> bool:
        return True

    @property
    def needs_mask(self) -> bool:
        """Whether rows can have tokens that no token sees."""
        return self.fill_length > 0 and not self.attends_fill

    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for number, layer in enumerate(self.layers):
            name = _LAYER.format(number)
            shapes[f"{name}/kernel"] = (layer.in_features, layer.out_features)
            if layer.bias:
                shapes[f"{name}/bias"] = (layer.out_features,)
        return shapes

    def graph(self, ops: Ops, states: Any) -> Any:
        x = states
        for number, layer in enumerate(self.layers):
            x = ops.product(x, _LAYER.format(number))
            if layer.activation != "identity":
                x = ops.activated(x, layer.activation)
        return x

    def empty(self) -> tuple[np.ndarray, ...]:
        return (np.empty((0, self.dim), np.float32),)

    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        """See `Head.batch_rows`; of all tokens: windows are merged before some are left out."""
        inside = mask > 0
        finite = (np.isfinite(output).all(axis=2) | ~inside).all(axis=1)
        inside &= finite[:, None]
        vectors = output[inside]
        if self.unit_length:
            vectors = unit_length(vectors)
        return BatchRows(finite, inside.sum(axis=1), (vectors,))

    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> MultiVectors:
        return MultiVectors(splits_of(lengths), *columns)

    def keeps(self, ids: np.ndarray, place: np.ndarray, query: bool = False) -> np.ndarray:
        """Returns bool `[tokens]`: which tokens get a vector, by their ids and places in rows."""
        keeps = np.ones(len(ids), bool)
        if self.skip_ids and (self.skips_in_queries or not query):
            keeps = ~np.isin(ids, self.skip_ids)
        return keeps & (place > 0) if self.drops_first else keeps
