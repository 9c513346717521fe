"""all-MiniLM-L6-v2 for LiteRT: `python -m benchmarks.sides.export_litert --model F --output F`.

The graph is BERT as XNNPACK likes it: products over `[tokens, hidden]`, query, key and value apart
(one product for the three asks for a transpose in five dimensions, which takes longer than all of
the attention), the exact GELU as one operation; weights are constants. float32.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file

Weights = dict[str, np.ndarray]


def main() -> None:
    """Writes the model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    weights = load_file(args.model / "model.safetensors")
    config = json.loads((args.model / "config.json").read_text(encoding="utf-8"))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def vectors(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        return pooled(encoded(ids, mask, weights, config), mask)

    converter = tf.lite.TFLiteConverter.from_concrete_functions([vectors.get_concrete_function()])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_bytes(converter.convert())


def encoded(ids: tf.Tensor, mask: tf.Tensor, weights: Weights, config: dict) -> tf.Tensor:
    """Returns the last hidden states, float32 `[batch * length, hidden]`."""
    batch, length = tf.shape(ids)[0], tf.shape(ids)[1]
    hidden, epsilon = config["hidden_size"], config["layer_norm_eps"]
    word = tf.gather(weights["embeddings.word_embeddings.weight"], tf.reshape(ids, [-1]))
    position = tf.constant(weights["embeddings.position_embeddings.weight"])[:length]
    position += weights["embeddings.token_type_embeddings.weight"][0]
    x = tf.reshape(tf.reshape(word, [batch, length, hidden]) + position, [-1, hidden])
    x = _normed(x, "embeddings.LayerNorm", weights, epsilon)
    bias = tf.reshape((1.0 - tf.cast(mask, tf.float32)) * -1e9, [batch, 1, 1, length])
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        heads = _attended(x, bias, name, weights, config, (batch, length))
        x = x + _product(heads, name + "attention.output.dense", weights)
        x = _normed(x, name + "attention.output.LayerNorm", weights, epsilon)
        inner = tf.nn.gelu(_product(x, name + "intermediate.dense", weights), approximate=False)
        x = x + _product(inner, name + "output.dense", weights)
        x = _normed(x, name + "output.LayerNorm", weights, epsilon)
    return x


def pooled(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the means over the tokens at unit length, float32 `[batch, hidden]`."""
    batch, length = tf.shape(mask)[0], tf.shape(mask)[1]
    weight = tf.expand_dims(tf.cast(mask, tf.float32), 1)
    total = tf.squeeze(tf.matmul(weight, tf.reshape(x, [batch, length, x.shape[-1]])), 1)
    mean = total / tf.reduce_sum(weight, -1)
    return mean * tf.math.rsqrt(tf.reduce_sum(mean * mean, -1, keepdims=True))


def _attended(
    x: tf.Tensor, bias: tf.Tensor, name: str, weights: Weights, config: dict, shape: tuple
) -> tf.Tensor:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    size = hidden // heads

    def part(which: str) -> tf.Tensor:
        values = _product(x, f"{name}attention.self.{which}", weights)
        return tf.transpose(tf.reshape(values, [*shape, heads, size]), [0, 2, 1, 3])

    scores = tf.matmul(part("query") * size**-0.5, part("key"), transpose_b=True)
    mixed = tf.matmul(tf.nn.softmax(scores + bias), part("value"))
    return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, hidden])


def _product(x: tf.Tensor, name: str, weights: Weights) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, weights[f"{name}.weight"].T), weights[f"{name}.bias"])


def _normed(x: tf.Tensor, name: str, weights: Weights, epsilon: float) -> tf.Tensor:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    spread = tf.math.rsqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + epsilon)
    return centred * spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


if __name__ == "__main__":
    main()
