"""Joins the weights of products that have one input."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def fused_attention(
    tensors: Mapping[str, np.ndarray], layer: str, head_width: int
) -> dict[str, np.ndarray]:
    """Returns query, key, value side by side; query or its norm divided by sqrt(head width)."""
    scale = np.float32(1) if is_normed(tensors, layer) else query_scale(head_width)
    fused = {}
    for part in ("kernel", "bias"):
        if f"{layer}/query/{part}" not in tensors:
            continue
        query, key, value = (
            tensors[f"{layer}/{name}/{part}"] for name in ("query", "key", "value")
        )
        fused[part] = np.concatenate([query * scale, key, value], axis=-1)
    return fused


def query_scale(head_width: int) -> np.float32:
    """Returns what queries are multiplied by, for scores of the same size at any width."""
    return np.float32(1 / math.sqrt(head_width))


def is_normed(tensors: Mapping[str, Any], layer: str) -> bool:
    """Returns whether a layer has norms of its queries and keys."""
    return f"{layer}/query_norm/gamma" in tensors
