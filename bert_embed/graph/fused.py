"""Joins the weights of products that have one input."""

import math
from collections.abc import Mapping

import numpy as np


def fused_attention(
    tensors: Mapping[str, np.ndarray], layer: str, head_width: int
) -> dict[str, np.ndarray]:
    """Returns query, key and value side by side, the query divided by sqrt(head width).

    The result has `kernel`, and `bias` where the model has one.
    """
    scale = np.float32(1 / math.sqrt(head_width))
    fused = {}
    for part in ("kernel", "bias"):
        if f"{layer}/query/{part}" not in tensors:
            continue
        query, key, value = (
            tensors[f"{layer}/{name}/{part}"] for name in ("query", "key", "value")
        )
        fused[part] = np.concatenate([query * scale, key, value], axis=-1)
    return fused
