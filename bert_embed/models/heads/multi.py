"""MultiHead: a vector for each token of a text, for late interaction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.arrays import splits_of, unit_length
from bert_embed.base.errors import required
from bert_embed.models.encoder import EncoderConfig, Ops
from bert_embed.models.heads.head import (
    EMBEDDING,
    BatchRows,
    Column,
    DocumentRows,
    Head,
    Kind,
    Settings,
    TokenPlaces,
    Type,
)
from bert_embed.models.heads.similarities import MaxSim
from bert_embed.models.heads.vectors import MultiVectors
from bert_embed.models.modules import DenseModule

_LAYER = "heads/multi/{}"


@dataclass(frozen=True)
class MultiHead(Head):
    """ColBERT: the last state of each token through linear layers, of unit length.

    A marker is an id behind the one that begins a row; it says whether the text is a document or
    a query, and no text contains it. Queries can be filled up with [MASK], whose vectors count.
    """

    kind: ClassVar[str] = "multi"
    of_tokens: ClassVar[bool] = True
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
            shapes |= layer.shapes(_LAYER.format(number))
        return shapes

    def graph(self, ops: Ops, states: Any) -> Any:
        x = states
        for number, layer in enumerate(self.layers):
            x = layer.graph(ops, x, _LAYER.format(number))
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

    def documents(
        self, rows: MultiVectors, places: DocumentRows, options: Mapping[str, Any]
    ) -> MultiVectors:
        """See `Head.documents`; of the tokens that are kept."""
        tokens = required(places.tokens, "places of multi-vectors")
        return self.chosen(rows, tokens, places.row)

    def described(self, config: EncoderConfig, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"dim": self.dim, "similarity": "maxsim"}

    def of_text(self, vectors: MultiVectors, number: int) -> np.ndarray:
        """See `Head.of_text`; float32 `[tokens, dim]`."""
        return vectors[number].vectors

    def chosen(
        self, rows: MultiVectors, tokens: TokenPlaces, row: np.ndarray, query: bool = False
    ) -> MultiVectors:
        """Returns the vectors of `tokens` that count, from those of distinct rows.

        `row` names the distinct row of each row. A row that failed has none.
        """
        distinct = row[tokens.row]
        counts = self.keeps(tokens.ids, tokens.place, query)
        counts &= tokens.place < np.diff(rows.splits)[distinct]
        at = (rows.splits[distinct] + tokens.place)[counts]
        splits = splits_of(counts)[tokens.splits]
        return MultiVectors(splits, rows.vectors[at])

    def keeps(self, ids: np.ndarray, place: np.ndarray, query: bool = False) -> np.ndarray:
        """Returns bool `[tokens]`: which tokens get a vector, by their ids and places in rows."""
        keeps = np.ones(len(ids), bool)
        if self.skip_ids and (self.skips_in_queries or not query):
            keeps = ~np.isin(ids, self.skip_ids)
        return keeps & (place > 0) if self.drops_first else keeps


class MultiKind(Kind):
    """`MultiVectors` of documents, windows or chunks: lists of what a dense vector is stored as."""

    by_token = has_dtype = True
    similarity = MaxSim
    structs: ClassVar[Mapping[str, str]] = {EMBEDDING: EMBEDDING}

    def words(self, settings: Settings, unit: str) -> str:
        head = settings["heads"]["multi"]
        return f"{head['dim']} numbers for each token that is kept of a {unit}"

    def types(self, settings: Settings) -> dict[str, Type]:
        return {EMBEDDING: Type("float32", ragged=True, width=self.shape(settings)[0])}

    def columns(self, vectors: MultiVectors, settings: Settings) -> dict[str, Column]:
        return {EMBEDDING: Column(vectors.vectors, vectors.splits)}

    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> MultiVectors:
        vectors, splits, _ = columns[EMBEDDING]
        return MultiVectors(required(splits, "splits"), vectors)

    def numbers(self, settings: Settings) -> Counter[str]:
        return Counter(token=self.shape(settings)[0])

    def shape(self, settings: Settings) -> Sequence[int]:
        return [settings["heads"]["multi"]["dim"]]
