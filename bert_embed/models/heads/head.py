"""Defines Head, the part of a model behind its encoder that makes one kind of vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.arrays import places, splits_of
from bert_embed.models.encoder import EncoderConfig, Ops


@dataclass(frozen=True)
class BatchRows:
    """What a head makes of the rows of a batch, each with any number of entries."""

    finite: np.ndarray  # bool [rows], whether all numbers of a row are
    lengths: np.ndarray  # int64 [rows], entries of each; 0 where not finite
    columns: tuple[np.ndarray, ...]  # of all entries, all rows end to end


class Head(ABC):
    """A frozen dataclass that JSON can hold; names of its tensors begin with `heads/KIND/`."""

    kind: ClassVar[str]  # one of `VECTOR_KINDS`

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
