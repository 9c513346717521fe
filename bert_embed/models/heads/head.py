"""Defines Head, the part of a model behind its encoder that makes one kind of vectors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.arrays import places, splits_of, weighted_means
from bert_embed.models.encoder import EncoderConfig, Ops


@dataclass(frozen=True)
class BatchRows:
    """What a head makes of the rows of a batch, each with any number of entries."""

    finite: np.ndarray  # bool [rows], whether all numbers of a row are
    lengths: np.ndarray  # int64 [rows], entries of each; 0 where not finite
    columns: tuple[np.ndarray, ...]  # of all entries, all rows end to end


@dataclass(frozen=True)
class TokenPlaces:
    """The tokens that vectors of tokens are of, and the place of each in the rows."""

    splits: np.ndarray  # int64 [documents + 1], or of windows or chunks where these are kept
    ids: np.ndarray  # int32 [tokens], special tokens included
    row: np.ndarray  # int64 [tokens], the row that has its vector
    place: np.ndarray  # int64 [tokens], its place in that row


@dataclass(frozen=True)
class DocumentRows:
    """How documents, or the windows or chunks that are kept, are made of a head's rows."""

    row: np.ndarray  # int [rows], which of the distinct rows each one equals
    splits: np.ndarray | None = None  # int64 [documents + 1], their windows; None: rows stay
    weights: np.ndarray | None = None  # int64 [rows], tokens of the text in each window
    tokens: TokenPlaces | None = None  # for a head that is `of_tokens`

    def means(self, vectors: np.ndarray) -> np.ndarray:
        """Returns float32 `[documents, width]`, means of windows by tokens, of distinct rows."""
        vectors = vectors[self.row]
        if self.splits is None or self.weights is None:
            return vectors
        return weighted_means(vectors, self.splits, self.weights)


class Head(ABC):
    """A frozen dataclass that JSON can hold; names of its tensors begin with `heads/KIND/`."""

    kind: ClassVar[str]  # one of `bert_embed.models.heads.kinds.ROW_KINDS`
    of_tokens: ClassVar[bool] = False  # whether its vectors are of `DocumentRows.tokens`

    @property
    def per_token(self) -> bool:
        """Whether the graph gives a row for each token, not for each row of the batch."""
        return False

    @property
    def unread(self) -> tuple[str, ...]:
        """Tensors that the graph does not read."""
        return ()

    @abstractmethod
    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each tensor by name."""

    @abstractmethod
    def graph(self, ops: Ops, states: Any) -> Any:
        """Adds what follows the last states, `[tokens, hidden]`: `[rows or tokens, width]`."""

    @abstractmethod
    def empty(self) -> tuple[np.ndarray, ...]:
        """Returns the columns of no entries."""

    @abstractmethod
    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        """Returns the rows of a batch.

        `output` is the graph's, float32 `[rows, width]` or `[rows, length, width]`; `ids` and
        `mask` (0 for padding, at the end) are int32 `[rows, length]`.
        """

    @abstractmethod
    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> Any:
        """Returns all rows, `SparseVectors`, `MultiVectors` or scores; no entries: it failed."""

    @abstractmethod
    def documents(self, rows: Any, places: DocumentRows, options: Mapping[str, Any]) -> Any:
        """Returns what documents have, of what distinct rows have, as `joined` gave it.

        `options` are those that `bert_embed.settings.KIND_OF` names for this kind.
        """

    def described(self, config: EncoderConfig, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a run's settings say of this head; `options` as of `documents`."""
        return {}

    def of_text(self, vectors: Any, number: int) -> Any:
        """Returns what a record gets of one document: an array, some in a tuple, or a dict."""
        return vectors[number]


def gather_rows(head: Head, count: int, batches: Sequence[tuple[np.ndarray, BatchRows]]) -> Any:
    """Returns `count` rows in order; each batch has the numbers of its rows, int64 `[batch]`."""
    lengths = np.zeros(count, np.int64)
    for rows, batch in batches:
        lengths[rows] = batch.lengths
    splits = splits_of(lengths)
    columns = [np.zeros((splits[-1], *one.shape[1:]), one.dtype) for one in head.empty()]
    for rows, batch in batches:
        at = places(splits[rows], batch.lengths)
        for column, values in zip(columns, batch.columns, strict=True):
            column[at] = values
    return head.joined(lengths, columns)
