"""Hidden states in, one vector a row out: layers, pooling, dimension and length, in the graph."""

from collections.abc import Callable

import tensorflow as tf

from bert.model import BertEncoder
from bert.vector_spec import VectorSpec

_LEAST = -1e30  # below every hidden state: filling never wins a maximum


def row_vectors(
    encoder: BertEncoder,
    spec: VectorSpec,
    input_ids: tf.Tensor,
    mask: tf.Tensor,
    type_ids: tf.Tensor,
    special_ids: tuple[int, int],
) -> tf.Tensor:
    """Runs the encoder as far as `spec` needs it and pools.

    Args:
        encoder: The model.
        spec: What a vector is made of.
        input_ids: int32 `[batch, length]`, with [CLS] and [SEP].
        mask: int32 `[batch, length]`, 1 for tokens, 0 for filling at the end.
        type_ids: int32 `[batch, length]`.
        special_ids: The ids of [CLS] and [SEP]. Text never gives them (its brackets are split
            off), so that a place holding one is a special token.

    Returns:
        float32 `[batch, spec.width]`; it depends on the row's own tokens only.
    """
    numbers = spec.layer_numbers(encoder.config)
    states = encoder.hidden_states(input_ids, mask, type_ids, highest=max(numbers))
    if spec.pooling == "pooler":
        return _finish(encoder.pooled(states[-1]), spec)
    special = tf.reduce_any([tf.equal(input_ids, one) for one in special_ids], axis=0)
    counted = counted_tokens(mask, special, spec)
    layers = combine_layers([states[number] for number in numbers], spec.layer_combine)
    pooled = [pool(layer, mask, counted, spec.pooling) for layer in layers]
    return tf.concat([_finish(vector, spec) for vector in pooled], axis=-1)


def combine_layers(states: list[tf.Tensor], combine: str) -> list[tf.Tensor]:
    """Returns one tensor `[batch, length, width]`; for "stack" every state by itself."""
    if combine == "stack":
        return states
    if combine == "concat":
        return [tf.concat(states, axis=-1)]
    total = tf.add_n(states)
    return [total / len(states) if combine == "mean" else total]


def counted_tokens(mask: tf.Tensor, special: tf.Tensor, spec: VectorSpec) -> tf.Tensor:
    """Returns float32 `[batch, length]`: 1 where a token counts in the pooling.

    Special tokens count where `spec` says so, and in a row that holds nothing else.
    """
    mask = tf.cast(mask, tf.float32)
    if spec.pool_special_tokens:
        return mask
    inner = mask * (1.0 - tf.cast(special, tf.float32))
    return tf.where(tf.reduce_any(inner > 0, axis=1, keepdims=True), inner, mask)


def pool(states: tf.Tensor, mask: tf.Tensor, counted: tf.Tensor, pooling: str) -> tf.Tensor:
    """Pools tokens to one vector a row.

    "sep" is the row's last token, "lasttoken" the last that counts; "weightedmean" weighs a token
    by its place, the first being 1, as sentence-transformers does.

    Args:
        states: float32 `[batch, length, width]`.
        mask: int32 `[batch, length]`, 1 for tokens.
        counted: float32 `[batch, length]`, 1 for tokens that count.
        pooling: Any of `POOLINGS` but "pooler".

    Returns:
        float32 `[batch, width]`, twice as wide for "mean_max".
    """
    if pooling == "cls":
        return states[:, 0]
    if pooling == "sep":
        return _at_last(states, tf.cast(mask, tf.float32))
    return _COUNTED[pooling](states, counted)


def _mean(states: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return _sum(states, weights) / tf.reduce_sum(weights, axis=1, keepdims=True)


def _sum(states: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.squeeze(tf.matmul(weights[:, None, :], states), axis=1)


def _max(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.where(counted[:, :, None] > 0, states, _LEAST), axis=1)


def _mean_sqrt_len(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return _sum(states, counted) / tf.sqrt(tf.reduce_sum(counted, axis=1, keepdims=True))


def _weighted_mean(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return _mean(states, counted * tf.cast(_places(counted), tf.float32))


def _at_last(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    last = tf.reduce_max(tf.cast(counted, tf.int32) * _places(counted), axis=1) - 1
    return tf.gather(states, tf.maximum(last, 0), batch_dims=1)


def _places(counted: tf.Tensor) -> tf.Tensor:
    return tf.range(1, tf.shape(counted)[1] + 1)


def _mean_max(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return tf.concat([_mean(states, counted), _max(states, counted)], axis=-1)


_COUNTED: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "mean": _mean,
    "max": _max,
    "mean_max": _mean_max,
    "mean_sqrt_len": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "lasttoken": _at_last,
}


def _finish(vectors: tf.Tensor, spec: VectorSpec) -> tf.Tensor:
    """Cuts to the first `dim` numbers, then scales to unit length; zero stays zero."""
    vectors = vectors[:, : spec.dim]
    if not spec.normalize:
        return vectors
    # Not tf.math.l2_normalize, whose reciprocal root is off by more than one rounding.
    return vectors / tf.maximum(tf.norm(vectors, axis=-1, keepdims=True), 1e-12)
