"""Computes vectors of rows and tokens from hidden states, within the graph."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_embed.backends.tensorflow.model import Encoder
from bert_embed.settings import OutputSpec, VectorSpec

_LEAST = -1e30  # below every hidden state, so that padding is never the maximum


def model_outputs(
    encoder: Encoder,
    spec: VectorSpec,
    output_spec: OutputSpec,
    input_ids: tf.Tensor,
    mask: tf.Tensor,
    type_ids: tf.Tensor,
    special_ids: tuple[int, int],
    prompt_tokens: int = 0,
) -> dict[str, tf.Tensor]:
    """Runs the encoder once, up to the highest layer that is used, and pools.

    `input_ids` with [CLS] and [SEP], `mask` (1 for tokens, padding at the end) and `type_ids` are
    int32 `[batch, length]`. Text never has `special_ids`, those of [CLS] and [SEP], because the
    tokenizer splits off brackets; so a token with one of them is a special token.

    Returns the requested ones of `sentences`, float32 `[batch, pooled width]`, and `tokens`,
    float32 `[batch, length, token width]`, without Dense modules, `dim` and `normalize`, and by
    their kinds the outputs of heads. The vectors of a row depend only on its own tokens.
    """
    numbers = spec.layer_numbers(encoder.config) if output_spec.sentences else ()
    token_numbers = spec.token_layer_numbers(encoder.config) if output_spec.tokens else ()
    last = (encoder.config.num_hidden_layers,) if output_spec.heads else ()
    highest = max(numbers + token_numbers + last)
    states = encoder.hidden_states(input_ids, mask, type_ids, highest=highest)
    outputs = {kind: encoder.head_output(kind, states[-1], mask) for kind in output_spec.heads}
    if output_spec.tokens:
        chosen = [states[number] for number in token_numbers]
        outputs["tokens"] = tf.concat(combine_layers(chosen, spec.layer_combine), axis=-1)
    if not output_spec.sentences:
        return outputs
    if spec.pooling == "pooler":
        outputs["sentences"] = encoder.pooled(states[-1])
    else:
        special = tf.reduce_any([tf.equal(input_ids, one) for one in special_ids], axis=0)
        counted = counted_tokens(mask, special, spec, prompt_tokens)
        chosen = [states[number] for number in numbers]
        layers = combine_layers(chosen, spec.layer_combine)
        pooled = [pool(layer, mask, counted, spec.poolings) for layer in layers]
        outputs["sentences"] = tf.concat(pooled, axis=-1)
    return outputs


def combine_layers(states: list[tf.Tensor], combine: str) -> list[tf.Tensor]:
    """Returns one tensor `[batch, length, width]`; for "stack" one for each state."""
    if combine == "stack":
        return states
    if combine == "concat":
        return [tf.concat(states, axis=-1)]
    total = tf.add_n(states)
    return [total / len(states) if combine == "mean" else total]


def counted_tokens(
    mask: tf.Tensor, special: tf.Tensor, spec: VectorSpec, prompt_tokens: int = 0
) -> tf.Tensor:
    """As `bert_embed.backends.pooling.counted_tokens`, but a tensor also where all tokens count."""
    inner = mask = tf.cast(mask, tf.float32)
    if not spec.pool_special_tokens:
        inner *= 1.0 - tf.cast(special, tf.float32)
    if prompt_tokens and not spec.pool_prompt:
        inner *= tf.cast(_places(mask) > prompt_tokens + 1, tf.float32)
    if inner is mask:
        return mask
    return tf.where(tf.reduce_any(inner > 0, axis=1, keepdims=True), inner, mask)


def pool(
    states: tf.Tensor, mask: tf.Tensor, counted: tf.Tensor, poolings: Sequence[str]
) -> tf.Tensor:
    """As `bert_embed.backends.pooling.pool`; `mask` and `counted` are float32 `[batch, length]`."""
    vectors = []
    for pooling in poolings:
        if pooling == "cls":
            vectors.append(states[:, 0])
        elif pooling == "sep":
            vectors.append(_at_last(states, tf.cast(mask, tf.float32)))
        else:
            vectors.append(_COUNTED[pooling](states, counted))
    return tf.concat(vectors, axis=-1)


def _mean(states: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return _sum(states, weights) / tf.reduce_sum(weights, axis=1, keepdims=True)


def _sum(states: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), states), axis=1)


def _max(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.where(tf.expand_dims(counted, 2) > 0, states, _LEAST), axis=1)


def _mean_sqrt_len(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return _sum(states, counted) / tf.sqrt(tf.reduce_sum(counted, axis=1, keepdims=True))


def _weighted_mean(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    return _mean(states, counted * tf.cast(_places(counted), tf.float32))


def _at_last(states: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    last = tf.reduce_max(tf.cast(counted, tf.int32) * _places(counted), axis=1) - 1
    return tf.gather(states, tf.maximum(last, 0), batch_dims=1)


def _places(counted: tf.Tensor) -> tf.Tensor:
    return tf.range(1, tf.shape(counted)[1] + 1)


_COUNTED: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "mean": _mean,
    "max": _max,
    "mean_sqrt_len": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "lasttoken": _at_last,
}
