"""Output types: float32 vectors in, what is stored of them out, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

OUTPUT_DTYPES = ("float32", "float16", "bfloat16", "int8", "ubinary")
INTEGER_DTYPES = ("int8", "ubinary")  # those that JSON lines hold as integers, not as numbers

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
    """Vectors as they lie in a file.

    Attributes:
        values: `[n, stored width]`; float32, float16, uint16 (the bits of a bfloat16), int8, or
            uint8 (eight numbers a byte, the first in its highest bit).
        scale: float32 `[n]`, what a vector's int8 numbers are to be multiplied with; else None.
    """

    values: np.ndarray
    scale: np.ndarray | None = None


def stored(vectors: np.ndarray, dtype: str) -> Stored:
    """Rounds vectors to an output type, each for itself: no row depends on another.

    float16 and bfloat16 round to the nearest number, of two to the even one; numbers beyond their
    range become their largest. int8 divides a vector by a scale of its own, its largest absolute
    number over 127, and rounds; a vector of zeros has the scale 0. ubinary keeps whether a number
    is above 0.

    Args:
        vectors: float32 `[n, width]`, finite.
        dtype: One of `OUTPUT_DTYPES`.

    Raises:
        ValueError: No such type.
    """
    check_output_dtype(dtype)
    if dtype == "float16":
        return Stored(_clipped(vectors, dtype).astype(np.float16))
    if dtype == "bfloat16":
        return Stored(_bfloat16_bits(_clipped(vectors, dtype)))
    if dtype == "int8":
        return _int8(vectors)
    if dtype == "ubinary":
        return Stored(np.packbits(vectors > 0, axis=-1))
    return Stored(vectors)


def restored(values: np.ndarray, scale: np.ndarray | None, dtype: str, width: int) -> np.ndarray:
    """Turns stored values back into vectors.

    Args:
        values: `[n, stored width]`, as in `Stored`.
        scale: float32 `[n]` for int8.
        dtype: One of `OUTPUT_DTYPES`.
        width: Numbers of a vector.

    Returns:
        float32 `[n, width]`; the bits of ubinary as 1 and -1.

    Raises:
        ValueError: No such type, or int8 without its scales.
    """
    check_output_dtype(dtype)
    if dtype == "bfloat16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    if dtype == "int8":
        if scale is None:
            raise ValueError("int8 vectors need their column scale, which is not there")
        return values * scale.astype(np.float32)[:, None]
    if dtype == "ubinary":
        bits = np.unpackbits(values, axis=-1, count=width)
        return bits.astype(np.float32) * 2 - 1
    return values.astype(np.float32, copy=False)


def stored_type(dtype: str) -> np.dtype:
    """The type of the stored values.

    >>> stored_type("bfloat16")
    dtype('uint16')
    """
    check_output_dtype(dtype)
    return _STORED[dtype]


def stored_width(dtype: str, width: int) -> int:
    """How many values are stored of a vector.

    >>> stored_width("int8", 384), stored_width("ubinary", 384), stored_width("ubinary", 50)
    (384, 48, 7)
    """
    return -(-width // 8) if dtype == "ubinary" else width


def output_dtype(settings: Mapping[str, Any]) -> str:
    """The output type that a run's settings name; float32 where they name none."""
    return settings.get("output_dtype", "float32")


def check_output_dtype(dtype: str) -> None:
    """Raises a ValueError that names the flag if there is no such type."""
    if dtype not in OUTPUT_DTYPES:
        raise ValueError(f"--output_dtype must be one of {', '.join(OUTPUT_DTYPES)}, got {dtype!r}")


def _clipped(vectors: np.ndarray, dtype: str) -> np.ndarray:
    return np.clip(vectors, -_LARGEST[dtype], _LARGEST[dtype])


def _bfloat16_bits(vectors: np.ndarray) -> np.ndarray:
    """The upper half of each number's bits, rounded by the lower half, of a fresh array."""
    bits = vectors.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype(np.uint16)


def _int8(vectors: np.ndarray) -> Stored:
    largest = np.abs(vectors).max(axis=-1, initial=0)
    scale = largest / np.float32(_MOST_INT8)
    scale[scale < np.finfo(np.float32).tiny] = 0  # too fine for a scale that divides exactly
    divisor = np.where(scale > 0, scale, np.float32(np.inf))
    return Stored(np.rint(vectors / divisor[:, None]).astype(np.int8), scale)
