"""Computes how similar vectors are that a caller gives, by their kinds."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bert_embed.heads.vectors import MultiVector, MultiVectors, SparseVector, SparseVectors
from bert_embed.ragged import splits_of
from bert_embed.similarities import MaxSim, Similarity, SparseProducts
from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted
from bert_embed.vectors import unit

_OF_KIND: dict[str, type[Similarity]] = {"sparse": SparseProducts, "multi": MaxSim}
_RAGGED = (SparseVectors, MultiVectors)


def kind_pair(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Returns both as `SparseVectors` or `MultiVectors`; None if neither is; or SettingError."""
    first, second = _ragged(one), _ragged(other)
    if not isinstance(first, _RAGGED) and not isinstance(second, _RAGGED):
        return None
    kinds = [getattr(vectors, "kind", "dense") for vectors in (first, second)]
    if kinds[0] != kinds[1]:
        raise SettingError("other", f"must be {kinds[0]} vectors as the first, got {kinds[1]} ones")
    if first.width != second.width and first.width and second.width:
        raise SettingError("other", f"must be vectors of {first.width} numbers, got {second.width}")
    return first, second


def product_matrix(one: Any, other: Any) -> np.ndarray:
    """Returns the dot products of sparse vectors or MaxSim, float32 `[n, m]`, 0 without any."""
    similarity = _OF_KIND[one.kind](one)
    scores = np.zeros((len(one), len(other)), np.float32)
    floor = np.full(len(one), -np.inf)
    for number, rows, products in similarity.scored(other, floor, len(other)):
        scores[number, rows] = products
    return scores


def product_pairs(one: Any, other: Any) -> np.ndarray:
    """Returns the same of each row and the row of `other` with its number, float32 `[n]`."""
    _check_count(one, other)
    rows = range(len(one))
    pairs = [product_matrix(one[row : row + 1], other[row : row + 1])[0, 0] for row in rows]
    return np.array(pairs, np.float32)


def _ragged(vectors: Any) -> Any:
    """One row as rows, and a SciPy array as sparse vectors; anything else as it is."""
    if isinstance(vectors, SparseVector):
        splits = splits_of(np.array([len(vectors)]))
        return SparseVectors(splits, vectors.indices, vectors.values, vectors.width)
    if isinstance(vectors, MultiVector):
        return MultiVectors(splits_of(np.array([len(vectors)])), vectors.vectors)
    if hasattr(vectors, "tocsr") and vectors.ndim == 2:
        rows = vectors.tocsr()
        splits, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        return SparseVectors(splits, indices, rows.data.astype(np.float32), rows.shape[1])
    return vectors


def dense_matrix(one: Any, other: Any, similarity: str) -> np.ndarray:
    """Does what `Encoder.similarity` says of dense vectors."""
    first, second = _dense_vectors(one, other)
    if similarity in ("euclidean", "manhattan"):
        rows = [_DENSE[similarity](vector, second) for vector in first]
        return np.array(rows, np.float32).reshape(len(first), len(second))
    if similarity == "cosine":
        first, second = unit(first), unit(second)
    return first @ second.T


def dense_pairs(one: Any, other: Any, similarity: str) -> np.ndarray:
    """Does what `Encoder.similarity_pairwise` says of dense vectors."""
    first, second = _dense_vectors(one, other)
    _check_count(first, second)
    return _DENSE[similarity](first, second).astype(np.float32)


# Of vectors `[..., dim]`, those of one with those of the other
_DENSE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda one, other: np.vecdot(unit(one), unit(other)),
    "dot": np.vecdot,
    "euclidean": lambda one, other: -np.linalg.norm(one - other, axis=-1),
    "manhattan": lambda one, other: -np.abs(one - other).sum(axis=-1),
}


def _check_count(one: Any, other: Any) -> None:
    if len(one) != len(other):
        raise SettingError(
            "other", f"must be {counted(len(one), 'vector')} as the first, got {len(other)}"
        )


def _dense_vectors(one: Any, other: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = _numbers("one", one), _numbers("other", other)
    if first.shape[1] != second.shape[1]:
        raise SettingError(
            "other", f"must be vectors of {first.shape[1]} numbers, got {second.shape[1]}"
        )
    return first, second


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        vectors = np.atleast_2d(np.asarray(values, np.float32))
    except (TypeError, ValueError) as error:
        raise SettingError(
            name, "must be vectors, numbers [vectors, dim] or [dim]; encode texts first"
        ) from error
    if vectors.ndim != 2:
        raise SettingError(name, f"must be numbers [vectors, dim] or [dim], got {vectors.shape}")
    return vectors
