"""TensorFlowEngine: TensorFlow on processors, in float32 or bfloat16."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from bert.batching import AnyShape
from bert.bundle import Bundle
from bert.engine import CPU_BATCH_TOKENS, Wanted
from bert.pooling import finish, model_outputs
from bert.vector_spec import VectorSpec

_LOG = logging.getLogger(__name__)


class TensorFlowEngine:
    """Each call runs on one core: it waits for no other, and as many may run as there are cores."""

    at_once: int | None = None
    device: AbstractContextManager = nullcontext()  # no model waits for another

    def __init__(self, bundle: Bundle, special_ids: tuple[int, int], precision: str) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            special_ids: Those of [CLS] and [SEP].
            precision: "float32" or "bfloat16".

        Raises:
            ValueError: The bundle's files are damaged.
        """
        _one_core_a_batch()
        self._special = special_ids
        self._model = bundle.load_encoder()
        if bundle.kind == "bert" and _has_onednn():
            self._model.suit_onednn()
        if precision == "bfloat16":
            self._model.compute_in(tf.bfloat16)

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        """See `bert.engine.Engine`."""
        return AnyShape(CPU_BATCH_TOKENS if batch_tokens is None else batch_tokens)

    def graph(self, spec: VectorSpec, wanted: Wanted, prompt_tokens: int) -> "TracedGraph":
        """See `bert.engine.Engine`."""
        return TracedGraph(traced(self._model, spec, wanted, prompt_tokens, self._special))

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert.engine.Engine`."""
        return finish(self._model, spec, pooled).numpy()


class TracedGraph:
    """A ConcreteFunction as a `bert.engine.Graph`."""

    def __init__(self, function: Any) -> None:
        self._function = function
        shapes = function.output_shapes
        self.widths = {name: int(shape[-1]) for name, shape in shapes.items()}

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        outputs = self._function(input_ids, mask, type_ids)
        return {name: values.numpy() for name, values in outputs.items()}


def traced(
    model: Any,
    spec: VectorSpec,
    wanted: Wanted,
    prompt_tokens: int,
    special_ids: tuple[int, int],
    jit_compile: bool | None = None,
) -> Any:
    """Returns the ConcreteFunction of `bert.pooling.model_outputs` for rows of any number."""

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3,
        autograph=False,
        jit_compile=jit_compile,
    )
    def outputs(input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return model_outputs(
            model, spec, wanted, input_ids, mask, type_ids, special_ids, prompt_tokens
        )

    return outputs.get_concrete_function()


def _has_onednn() -> bool:
    # TensorFlow decides by processor and settings, and has no public way to ask.
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


def _one_core_a_batch() -> None:
    # A batch on one core waits for no other core, and takes 7% less of it (benchmarks/encoder.py).
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:  # TensorFlow runs already; right all the same, only slower
        _LOG.info("TensorFlow was started before the encoder, its threads stay as they are")
