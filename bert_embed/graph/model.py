"""Computes the hidden states of an encoder as a TensorFlow graph."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from bert_embed.config import BertConfig
from bert_embed.graph.weight_names import fused_attention, relative_scores
from bert_embed.storage.errors import InputError

_MASKED = -1e9  # added to the scores of padding, so that their softmax is exactly 0 and never NaN


class BertEncoder(tf.Module):
    """A BERT, DistilBERT, ELECTRA or MPNet encoder for inference, without dropout.

    Query, key and value are one product, whose query part includes 1/sqrt(head width). All weight
    products are 2-D over the tokens of the batch. Numbers are float32 unless `compute_in` says
    otherwise.

    Attributes:
        config: Its sizes.
        has_pooler: Whether it has the dense layer over [CLS].
    """

    def __init__(
        self, config: BertConfig, tensors: Mapping[str, np.ndarray], pooler: bool = True
    ) -> None:
        """Builds the variables from float32 arrays in the names and shapes of `tensor_shapes`."""
        super().__init__(name="bert")
        self.config, self.has_pooler = config, pooler
        self.word = tf.Variable(tensors["embeddings/word"])
        self.position = tf.Variable(tensors["embeddings/position"])
        kind = tensors.get("embeddings/type")
        self.type = None if kind is None else tf.Variable(kind)
        self.norm = _LayerNorm(tensors, "embeddings/norm", config)
        self.project = _Dense(tensors, "embeddings/project") if config.embedding_size else None
        self.relative = None
        if config.relative_buckets:
            self.relative = tf.Variable(relative_scores(tensors, config.max_position_embeddings))
        self.layers = [
            _Layer(tensors, f"layers/{number}", config)
            for number in range(config.num_hidden_layers)
        ]
        self.pooler = _Dense(tensors, "pooler") if pooler else None

    def hidden_states(
        self,
        input_ids: tf.Tensor,
        mask: tf.Tensor,
        type_ids: tf.Tensor,
        highest: int | None = None,
    ) -> list[tf.Tensor]:
        """Computes the embeddings and the layers up to `highest`.

        Args:
            input_ids: int32 `[batch, length]`.
            mask: int32 `[batch, length]`, 1 for tokens, 0 for padding, which is at the end.
            type_ids: int32 `[batch, length]`, 0 for the first text, 1 for the second; models
                without segment embeddings do not read it.
            highest: The last layer to compute; None is all.

        Returns:
            `highest + 1` times float32 `[batch, length, hidden]`; values at padded positions are
            undefined.
        """
        shape = tf.shape(input_ids)
        batch, length = shape[0], shape[1]
        x = tf.gather(self.word, input_ids) + self.position[:length]
        if self.type is not None:
            x += tf.gather(self.type, type_ids)
        x = self.norm(tf.reshape(x, [-1, self.word.shape[1]]))
        if self.project is not None:
            x = self.project(x)
        added_scores = self._added_scores(mask, batch, length)
        states = [x]
        for layer in self.layers[:highest]:
            x = layer(x, added_scores, batch, length)
            states.append(x)
        whole = [batch, length, self.config.hidden_size]
        return [tf.reshape(tf.cast(state, tf.float32), whole) for state in states]

    def _added_scores(self, mask: tf.Tensor, batch: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Computes what every layer adds to its scores, once for all of them."""
        added = tf.expand_dims((1.0 - tf.cast(mask, tf.float32)) * _MASKED, 1)
        added = tf.broadcast_to(added, [batch, length, length])
        if self.relative is None:
            return added
        place = tf.range(length) + (self.config.max_position_embeddings - 1)
        distances = tf.gather(self.relative, place[None, :] - tf.range(length)[:, None], axis=1)
        return tf.expand_dims(distances, 1) + added

    def compute_in(self, dtype: tf.DType) -> None:
        """Stores the weights of all products in `dtype`, and computes these in it.

        Embeddings, the statistics of layer norms, softmax and all operations after the layers
        stay float32.
        """
        for module in self.submodules:
            if isinstance(module, _Dense):
                module.kernel = tf.Variable(tf.cast(module.kernel, dtype))
                module.bias = tf.Variable(tf.cast(module.bias, dtype))

    def pooled(self, last: tf.Tensor) -> tf.Tensor:
        """Returns the pooler's output, float32 `[batch, hidden]`, from the last hidden state."""
        if self.pooler is None:
            raise InputError("this model has no pooler")
        return tf.tanh(tf.cast(self.pooler(last[:, 0]), tf.float32))


class _Dense(tf.Module):
    def __init__(self, tensors: Mapping[str, np.ndarray], name: str) -> None:
        super().__init__()
        self.kernel = tf.Variable(tensors[f"{name}/kernel"])
        self.bias = tf.Variable(tensors[f"{name}/bias"])

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.matmul(tf.cast(x, self.kernel.dtype), self.kernel)
        return tf.nn.bias_add(x, self.bias)


class _LayerNorm(tf.Module):
    def __init__(self, tensors: Mapping[str, np.ndarray], name: str, config: BertConfig) -> None:
        super().__init__()
        self.gamma = tf.Variable(tensors[f"{name}/gamma"])
        self.beta = tf.Variable(tensors[f"{name}/beta"])
        self._epsilon = config.layer_norm_eps

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x = _standardized(tf.cast(x, tf.float32), self._epsilon)
        return x * self.gamma + self.beta


def _standardized(x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Returns rows of mean 0 and variance 1; `x` is float32 `[tokens, hidden]`."""
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + epsilon)


class _Layer(tf.Module):
    def __init__(self, tensors: Mapping[str, np.ndarray], name: str, config: BertConfig) -> None:
        super().__init__()
        self._heads = config.num_attention_heads
        self._head_width = config.hidden_size // config.num_attention_heads
        self.activation = _ACTIVATIONS[config.hidden_act]
        self.qkv = _Dense(fused_attention(tensors, name, self._head_width), "qkv")
        self.attention_output = _Dense(tensors, f"{name}/attention_output")
        self.attention_norm = _LayerNorm(tensors, f"{name}/attention_norm", config)
        self.intermediate = _Dense(tensors, f"{name}/intermediate")
        self.output = _Dense(tensors, f"{name}/output")
        self.output_norm = _LayerNorm(tensors, f"{name}/output_norm", config)

    def __call__(
        self, x: tf.Tensor, added_scores: tf.Tensor, batch: tf.Tensor, length: tf.Tensor
    ) -> tf.Tensor:
        attended = self.attention_output(self._attention(x, added_scores, batch, length))
        x = self.attention_norm(attended + tf.cast(x, attended.dtype))
        inner = self.output(self.activation(self.intermediate(x)))
        return self.output_norm(inner + tf.cast(x, inner.dtype))

    def _attention(
        self, x: tf.Tensor, added_scores: tf.Tensor, batch: tf.Tensor, length: tf.Tensor
    ) -> tf.Tensor:
        # With heads first they are split without a copy. LiteRT is slow with five dimensions.
        split = tf.reshape(self.qkv(x), [batch, length, 3 * self._heads, self._head_width])
        query, key, value = tf.split(tf.transpose(split, [2, 0, 1, 3]), 3, axis=0)
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
        weights = tf.nn.softmax(scores + added_scores)
        weights = tf.cast(weights, value.dtype)
        mixed = tf.transpose(tf.matmul(weights, value), [1, 2, 0, 3])
        # With the shape of x itself TensorFlow can add x within the product.
        return tf.reshape(mixed, tf.shape(x))


def _gelu(x: tf.Tensor) -> tf.Tensor:
    # TensorFlow fuses this form with the product before it; tf.nn.gelu uses erfc.
    return ((tf.math.erf(x * 0.7071067811865476) + 1.0) * 0.5) * x


def _gelu_new(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.gelu(x, approximate=True)


_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": _gelu,
    "gelu_new": _gelu_new,
    "relu": tf.nn.relu,
}
