"""Defines the kinds of vectors, and those of them that have no fixed width."""

from dataclasses import dataclass

import numpy as np

from bert_embed.ragged import places, splits_of, take_rows

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
        if np.array_equal(rows, np.arange(len(self))):
            return self
        at, splits = take_rows(self.splits, rows)
        return SparseVectors(splits, self.indices[at], self.values[at])

    def merged(self, splits: np.ndarray, pooling: str) -> "SparseVectors":
        """Merges neighbouring rows by "max" or "sum"; int64 `[merged rows + 1]` says which."""
        counts = np.diff(splits)
        if (counts == 1).all():
            return self
        row = np.repeat(np.repeat(np.arange(len(counts)), counts), np.diff(self.splits))
        return merged_entries(len(counts), row, self.indices, self.values, pooling)

    def pruned(self, top_k: int | None, min_weight: float) -> "SparseVectors":
        """Keeps weights of `min_weight` and more, and the `top_k` largest ones of each row.

        Of equal weights, that of the lower index stays.
        """
        stays = self.values >= np.float32(min_weight)
        lengths = np.diff(self.splits)
        most = len(self.values) if top_k is None else top_k
        long = np.flatnonzero(lengths > most)
        if len(long):
            at, splits = take_rows(self.splits, long)
            row = np.repeat(np.arange(len(long)), np.diff(splits))
            order = np.lexsort((-self.values[at], row))  # stable: indices ascend
            rank = places(np.zeros(len(long), np.int64), np.diff(splits))
            stays[at[order[rank >= most]]] = False
        if stays.all():
            return self
        row = np.repeat(np.arange(len(lengths)), lengths)[stays]
        splits = splits_of(np.bincount(row, minlength=len(lengths)))
        return SparseVectors(splits, self.indices[stays], self.values[stays])


def merged_entries(
    rows: int, row: np.ndarray, indices: np.ndarray, values: np.ndarray, pooling: str
) -> SparseVectors:
    """Returns entries of `rows` rows in order; those of one row and index by "max" or "sum"."""
    order = np.lexsort((indices, row))
    row, indices, values = row[order], indices[order], values[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(row) != 0) | (np.diff(indices) != 0)
    first = np.flatnonzero(is_first)
    splits = splits_of(np.bincount(row[first], minlength=rows))
    if len(first) < len(order):
        values = {"max": np.maximum, "sum": np.add}[pooling].reduceat(values, first)
    return SparseVectors(splits, indices[first], values)


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

    def rows(self) -> list[np.ndarray]:
        """Returns the vectors of each row, float32 `[tokens, dim]`."""
        return np.split(self.vectors, self.splits[1:-1])[: len(self)]
