"""Defines the kinds of vectors, and those of them that have no fixed width."""

from dataclasses import dataclass

import numpy as np

from bert_embed.ragged import take_rows

VECTOR_KINDS = ("dense", "sparse", "multi", "scores")


@dataclass(frozen=True)
class SparseVectors:
    """Sparse vectors, all rows end to end; no weight is zero or below."""

    splits: np.ndarray  # int64 [rows + 1]
    indices: np.ndarray  # int32 [entries], ascending in each row
    values: np.ndarray  # float32 [entries]

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: slice | np.ndarray) -> "SparseVectors":
        return self.take(np.arange(len(self))[rows])

    def take(self, rows: np.ndarray) -> "SparseVectors":
        """Returns some rows, int `[rows]`, in their order."""
        at, splits = take_rows(self.splits, rows)
        return SparseVectors(splits, self.indices[at], self.values[at])


@dataclass(frozen=True)
class MultiVectors:
    """A vector for each kept token of each row, all rows end to end."""

    splits: np.ndarray  # int64 [rows + 1]
    vectors: np.ndarray  # float32 [tokens, dim]

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: slice | np.ndarray) -> "MultiVectors":
        at, splits = take_rows(self.splits, np.arange(len(self))[rows])
        return MultiVectors(splits, self.vectors[at])
