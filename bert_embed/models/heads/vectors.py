"""Defines the vectors that have no fixed width: sparse ones, and several a text."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.arrays import places, splits_of, take_rows
from bert_embed.base.environment import requires

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class SparseVector:
    """The sparse vector of one text.

    Attributes:
        indices: int32 `[entries]`, entries of the vocabulary, ascending.
        values: float32 `[entries]`, their weights, all above 0.
        width: How many entries the vocabulary has; 0 where it is not known.
    """

    kind: ClassVar[str] = "sparse"
    similarity: ClassVar[str] = "dot"
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def to_dict(self) -> dict[int, float]:
        """Returns the weights by their entries."""
        return dict(zip(self.indices.tolist(), self.values.tolist(), strict=True))


@dataclass(frozen=True)
class SparseVectors:
    """Sparse vectors, all rows end to end; `rows[0]` is one, `rows[:2]` are some.

    Attributes:
        splits: int64 `[rows + 1]`, where each row begins and ends.
        indices: int32 `[entries]`, entries of the vocabulary, ascending in each row.
        values: float32 `[entries]`, their weights, all above 0.
        width: How many entries the vocabulary has; 0 where it is not known.
    """

    kind: ClassVar[str] = "sparse"
    similarity: ClassVar[str] = "dot"
    splits: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int = 0

    def __len__(self) -> int:
        return len(self.splits) - 1

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> SparseVector: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray) -> "SparseVectors": ...
    def __getitem__(
        self, rows: int | np.integer[Any] | slice | np.ndarray
    ) -> "SparseVector | SparseVectors":
        taken = np.arange(len(self))[rows]
        if taken.ndim:
            return self.take(taken)
        entries = slice(*self.splits[taken : taken + 2])
        return SparseVector(self.indices[entries], self.values[entries], self.width)

    def __iter__(self) -> Iterator[SparseVector]:
        return (self[row] for row in range(len(self)))

    def to_dicts(self) -> list[dict[int, float]]:
        """Returns the weights of each row by their entries."""
        return [row.to_dict() for row in self]

    def to_scipy(self) -> "csr_array":
        """Returns them as a SciPy array in CSR format, float32 `[rows, width]`."""
        with requires("to_scipy", "scipy"):
            from scipy.sparse import csr_array
        shape = (len(self), self.width) if self.width else None
        return csr_array((self.values, self.indices, self.splits), shape=shape)

    def take(self, rows: np.ndarray) -> "SparseVectors":
        """Returns some rows, int `[rows]`, in their order."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        at, splits = take_rows(self.splits, rows)
        return replace(self, splits=splits, indices=self.indices[at], values=self.values[at])

    def merged(self, splits: np.ndarray, pooling: str) -> "SparseVectors":
        """Merges neighbouring rows by "max" or "sum"; int64 `[merged rows + 1]` says which."""
        counts = np.diff(splits)
        if (counts == 1).all():
            return self
        row = np.repeat(np.repeat(np.arange(len(counts)), counts), np.diff(self.splits))
        merged = merged_entries(len(counts), row, self.indices, self.values, pooling)
        return replace(merged, width=self.width)

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
        return replace(self, splits=splits, indices=self.indices[stays], values=self.values[stays])


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
class MultiVector:
    """The multi-vector of one text; NumPy takes it as an array.

    Attributes:
        vectors: float32 `[tokens, dim]`, of its kept tokens.
    """

    kind: ClassVar[str] = "multi"
    similarity: ClassVar[str] = "maxsim"
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.vectors)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.vectors, dtype, copy=copy)

    @property
    def width(self) -> int:
        """How many numbers the vector of a token has."""
        return self.vectors.shape[1]


@dataclass(frozen=True)
class MultiVectors:
    """A vector for each kept token of each row, all rows end to end; `rows[0]` is one row.

    Attributes:
        splits: int64 `[rows + 1]`, where each row begins and ends.
        vectors: float32 `[tokens, dim]`.
    """

    kind: ClassVar[str] = "multi"
    similarity: ClassVar[str] = "maxsim"
    splits: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> MultiVector: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray) -> "MultiVectors": ...
    def __getitem__(
        self, rows: int | np.integer[Any] | slice | np.ndarray
    ) -> "MultiVector | MultiVectors":
        taken = np.arange(len(self))[rows]
        if not taken.ndim:
            return MultiVector(self.vectors[slice(*self.splits[taken : taken + 2])])
        at, splits = take_rows(self.splits, taken)
        return MultiVectors(splits, self.vectors[at])

    def __iter__(self) -> Iterator[MultiVector]:
        return (self[row] for row in range(len(self)))

    @property
    def width(self) -> int:
        """How many numbers the vector of a token has."""
        return self.vectors.shape[1]

    def rows(self) -> list[NDArray[np.float32]]:
        """Returns the vectors of each row, float32 `[tokens, dim]`."""
        return [self.vectors[start:stop] for start, stop in pairwise(self.splits.tolist())]
