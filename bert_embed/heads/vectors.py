"""Defines the kinds of vectors, and those of them that have no fixed width."""

from dataclasses import dataclass

import numpy as np

VECTOR_KINDS = ("dense", "sparse", "multi", "scores")


@dataclass(frozen=True)
class SparseVectors:
    """Sparse vectors, all rows end to end; no weight is zero or below."""

    splits: np.ndarray  # int64 [rows + 1]
    indices: np.ndarray  # int32 [entries], ascending in each row
    values: np.ndarray  # float32 [entries]


@dataclass(frozen=True)
class MultiVectors:
    """A vector for each kept token of each row, all rows end to end."""

    splits: np.ndarray  # int64 [rows + 1]
    vectors: np.ndarray  # float32 [tokens, dim]
