"""Computes cosines of vectors that a caller gives."""

from typing import Any

import numpy as np

from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted
from bert_embed.vectors import unit


def cosine_matrix(one: Any, other: Any) -> np.ndarray:
    """Does what `Encoder.similarity` says."""
    first, second = _unit_vectors(one, other)
    return first @ second.T


def cosine_pairs(one: Any, other: Any) -> np.ndarray:
    """Does what `Encoder.similarity_pairwise` says."""
    first, second = _unit_vectors(one, other)
    if len(first) != len(second):
        raise SettingError(
            "other", f"must be {counted(len(first), 'vector')} as the first, got {len(second)}"
        )
    return np.vecdot(first, second)


def _unit_vectors(one: Any, other: Any) -> tuple[np.ndarray, np.ndarray]:
    first, second = _unit_length("one", one), _unit_length("other", other)
    if first.shape[1] != second.shape[1]:
        raise SettingError(
            "other", f"must be vectors of {first.shape[1]} numbers, got {second.shape[1]}"
        )
    return first, second


def _unit_length(name: str, values: Any) -> np.ndarray:
    try:
        vectors = np.atleast_2d(np.asarray(values, np.float32))
    except (TypeError, ValueError) as error:
        raise SettingError(
            name, "must be vectors, numbers [vectors, dim] or [dim]; encode texts first"
        ) from error
    if vectors.ndim != 2:
        raise SettingError(name, f"must be numbers [vectors, dim] or [dim], got {vectors.shape}")
    return unit(vectors)
