"""Computes cosines of vectors."""

from typing import Any

import numpy as np

from bert_embed.storage.errors import SettingError
from bert_embed.storage.plurals import counted
from bert_embed.vectors import unit


def cosine_matrix(one: Any, other: Any) -> np.ndarray:
    """Does what `Encoder.similarity` says.

    >>> cosine_matrix([[1, 0], [0, 2]], [3, 3]).round(3).tolist()
    [[0.7070000171661377], [0.7070000171661377]]
    """
    first, second = _unit_vectors(one, other)
    return first @ second.T


def cosine_pairs(one: Any, other: Any) -> np.ndarray:
    """Returns the cosine of each vector of `one` and the same one of `other`, float32 `[n]`.

    Raises:
        SettingError: They are no arrays of numbers `[n, dim]`, both of the same shape.
    """
    first, second = _unit_vectors(one, other)
    if len(first) != len(second):
        raise SettingError(
            "other", f"must be {counted(len(first), 'vector')} as the first, got {len(second)}"
        )
    return np.vecdot(first, second)


def _unit_vectors(one: Any, other: Any) -> list[np.ndarray]:
    found = [_vectors("one", one), _vectors("other", other)]
    widths = [vectors.shape[1] for vectors in found]
    if widths[0] != widths[1]:
        raise SettingError("other", f"must be vectors of {widths[0]} numbers, got {widths[1]}")
    return [unit(vectors) for vectors in found]


def _vectors(name: str, values: Any) -> np.ndarray:
    try:
        vectors = np.atleast_2d(np.asarray(values, np.float32))
    except (TypeError, ValueError) as error:
        raise SettingError(
            name, "must be vectors, numbers [vectors, dim] or [dim]; encode texts first"
        ) from error
    if vectors.ndim != 2:
        raise SettingError(name, f"must be numbers [vectors, dim] or [dim], got {vectors.shape}")
    return vectors
