"""XLAEngine: programs compiled by XLA, on GPUs and TPUs, a program for each shape of a batch."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.bundle import Bundle
from bert.engine import Wanted
from bert.ladder import Ladder
from bert.pooling import finish, model_outputs
from bert.tensorflow_engine import TracedGraph, traced
from bert.vector_spec import VectorSpec

BATCH_TOKENS = 16384  # enough for the widest products to fill a device
_AT_ONCE = 3  # one computes, one is padded or fetched, and one waits
_ONE_MODEL_AT_A_TIME = threading.Lock()  # for all models of the process: the device is one


class XLAEngine:
    """Each call runs one program of a fixed shape; calls may overlap, the device does not wait."""

    at_once: int | None = _AT_ONCE
    device: contextlib.AbstractContextManager = _ONE_MODEL_AT_A_TIME

    def __init__(
        self, bundle: Bundle, special_ids: tuple[int, int], precision: str, device: str
    ) -> None:
        """Loads the weights onto the device.

        Args:
            bundle: The model; no SavedModel.
            special_ids: Those of [CLS] and [SEP].
            precision: "float32", "bfloat16" or "float16"; float32 is multiplied as such, not in
                the shorter numbers that these devices take for it by themselves.
            device: "gpu", "tpu", or "xla_cpu" for the same programs on processors.

        Raises:
            ValueError: The bundle's files are damaged, or there is no such device.
        """
        self._special = special_ids
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self._place = _TPU() if device == "tpu" else _Device(device)
        with self._place.scope():
            self._model = bundle.load_encoder()
            if precision != "float32":
                self._model.compute_in(tf.as_dtype(precision))

    def batching(self, batch_tokens: int | None, longest: int) -> Ladder:
        """See `bert.engine.Engine`."""
        return Ladder(BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, wanted: Wanted, prompt_tokens: int) -> Any:
        """See `bert.engine.Engine`."""
        return self._place.graph(self._model, spec, wanted, prompt_tokens, self._special)

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert.engine.Engine`; on the processor, for the number of rows is any."""
        with tf.device("/CPU:0"):
            return finish(self._model, spec, pooled).numpy()


class _Device:
    """A device that TensorFlow places variables and calls on by itself."""

    def __init__(self, device: str) -> None:
        self._name = "/GPU:0" if device == "gpu" else "/CPU:0"
        # Else the first process takes all of the memory, and a machine's others find none.
        for gpu in tf.config.list_physical_devices("GPU") if device == "gpu" else ():
            with contextlib.suppress(RuntimeError):  # it is in use, and stays as it is
                tf.config.experimental.set_memory_growth(gpu, True)

    def scope(self) -> Any:
        return tf.device(self._name)

    def graph(
        self, model: Any, spec: VectorSpec, wanted: Wanted, prompt_tokens: int, special: Any
    ) -> "_Placed":
        with self.scope():
            function = traced(model, spec, wanted, prompt_tokens, special, jit_compile=True)
        return _Placed(TracedGraph(function), self._name)


class _Placed:
    def __init__(self, graph: TracedGraph, name: str) -> None:
        self._graph, self._name = graph, name
        self.widths = graph.widths

    def __call__(self, *batch: np.ndarray) -> Mapping[str, np.ndarray]:
        with tf.device(self._name):
            return self._graph(*batch)


class _TPU:
    """The first core of the TPUs of this machine, by TensorFlow's strategy for them."""

    def __init__(self) -> None:
        try:
            cluster = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
            topology = tf.tpu.experimental.initialize_tpu_system(cluster)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            raise ValueError(
                "--device tpu: TensorFlow finds no TPU on this machine; it needs a TPU VM, and the "
                "package tensorflow-tpu in the place of tensorflow"
            ) from error
        core = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=1)
        self._strategy = tf.distribute.TPUStrategy(cluster, experimental_device_assignment=core)

    def scope(self) -> Any:
        return self._strategy.scope()

    def graph(
        self, model: Any, spec: VectorSpec, wanted: Wanted, prompt_tokens: int, special: Any
    ) -> "_ShapeByShape":
        def outputs(ids: tf.Tensor, mask: tf.Tensor, types: tf.Tensor) -> Any:
            return model_outputs(model, spec, wanted, ids, mask, types, special, prompt_tokens)

        return _ShapeByShape(self._strategy, outputs)


class _ShapeByShape:
    """A program for each shape, traced anew: on TPUs nothing of a shape may be open."""

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
