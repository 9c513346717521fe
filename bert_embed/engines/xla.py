"""XLAEngine: runs models on GPUs and TPUs, with a compiled program for each shape of a batch."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_embed.bundle.bundle import Bundle
from bert_embed.engines.fixed_shapes import FixedShapes
from bert_embed.engines.tensorflow import TracedGraph, traced
from bert_embed.graph.load import load_encoder
from bert_embed.graph.pooling import finish, model_outputs
from bert_embed.specs import OutputSpec, VectorSpec
from bert_embed.storage.errors import SettingError

BATCH_TOKENS = 16384  # enough to use all units of a device
_AT_ONCE = 3  # one is computed, one is padded or copied back, and one waits
_ONE_MODEL_AT_A_TIME = threading.Lock()  # all models of the process share the device


class XLAEngine:
    """Runs each call as one program of a fixed shape; calls may overlap."""

    at_once: int | None = _AT_ONCE
    device: contextlib.AbstractContextManager = _ONE_MODEL_AT_A_TIME

    def __init__(
        self, bundle: Bundle, special_ids: tuple[int, int], precision: str, device: str
    ) -> None:
        """Loads the weights onto the device.

        Args:
            bundle: The model.
            special_ids: Ids of [CLS] and [SEP].
            precision: "float32", "bfloat16" or "float16"; float32 products are exact, without the
                shorter numbers (TF32) that these devices use by default.
            device: "gpu", "tpu", or "xla_cpu" for the same programs on processors.

        Raises:
            InputError: The bundle's files are damaged, or there is no such device.
        """
        self._special = special_ids
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self._place = _TPU() if device == "tpu" else _Device(device)
        with self._place.scope():
            self._model = load_encoder(bundle)
            if precision != "float32":
                self._model.compute_in(tf.as_dtype(precision))

    def batching(self, batch_tokens: int | None, longest: int) -> FixedShapes:
        """See `bert_embed.engines.protocol.Engine`."""
        return FixedShapes(BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Any:
        """See `bert_embed.engines.protocol.Engine`."""
        return self._place.graph(self._model, spec, output_spec, prompt_tokens, self._special)

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `protocol.Engine`; on the processor, because any row count occurs."""
        with tf.device("/CPU:0"):
            return finish(self._model, spec, pooled).numpy()


class _Device:
    """A device that TensorFlow places variables and calls on by itself."""

    def __init__(self, device: str) -> None:
        self._name = "/GPU:0" if device == "gpu" else "/CPU:0"
        # Otherwise the first process takes all memory, and others on the machine get none.
        for gpu in tf.config.list_physical_devices("GPU") if device == "gpu" else ():
            with contextlib.suppress(RuntimeError):  # it is in use already
                tf.config.experimental.set_memory_growth(gpu, True)

    def scope(self) -> Any:
        return tf.device(self._name)

    def graph(
        self,
        model: Any,
        spec: VectorSpec,
        output_spec: OutputSpec,
        prompt_tokens: int,
        special: Any,
    ) -> "_Placed":
        with self.scope():
            function = traced(model, spec, output_spec, prompt_tokens, special, jit_compile=True)
        return _Placed(TracedGraph(function), self._name)


class _Placed:
    def __init__(self, graph: TracedGraph, name: str) -> None:
        self._graph, self._name = graph, name
        self.widths = graph.widths

    def __call__(self, *batch: np.ndarray) -> Mapping[str, np.ndarray]:
        with tf.device(self._name):
            return self._graph(*batch)


class _TPU:
    """The first core of this machine's TPUs, through TensorFlow's TPUStrategy."""

    def __init__(self) -> None:
        try:
            cluster = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
            topology = tf.tpu.experimental.initialize_tpu_system(cluster)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise SettingError(
                "device",
                "tpu: TensorFlow finds no TPU on this machine; it needs a TPU VM, and the "
                "package tensorflow-tpu in the place of tensorflow",
            ) from error
        core = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=1)
        self._strategy = tf.distribute.TPUStrategy(cluster, experimental_device_assignment=core)

    def scope(self) -> Any:
        return self._strategy.scope()

    def graph(
        self,
        model: Any,
        spec: VectorSpec,
        output_spec: OutputSpec,
        prompt_tokens: int,
        special: Any,
    ) -> "_ShapeByShape":
        def run(ids: tf.Tensor, mask: tf.Tensor, types: tf.Tensor) -> Any:
            return model_outputs(model, spec, output_spec, ids, mask, types, special, prompt_tokens)

        return _ShapeByShape(self._strategy, run)


class _ShapeByShape:
    """Traces a program for each shape, because TPUs do not support unknown dimensions."""

    def __init__(self, strategy: Any, outputs: Any) -> None:
        @tf.function(autograph=False)
        def run(*batch: tf.Tensor) -> Any:
            return strategy.run(outputs, args=batch)

        self._run = run
        shapes = run.get_concrete_function(*[tf.TensorSpec([8, 8], tf.int32)] * 3).output_shapes
        self.widths = {name: int(shape[-1]) for name, shape in shapes.items()}

    def __call__(self, *batch: np.ndarray) -> Mapping[str, np.ndarray]:
        outputs = self._run(*[tf.constant(each) for each in batch])
        return {name: values.numpy() for name, values in outputs.items()}
