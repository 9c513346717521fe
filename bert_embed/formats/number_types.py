"""Converts float32 vectors to the number types they are stored in, and back."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bert_embed.storage.errors import InputError, SettingError

OUTPUT_DTYPES = ("float32", "float16", "bfloat16", "int8", "ubinary")
INTEGER_DTYPES = ("int8", "ubinary")  # those that JSON lines hold as integers

_STORED: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
    "ubinary": np.dtype(np.uint8),
}
_MOST_INT8 = 127  # the same on both sides of 0; -128 is never stored
_LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}


@dataclass(frozen=True)
class Stored:
    """Vectors as a file holds them."""

    # `[n, stored width]`; float32, float16, uint16 (the bits of bfloat16), int8, or uint8 (eight
    # numbers a byte, the first in the highest bit)
    values: np.ndarray
    # float32 `[n]`, the factor of each int8 vector; None for other types
    scale: np.ndarray | None = None


def stored(vectors: np.ndarray, dtype: str) -> Stored:
    """Rounds finite float32 `[n, width]` to an output type, each vector for itself.

    float16 and bfloat16 round to the nearest number, ties to even; numbers out of range become the
    largest one. int8 divides a vector by its scale, which is its largest absolute number over 127,
    and rounds; a vector of zeros has scale 0. ubinary keeps whether a number is above 0.
    """
    check_output_dtype(dtype)
    if dtype == "float16":
        return Stored(_clipped(vectors, dtype).astype(np.float16))
    if dtype == "bfloat16":
        return Stored(_clipped(vectors, dtype).astype(ml_dtypes.bfloat16).view(np.uint16))
    if dtype == "int8":
        return _int8(vectors)
    if dtype == "ubinary":
        return Stored(np.packbits(vectors > 0, axis=-1))
    return Stored(vectors)


def restored(values: np.ndarray, scale: np.ndarray | None, dtype: str, width: int) -> np.ndarray:
    """Returns float32 `[n, width]` of `[n, stored width]`; the bits of ubinary become 1 and -1."""
    check_output_dtype(dtype)
    if dtype == "bfloat16":
        return values.view(ml_dtypes.bfloat16).astype(np.float32)
    if dtype == "ubinary":
        signs = _signs().take(values, axis=0)  # eight numbers a byte
        return signs.reshape(*values.shape[:-1], 8 * values.shape[-1])[..., :width]
    vectors = values.astype(np.float32, copy=False)
    if dtype == "int8":
        if scale is None:
            raise InputError("int8 vectors require their column scale, which is missing")
        vectors *= scale.astype(np.float32, copy=False)[:, None]
    return vectors


def stored_type(dtype: str) -> np.dtype:
    """Returns the type of the stored values, that of `Stored.values`."""
    check_output_dtype(dtype)
    return _STORED[dtype]


def stored_width(dtype: str, width: int) -> int:
    """Returns the number of stored values of a vector: bits of ubinary are eight to a byte."""
    return -(-width // 8) if dtype == "ubinary" else width


def output_dtype(settings: Mapping[str, Any]) -> str:
    """Returns the output type that a run's settings name, by default float32."""
    return settings.get("output_dtype", "float32")


def check_output_dtype(dtype: str) -> None:
    """Checks that there is such a type; SettingError if not."""
    if dtype not in OUTPUT_DTYPES:
        raise SettingError(
            "output_dtype", f"must be one of {', '.join(OUTPUT_DTYPES)}, got {dtype!r}"
        )


@functools.cache
def _signs() -> np.ndarray:
    """Returns the numbers that each byte of ubinary holds, float32 `[256, 8]`."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return bits.astype(np.float32) * 2 - 1


def _clipped(vectors: np.ndarray, dtype: str) -> np.ndarray:
    return np.clip(vectors, -_LARGEST[dtype], _LARGEST[dtype])


def _int8(vectors: np.ndarray) -> Stored:
    largest = np.abs(vectors).max(axis=-1, initial=0)
    scale = largest / np.float32(_MOST_INT8)
    scale[scale < np.finfo(np.float32).tiny] = 0  # a subnormal scale does not divide exactly
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    return Stored(np.rint(vectors / divisor[:, None]).astype(np.int8), scale)
