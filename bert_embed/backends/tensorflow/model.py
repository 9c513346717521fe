"""An encoder as a TensorFlow graph, as a SavedModel as on TF Hub, and as an engine."""

import contextlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

from bert_embed.backends.host import (
    ArrayOps,
    ProgramEngine,
    Wanted,
    fused_attention,
    graph_tensors,
    is_normed,
    query_scale,
    tail,
)
from bert_embed.backends.protocol import PaddedRows, Shape
from bert_embed.backends.runner import DEVICE_BATCH_TOKENS, FixedShapes, padded_to
from bert_embed.base.errors import StorageError, reason
from bert_embed.base.threads import SharedSetting
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.models.encoder import EncoderConfig
from bert_embed.settings import OutputSpec, VectorSpec

_MASKED = -1e9  # added to the scores of padding, so that their softmax is exactly 0 and never NaN
_ONE_MODEL_AT_A_TIME = threading.Lock()  # all models of the process share the GPU


class TensorFlowModule(tf.Module):
    """An encoder for inference, without dropout.

    Query, key and value are one product, whose query part includes 1/sqrt(head width), where no
    norm follows. All weight products are 2-D over the tokens of the batch. Numbers are float32
    unless `compute_in` says otherwise.
    """

    def __init__(self, bundle: Bundle, tensors: Mapping[str, np.ndarray] | None = None) -> None:
        """Takes the weights, if they are read already; InputError if they are damaged."""
        super().__init__(name="encoder")
        self._bundle, self.config, self.has_pooler = bundle, bundle.config, bundle.has_pooler
        self._dtype = tf.float32
        arrays = _graph_weights(bundle, load_tensors(bundle) if tensors is None else tensors)
        self.weights = {name: tf.Variable(array) for name, array in arrays.items()}

    def hidden_states(
        self, input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor, highest: int | None = None
    ) -> list[tf.Tensor]:
        """Returns embeddings and layers up to `highest`, float32 `[batch, length, hidden]` each.

        Ids, mask (1 for tokens, 0 for padding, which is at the end) and types (1 for the second
        text) are int32 `[batch, length]`. Values at padded positions are undefined.
        """
        ops = _TensorFlowOps(self.config, self.weights, mask)
        states = self.config.hidden_states(ops, input_ids, type_ids)
        computed = list(islice(states, None if highest is None else highest + 1))
        return [ops.by_row(tf.cast(state, tf.float32)) for state in computed]

    def compute_in(self, dtype: tf.DType) -> None:
        """Stores the weights of products in `dtype` and computes these, and nothing else, in it."""
        self._dtype = dtype
        for name, weights in self.weights.items():
            if name.endswith(("/kernel", "/bias")):
                self.weights[name] = tf.Variable(tf.cast(weights, dtype))

    def outputs(
        self, wanted: Wanted, input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Runs the encoder once, up to the highest layer that is used, and what follows."""
        states = self.hidden_states(input_ids, mask, type_ids, highest=max(wanted.layers))

        def call(name: str, x: tf.Tensor) -> tf.Tensor:
            return self.call(name, x, mask)

        return wanted.outputs(tnp, dict(enumerate(states)), call, input_ids, mask)

    def call(self, name: str, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """As `bert_embed.backends.host.Model.call`."""
        ops = _TensorFlowOps(self.config, self.weights, mask, self._dtype)
        outputs = tf.cast(tail(self._bundle, ops, name, x), tf.float32)
        return ops.by_row(outputs) if name in self._bundle.per_token else outputs


def _graph_weights(bundle: Bundle, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the arrays that the graph reads: products of attention fused, tables added."""
    config, read = bundle.config, graph_tensors(bundle, tensors)
    fused_parts = ("query", "key", "value")
    arrays = {name: read[name] for name in read if name.split("/")[-2] not in fused_parts}
    for layer in config.layer_names:
        fused = fused_attention(tensors, layer, config.head_width)
        arrays |= {f"{layer}/qkv/{part}": array for part, array in fused.items()}
    return arrays | config.tables(tensors)


class _TensorFlowOps(ArrayOps):
    """The operations of `bert_embed.models.encoder.Ops` on padded rows."""

    def __init__(
        self,
        config: EncoderConfig,
        weights: Mapping[str, tf.Variable],
        mask: tf.Tensor,
        dtype: tf.DType = tf.float32,
    ) -> None:
        super().__init__(tnp, config, weights, mask)
        self._dtype = dtype
        shape = tf.shape(mask)
        self.batch, self.length = shape[0], shape[1]
        padding = tf.expand_dims((1.0 - tf.cast(mask, tf.float32)) * _MASKED, 1)
        # float32 `[batch, length, length]`, added to the scores of every layer.
        self._padding = tf.broadcast_to(padding, [self.batch, self.length, self.length])

    def gather(self, table: str, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.weights[table], ids)

    def first_rows(self, table: str) -> tf.Tensor:
        return self.weights[table][: self.length]

    def by_row(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [self.batch, self.length, x.shape[-1]])

    def add(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x + tf.cast(y, x.dtype)

    def multiply(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(y, x.dtype)

    def activated(self, x: tf.Tensor, activation: str) -> tf.Tensor:
        return _ACTIVATIONS[activation](x)

    def norm(self, x: tf.Tensor, name: str, epsilon: float | None = None) -> tf.Tensor:
        return super().norm(tf.cast(x, tf.float32), name, epsilon)

    def product(self, x: tf.Tensor, name: str) -> tf.Tensor:
        kernel, bias = self.weights[f"{name}/kernel"], self.weights.get(f"{name}/bias")
        x = tf.matmul(tf.cast(x, kernel.dtype), kernel)
        return x if bias is None else tf.nn.bias_add(x, bias)

    def by_distance(self, table: str) -> tf.Tensor:
        """As the protocol says; what padding adds is included."""
        places = tf.range(self.length) + (self.config.max_position_embeddings - 1)
        places = places[None, :] - tf.range(self.length)[:, None]
        return tf.expand_dims(tf.gather(self.weights[table], places, axis=1), 1) + self._padding

    def sighted(self, reach: int) -> tf.Tensor:
        near = tf.range(self.length) < tf.reduce_sum(self.mask, axis=1, keepdims=True) + reach
        return tf.reshape(tf.cast(near, tf.float32), [-1, 1])

    def attention(
        self,
        x: tf.Tensor,
        layer: str,
        added: tf.Tensor | None = None,
        rotation: tuple[tf.Tensor, tf.Tensor] | None = None,
    ) -> tf.Tensor:
        config = self.config
        heads = config.num_attention_heads
        # With heads first they are split without a copy.
        split = [self.batch, self.length, 3 * heads, config.head_width]
        products = self.product(x, f"{layer}/qkv")
        if is_normed(self.weights, layer):
            products = self._normed(products, layer)
        split = tf.reshape(products, split)
        query, key, value = tf.split(tf.transpose(split, [2, 0, 1, 3]), 3, axis=0)
        if rotation is not None:
            query, key = (_rotated(part, *rotation) for part in (query, key))
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
        weights = tf.nn.softmax(scores + (self._padding if added is None else added))
        weights = tf.cast(weights, value.dtype)
        mixed = tf.transpose(tf.matmul(weights, value), [1, 2, 0, 3])
        # With the shape of x itself TensorFlow can add x within the product.
        return tf.reshape(mixed, tf.shape(x))

    def with_rows(self, x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        x, rows = (tf.cast(part, self._dtype) for part in (x, rows))
        return tf.cast(tf.matmul(x, rows, transpose_b=True), tf.float32)

    def over_tokens(self, x: tf.Tensor, pooling: Any) -> tf.Tensor:
        return super().over_tokens(tf.cast(x, tf.float32), pooling)

    def _normed(self, products: tf.Tensor, layer: str) -> tf.Tensor:
        query, key, value = tf.split(products, 3, axis=-1)
        query = self.norm(query, f"{layer}/query_norm") * query_scale(self.config.head_width)
        key = self.norm(key, f"{layer}/key_norm")
        return tf.concat([tf.cast(query, value.dtype), tf.cast(key, value.dtype), value], axis=-1)


def _rotated(x: tf.Tensor, factors: tf.Tensor, exchanged_factors: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=-1)
    exchanged = tf.concat([second, first], axis=-1)
    rotated = tf.concat([first, second], axis=-1) * factors + exchanged * exchanged_factors
    return tf.cast(rotated, x.dtype)


def _gelu(x: tf.Tensor) -> tf.Tensor:
    # TensorFlow fuses this form with the product before it; tf.nn.gelu uses erfc.
    return ((tf.math.erf(x * 0.7071067811865476) + 1.0) * 0.5) * x


_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": _gelu,
    "gelu_new": partial(tf.nn.gelu, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "log1p": tf.math.log1p,
}


_INPUTS = {
    name: tf.TensorSpec([None, None], tf.int32, name=name)
    for name in ("input_word_ids", "input_mask", "input_type_ids")
}


class HubEncoder(tf.Module):
    """The object that `hub.KerasLayer`, `hub.load` and `tf.saved_model.load` return.

    A call takes a dict of int32 `[batch, length]`: `input_word_ids`, `input_mask` and
    `input_type_ids`. It returns a dict: `sequence_output` float32 `[batch, length, hidden]`,
    `encoder_outputs` a list of the same for every layer, and, where the model has a pooler,
    `pooled_output` and `default`, both float32 `[batch, hidden]`.
    """

    # hub.KerasLayer reads these attributes; the properties of tf.Module would not be saved.
    variables: Sequence[tf.Variable] = ()
    trainable_variables: Sequence[tf.Variable] = ()

    def __init__(self, encoder: TensorFlowModule) -> None:
        super().__init__(name="bert_encoder")
        self.encoder = encoder
        self.variables, self.trainable_variables = list(encoder.variables), list(encoder.variables)

    @tf.function(input_signature=[_INPUTS], autograph=False)
    def __call__(self, inputs):
        states = self.encoder.hidden_states(
            inputs["input_word_ids"], inputs["input_mask"], inputs["input_type_ids"]
        )
        outputs = {"sequence_output": states[-1], "encoder_outputs": states[1:]}
        if self.encoder.has_pooler:
            pooled = self.encoder.call("pooler", states[-1][:, 0], inputs["input_mask"])
            outputs |= {"pooled_output": pooled, "default": pooled}
        return outputs

    @tf.function(input_signature=[_INPUTS], autograph=False)
    def serve(self, inputs):
        """Returns the same with flat names, as a serving signature requires."""
        outputs = dict(self(inputs))
        layers = outputs.pop("encoder_outputs")
        return outputs | {f"encoder_outputs_{i}": layer for i, layer in enumerate(layers)}


def save(encoder: TensorFlowModule, folder: str) -> None:
    """Writes the SavedModel into `folder`, which does not exist; StorageError if it cannot."""
    module = HubEncoder(encoder)
    try:
        tf.saved_model.save(module, folder, signatures=module.serve)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, tf.errors.OpError):
            raise StorageError(f"{folder} cannot be written: {reason(error)}") from error
        raise


class XLAEngine(ProgramEngine):
    """Runs each call as one program of a fixed shape; calls may overlap."""

    device: contextlib.AbstractContextManager = _ONE_MODEL_AT_A_TIME

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str,
        threads: int = 1,
    ) -> None:
        """Loads the weights onto a "gpu", or the processor; `at_once` says the threads."""
        tensors = load_tensors(bundle)
        super().__init__(bundle, special_ids, tensors)
        self._place = "/GPU:0" if device == "gpu" else "/CPU:0"
        # Otherwise the first process takes all memory, and others on the machine get none.
        for gpu in tf.config.list_physical_devices("GPU") if device == "gpu" else ():
            with contextlib.suppress(RuntimeError):  # it is in use already
                tf.config.experimental.set_memory_growth(gpu, True)
        with tf.device(self._place):
            self._model = TensorFlowModule(bundle, tensors)
            if precision != "float32":
                self._model.compute_in(tf.as_dtype(precision))

    def batching(self, batch_tokens: int | None, longest: int) -> FixedShapes:
        """See `protocol.Engine`, and `check_process`."""
        self.check_process()
        return FixedShapes(DEVICE_BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> "Programs":
        """See `bert_embed.backends.protocol.Engine`."""
        wanted = self.wanted(spec, output_spec, head)
        batch = [tf.TensorSpec([None, None], tf.int32)] * 3
        with tf.device(self._place):
            outputs = partial(self._model.outputs, wanted)
            function = tf.function(outputs, batch, autograph=False, jit_compile=True)
            return Programs(function.get_concrete_function(), self._place)


class Programs:
    """A function of a batch as a `bert_embed.backends.protocol.Graph`."""

    def __init__(self, function: Callable[..., Any], place: str) -> None:
        self._function, self._place = function, place
        self._compiled: set[Shape] = set()

    def __call__(self, rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
        count, length = rows.mask.shape
        batch = (padded_to(one, shape) for one in (rows.input_ids, rows.seen, rows.type_ids))
        with (
            tf.device(self._place),
            contextlib.nullcontext() if shape in self._compiled else _EXACT,
        ):
            outputs = self._function(*map(tf.constant, batch))
            arrays = {name: values.numpy()[:count] for name, values in outputs.items()}
        self._compiled.add(shape)
        per_token = {name: values for name, values in arrays.items() if values.ndim == 3}
        return arrays | {name: values[:, :length] for name, values in per_token.items()}


def _without_tf32() -> bool:
    """Has products computed in float32, and returns whether they might have been in TF32."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return before


# While programs are compiled
_EXACT = SharedSetting(_without_tf32, tf.config.experimental.enable_tensor_float_32_execution)
