"""XLAEngine: runs models on GPUs, with a compiled program for each shape of a batch."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from bert_embed.backends.batches import (
    DEVICE_BATCH_TOKENS,
    FixedShapes,
    PaddedRows,
    Shape,
    padded_to,
)
from bert_embed.backends.host import ProgramEngine
from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.settings import OutputSpec, VectorSpec

_ONE_MODEL_AT_A_TIME = threading.Lock()  # all models of the process share the GPU


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
            self._model = load_encoder(bundle, tensors)
            if precision != "float32":
                self._model.compute_in(tf.as_dtype(precision))

    def batching(self, batch_tokens: int | None, longest: int) -> FixedShapes:
        """See `protocol.Engine`, and `check_process`."""
        self.check_process()
        return FixedShapes(DEVICE_BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "Programs":
        """See `bert_embed.backends.protocol.Engine`."""
        wanted = self.wanted(spec, output_spec, prompt_tokens)
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
