"""Defines the vectors that have no fixed width: sparse ones, and several a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.arrays import SameValues, first_of_equal, places, splits_of, take_rows
from bert_embed.base.environment import requires

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class SparseVector(SameValues):
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


_Row = TypeVar("_Row")


@dataclass(frozen=True, eq=False)
class _RaggedRows(SameValues, Generic[_Row]):
    flat: ClassVar[tuple[str, ...]]  # the columns
    splits: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> _Row: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray) -> Self: ...
    def __getitem__(self, rows: int | np.integer[Any] | slice | np.ndarray) -> Any:
        if isinstance(rows, slice):
            return self.take(np.arange(*rows.indices(len(self))))
        if np.ndim(rows):
            return self.take(np.arange(len(self))[rows])
        row = range(len(self))[rows]
        return self._row(slice(*self.splits[row : row + 2]))

    def __iter__(self) -> Iterator[_Row]:
        return (self._row(slice(*ends)) for ends in pairwise(self.splits.tolist()))

    def _row(self, entries: slice) -> _Row:
        raise NotImplementedError

    def take(self, rows: np.ndarray) -> Self:
        """Returns some rows, int `[rows]`, in their order."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(self))):
            return self
        at, splits = take_rows(self.splits, rows)
        return replace(self, splits=splits, **{name: getattr(self, name)[at] for name in self.flat})


@dataclass(frozen=True, eq=False)
class SparseVectors(_RaggedRows[SparseVector]):
    """Sparse vectors, all rows end to end; `rows[0]` is one, `rows[:2]` are some.

    Attributes:
        splits: int64 `[rows + 1]`, where each row begins and ends.
        indices: int32 `[entries]`, entries of the vocabulary, ascending in each row.
        values: float32 `[entries]`, their weights, all above 0.
        width: How many entries the vocabulary has; 0 where it is not known.
    """

    kind: ClassVar[str] = "sparse"
    similarity: ClassVar[str] = "dot"
    flat: ClassVar[tuple[str, ...]] = ("indices", "values")
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    width: int = 0

    def _row(self, entries: slice) -> SparseVector:
        return SparseVector(self.indices[entries], self.values[entries], self.width)

    def to_dicts(self) -> list[dict[int, float]]:
        """Returns the weights of each row by their entries."""
        return [row.to_dict() for row in self]

    def to_scipy(self) -> "csr_array":
        """Returns them as a SciPy array in CSR format, float32 `[rows, width]`.

        Its `indices` and `indptr` are int32 where the entries can be numbered so, else int64.
        """
        with requires("to_scipy", "scipy"):
            from scipy.sparse import csr_array
        shape = (len(self), self.width) if self.width else None
        fits = self.splits[-1] <= np.iinfo(np.int32).max  # scikit-learn refuses int64
        splits = self.splits.astype(np.int32) if fits else self.splits
        return csr_array((self.values, self.indices, splits), shape=shape)

    def merged(self, splits: np.ndarray, pooling: str) -> "SparseVectors":
        """Merges neighbouring rows by "max" or "sum"; int64 `[merged rows + 1]` says which."""
        counts = np.diff(splits)
        if (counts == 1).all():
            return self
        row = np.repeat(np.repeat(np.arange(len(counts)), counts), np.diff(self.splits))
        merged = merged_entries(len(counts), row, self.indices, self.values, pooling)
        return replace(merged, width=self.width)

    def largest(self, top_k: int | None) -> "SparseVectors":
        """Keeps the `top_k` largest weights of each row; of equal ones those of lower indices."""
        lengths = np.diff(self.splits)
        if top_k is None or not (lengths > top_k).any():
            return self
        row = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((-self.values, row))  # stable: indices ascend
        stays = np.ones(len(row), bool)
        stays[order[places(np.zeros_like(lengths), lengths) >= top_k]] = False
        splits = splits_of(np.minimum(lengths, top_k))
        return replace(self, splits=splits, indices=self.indices[stays], values=self.values[stays])


def merged_entries(
    rows: int, row: np.ndarray, indices: np.ndarray, values: np.ndarray, pooling: str
) -> SparseVectors:
    """Returns entries of `rows` rows in order; those of one row and index by "max" or "sum"."""
    order = np.lexsort((indices, row))
    row, indices, values = row[order], indices[order], values[order]
    first = np.flatnonzero(first_of_equal(row, indices))
    splits = splits_of(np.bincount(row[first], minlength=rows))
    if len(first) < len(order):
        values = {"max": np.maximum, "sum": np.add}[pooling].reduceat(values, first)
    return SparseVectors(splits, indices[first], values)


@dataclass(frozen=True, eq=False)
class MultiVector(SameValues):
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


@dataclass(frozen=True, eq=False)
class MultiVectors(_RaggedRows[MultiVector]):
    """A vector for each kept token of each row, all rows end to end; `rows[0]` is one row.

    Attributes:
        splits: int64 `[rows + 1]`, where each row begins and ends.
        vectors: float32 `[tokens, dim]`.
    """

    kind: ClassVar[str] = "multi"
    similarity: ClassVar[str] = "maxsim"
    flat: ClassVar[tuple[str, ...]] = ("vectors",)
    vectors: NDArray[np.float32]

    def _row(self, entries: slice) -> MultiVector:
        return MultiVector(self.vectors[entries])

    @property
    def width(self) -> int:
        """How many numbers the vector of a token has."""
        return self.vectors.shape[1]

    def rows(self) -> list[NDArray[np.float32]]:
        """Returns the vectors of each row, float32 `[tokens, dim]`."""
        return [self.vectors[start:stop] for start, stop in pairwise(self.splits.tolist())]


def joined(parts: Sequence[Any]) -> Any:
    """Returns vectors of one kind, arrays or rows, end to end."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    splits = splits_of(np.concatenate([np.diff(part.splits) for part in parts]))
    flat = {name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0].flat}
    return replace(parts[0], splits=splits, **flat)
