"""Attention as a GPU computes it in 16 bits: one kernel, in Triton.

It never writes scores to memory. The method is FlashAttention's (Dao, 2023,
https://arxiv.org/abs/2307.08691): blocks of keys one after another, with the largest score so far.
Blocks of other texts, or out of reach, are left out.

Without a GPU its steps are XLA's own, for tests.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas
from jax.experimental.pallas import triton

from bert_embed.models.encoder import EncoderConfig

# Measured on an H100 with texts of 25 tokens: blocks of 128 are 4% slower.
_BLOCK = 64  # queries, and keys, of a step
_WARPS, _STAGES = 4, 2
_WIDTHS = (16, 32, 64, 128)  # of heads: Triton multiplies powers of two
_SHORT = 256  # tokens of a row, up to which counting the blocks to leave out costs more than these
UNSEEN = -1e9  # the score of tokens that are not seen: their softmax is exactly 0
_LEAST = -1e30  # below every score
_LOG2_E = math.log2(math.e)
_OLDEST = 8.0  # compute capability, from which Triton compiles
# Of XLA's compiler, for GPUs. Products by Triton gained nothing on an H100 and an H200. Trying them
# is most of what compiling takes, and they leave GELU to a kernel of its own.
OPTIONS = {"xla_gpu_enable_triton_gemm": False}


def has_kernels(config: EncoderConfig, dtype: Any, chips: Sequence[Any]) -> bool:
    """Returns whether these GPUs can compute a model so: its attention, and in 16 bits."""
    return (
        config.head_width in _WIDTHS
        and np.dtype(dtype).itemsize == 2
        and all(float(getattr(chip, "compute_capability", 0)) >= _OLDEST for chip in chips)
    )


def flash_attention(
    parts: Sequence[tuple[jax.Array, int]],
    heads: int,
    text: jax.Array,
    text_of_keys: jax.Array,
    spans: tuple[jax.Array, jax.Array],
    added: jax.Array | None = None,
    reach: int | None = None,
) -> jax.Array:
    """Returns `[rows, length, heads, width]`, the values of the tokens that each token sees.

    `parts` are queries, keys and values, each an array `[rows, length, some, width]` and the number
    of its first head there. A token sees those whose int32 `[rows, length]` `text_of_keys` is its
    own `text`, at most `reach` places away; `spans` are, int32 `[rows, length]` each, the first
    place of its text and the one behind the last. `added`, float32 `[1, heads or 1, length,
    length]`, is added to scores.
    """
    length = text.shape[1]
    if missing := -length % _BLOCK:
        found = flash_attention(
            [(_longer(array, missing, axis=1), first) for array, first in parts],
            heads,
            _longer(text, missing, axis=1),
            _longer(text_of_keys, missing, axis=1, value=-1),  # which no token sees
            (_longer(spans[0], missing, axis=1), _longer(spans[1], missing, axis=1, value=length)),
            None if added is None else _longer(_longer(added, missing, axis=2), missing, axis=3),
            reach,
        )
        return found[:, :length]
    operands = [array for array, _ in parts] + [text, text_of_keys]
    if bounded := length > _SHORT:
        lower, upper = (
            spans[0][:, ::_BLOCK] // _BLOCK,
            -(-spans[1][:, _BLOCK - 1 :: _BLOCK] // _BLOCK),
        )
        operands += [jnp.stack([lower, upper], axis=-1).astype(jnp.int32)]
    if added is not None:
        operands.append(added)
    first_heads = tuple(first for _, first in parts)
    call = partial(_attention_call, first_heads, heads, bounded, reach)
    return jax.lax.platform_dependent(
        *operands, cpu=partial(call, True), default=partial(call, False)
    )


def _longer(array: jax.Array, count: int, axis: int, value: int = 0) -> jax.Array:
    widths = [(0, count if axis == number else 0) for number in range(array.ndim)]
    return jnp.pad(array, widths, constant_values=value)


def _attention_call(
    first_heads: tuple[int, ...],
    heads: int,
    bounded: bool,
    reach: int | None,
    interpret: bool,
    *operands: jax.Array,
) -> jax.Array:
    rows, length, _, width = operands[0].shape

    def part(tokens: int, first: int) -> pallas.BlockSpec:
        return pallas.BlockSpec(
            (None, tokens, None, width),
            lambda block, row, head: (row, block if tokens == _BLOCK else 0, first + head, 0),
        )

    query, key, value = first_heads
    whole_row = pallas.BlockSpec((None, length), lambda block, row, head: (row, 0))
    specs = [part(_BLOCK, query), part(length, key), part(length, value), whole_row, whole_row]
    if bounded:
        specs.append(
            pallas.BlockSpec((None, length // _BLOCK, 2), lambda block, row, head: (row, 0, 0))
        )
    if len(operands) > len(specs):
        each = operands[-1].shape[1] > 1
        specs.append(
            pallas.BlockSpec(
                (None, None, _BLOCK, length),
                lambda block, row, head: (0, head if each else 0, block, 0),
            )
        )
    return pallas.pallas_call(
        partial(_attention_kernel, bounded, reach),
        grid=(length // _BLOCK, rows, heads),
        in_specs=specs,
        out_specs=part(_BLOCK, 0),
        out_shape=jax.ShapeDtypeStruct((rows, length, heads, width), operands[0].dtype),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
        name="flash_attention",
    )(*operands)


def _attention_kernel(bounded: bool, reach: int | None, *refs: Any) -> None:
    """Computes a block of queries of one head."""
    query_ref, key_ref, value_ref, text_ref, text_of_keys_ref, *others, found_ref = refs
    block, length, places = pallas.program_id(0), key_ref.shape[0], jnp.arange(_BLOCK)
    query, text = query_ref[...], text_ref[pallas.dslice(block * _BLOCK, _BLOCK)]
    lower, upper = 0, length // _BLOCK
    if bounded:
        bounds_ref, *others = others
        lower, upper = bounds_ref[block, 0], bounds_ref[block, 1]
        if reach is not None:
            lower = jnp.maximum(lower, (block * _BLOCK - reach) // _BLOCK)
            upper = jnp.minimum(upper, (block * _BLOCK + reach) // _BLOCK + 2)

    def step(number: Any, so_far: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        mixed, largest, total = so_far
        keys = pallas.dslice(number * _BLOCK, _BLOCK)
        scores = triton.dot(query, key_ref[keys, :].T)
        if others:
            scores += others[0][:, keys]
        seen = text[:, None] == text_of_keys_ref[keys][None]
        if reach is not None:
            away = (number - block) * _BLOCK + places[None] - places[:, None]
            seen &= jnp.abs(away) <= reach
        scores = jnp.where(seen, scores, UNSEEN) * _LOG2_E
        most = jnp.maximum(largest, scores.max(axis=1))
        less, weights = jnp.exp2(largest - most), jnp.exp2(scores - most[:, None])
        value = value_ref[keys, :]
        part = triton.dot(weights.astype(value.dtype), value)
        return mixed * less[:, None] + part, most, total * less + weights.sum(axis=1)

    start = (
        jnp.zeros(query.shape, jnp.float32),
        jnp.full((_BLOCK,), _LEAST, jnp.float32),
        jnp.zeros((_BLOCK,), jnp.float32),
    )
    mixed, _, total = jax.lax.fori_loop(lower, upper, step, start)
    found_ref[...] = (mixed / total[:, None]).astype(found_ref.dtype)
