"""XLAEngine: runs models on GPUs and TPUs, with a compiled program for each shape of a batch."""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from bert_embed.backends.batches import FixedShapes
from bert_embed.backends.host import Wanted, host_call
from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.settings import OutputSpec, VectorSpec

BATCH_TOKENS = 16384  # enough to use all units of a device
_AT_ONCE = 3  # one is computed, one is padded or copied back, and one waits
_ONE_MODEL_AT_A_TIME = threading.Lock()  # all models of the process share the device
_Function = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]


class XLAEngine:
    """Runs each call as one program of a fixed shape; calls may overlap."""

    at_once: int | None = _AT_ONCE
    device: contextlib.AbstractContextManager = _ONE_MODEL_AT_A_TIME

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str,
        threads: int = 1,
    ) -> None:
        """Loads the weights onto a "gpu" or "tpu", or the processor; `at_once` says the threads."""
        self._bundle, self._special, self._process = bundle, special_ids, os.getpid()
        self._place = _TPU() if device == "tpu" else _Device(device)
        tensors = load_tensors(bundle)
        self._tensors = {name: tensors[name] for name in tensors if name.startswith("dense/")}
        with self._place.scope():
            self._model = load_encoder(bundle, tensors)
            if precision != "float32":
                self._model.compute_in(tf.as_dtype(precision))

    def batching(self, batch_tokens: int | None, longest: int) -> FixedShapes:
        """See `protocol.Engine`; RuntimeError in a forked process, where TensorFlow would hang."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a model on a GPU or TPU cannot be used in a forked process: start processes by "
                "multiprocessing's method spawn, and load the model in each"
            )
        return FixedShapes(BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "Programs":
        """See `bert_embed.backends.protocol.Engine`."""
        config = self._bundle.config
        wanted = Wanted(config, self._special, spec, output_spec, prompt_tokens)
        return self._place.programs(partial(self._model.outputs, wanted))

    def modules(self, vectors: np.ndarray) -> np.ndarray:
        """See `protocol.Engine`; on the processor, because any row count occurs."""
        return host_call(self._bundle, self._tensors, "modules", vectors)


class Programs:
    """A function of a batch as a `bert_embed.backends.protocol.Graph`."""

    def __init__(self, function: Callable[..., Any], scope: Callable[[], Any]) -> None:
        self._function, self._scope = function, scope
        self._compiled: set[tuple[int, ...]] = set()

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        is_new = input_ids.shape not in self._compiled
        with self._scope(), _EXACT if is_new else contextlib.nullcontext():
            outputs = self._function(*map(tf.constant, (input_ids, mask, type_ids)))
            arrays = {name: values.numpy() for name, values in outputs.items()}
        self._compiled.add(input_ids.shape)
        return arrays


class _ExactProducts:
    """Keeps TF32, a setting of the process, off while programs are compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside, self._before = 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = tf.config.experimental.tensor_float_32_execution_enabled()
                tf.config.experimental.enable_tensor_float_32_execution(False)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                tf.config.experimental.enable_tensor_float_32_execution(self._before)


_EXACT = _ExactProducts()


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

    def programs(self, outputs: _Function) -> Programs:
        batch = [tf.TensorSpec([None, None], tf.int32)] * 3
        with self.scope():
            function = tf.function(outputs, batch, autograph=False, jit_compile=True)
            return Programs(function.get_concrete_function(), self.scope)


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

    def programs(self, outputs: _Function) -> Programs:
        """Traces a program for each shape, because TPUs do not support unknown dimensions."""

        @tf.function(autograph=False)
        def run(*batch: tf.Tensor) -> Any:
            return self._strategy.run(outputs, args=batch)

        return Programs(run, contextlib.nullcontext)
