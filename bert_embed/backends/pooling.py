"""Computes vectors of rows and tokens from hidden states with NumPy; no row is padded."""

from collections.abc import Callable, Sequence

import numpy as np

from bert_embed.base.arrays import unit_length
from bert_embed.settings import VectorSpec


def combine_layers(states: Sequence[np.ndarray], combine: str) -> list[np.ndarray]:
    """Returns one array `[batch, length, width]`; for "stack" one for each state."""
    if combine == "stack":
        return list(states)
    if combine == "concat":
        return [np.concatenate(states, axis=-1)]
    total = sum(states[1:], start=states[0])
    return [total / np.float32(len(states)) if combine == "mean" else total]


def counted_tokens(
    input_ids: np.ndarray, special_ids: tuple[int, int], spec: VectorSpec, prompt_tokens: int
) -> np.ndarray | None:
    """float32 `[batch, length]`: 1 where a token counts in the pooling; None if all do.

    Special tokens and the prompt count where `spec` says so, and in rows without other tokens.
    """
    if spec.pool_special_tokens and (spec.pool_prompt or not prompt_tokens):
        return None
    inner = np.ones(input_ids.shape, bool)
    if not spec.pool_special_tokens:
        inner &= ~np.isin(input_ids, special_ids)
    if not spec.pool_prompt:
        inner[:, : prompt_tokens + 1] = False
    inner |= ~inner.any(axis=1, keepdims=True)
    return inner.astype(np.float32)


def pool(states: np.ndarray, counted: np.ndarray | None, poolings: Sequence[str]) -> np.ndarray:
    """Pools float32 `[batch, length, width]` to `[batch, poolings * width]`.

    "sep" is the row's last token, "lasttoken" the last one that counts. "weightedmean" weights a
    token by its position, starting with 1, as sentence-transformers does. `counted` is float32
    `[batch, length]`, 1 for tokens that count, None if all do.
    """
    weights = np.ones(states.shape[:2], np.float32) if counted is None else counted
    return np.concatenate(
        [
            states.sum(axis=1) / np.float32(states.shape[1])
            if pooling == "mean" and counted is None
            else _POOLINGS[pooling](states, weights)
            for pooling in poolings
        ],
        axis=-1,
    )


def finish(
    spec: VectorSpec,
    pooled: np.ndarray,
    pooled_width: int,
    dense: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Applies Dense modules, then `dim` and unit length; returns float32 `[rows, spec.width]`.

    `pooled` is float32 `[rows, layers * pooled_width]`; each layer of a stack is cut and scaled by
    itself.
    """
    layers = np.split(pooled, pooled.shape[1] // pooled_width, axis=1)
    layers = [dense(layer) for layer in layers] if spec.dense else layers
    if not spec.dim_last:
        layers = [layer[:, : spec.dim] for layer in layers]
    layers = [unit_length(layer) if spec.normalize else layer for layer in layers]
    return np.concatenate([layer[:, : spec.dim] for layer in layers], axis=1)


def _sum(states: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # Not a product of matrices: OpenBLAS would use all cores, and other orders for other shapes.
    return (states * weights[:, :, None]).sum(axis=1)


def _mean(states: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return _sum(states, weights) / weights.sum(axis=1, keepdims=True)


def _max(states: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return states.max(axis=1, where=counted[:, :, None] > 0, initial=-np.inf)


def _mean_sqrt_len(states: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return _sum(states, counted) / np.sqrt(counted.sum(axis=1, keepdims=True))


def _weighted_mean(states: np.ndarray, counted: np.ndarray) -> np.ndarray:
    return _mean(states, counted * np.arange(1, counted.shape[1] + 1, dtype=np.float32))


def _last(states: np.ndarray, counted: np.ndarray) -> np.ndarray:
    from_end = np.argmax(counted[:, ::-1], axis=1)
    return states[np.arange(len(states)), states.shape[1] - 1 - from_end]


_POOLINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": _mean,
    "max": _max,
    "mean_sqrt_len": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "cls": lambda states, counted: states[:, 0],
    "sep": lambda states, counted: states[:, -1],
    "lasttoken": _last,
}
