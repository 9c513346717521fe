"""TensorFlowEngine: runs models in TensorFlow on processors, in float32 or bfloat16."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from bert_embed.bundle.bundle import Bundle
from bert_embed.engines.batches import CPU_BATCH_TOKENS, AnyShape
from bert_embed.graph.load import load_encoder
from bert_embed.graph.pooling import finish, model_outputs
from bert_embed.specs import OutputSpec, VectorSpec

_LOG = logging.getLogger(__name__)


class TensorFlowEngine:
    """Runs each call on one core, without waiting for other calls."""

    at_once: int | None = None
    device: AbstractContextManager = nullcontext()  # models do not wait for each other

    def __init__(self, bundle: Bundle, special_ids: tuple[int, int], precision: str) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            special_ids: Ids of [CLS] and [SEP].
            precision: "float32" or "bfloat16".

        Raises:
            InputError: The bundle's files are damaged.
        """
        _one_core_a_batch()
        self._special = special_ids
        self._model = load_encoder(bundle)
        if bundle.kind == "bert" and _has_onednn():
            self._model.suit_onednn()
        if precision == "bfloat16":
            self._model.compute_in(tf.bfloat16)

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        """See `bert_embed.engines.protocol.Engine`."""
        return AnyShape(CPU_BATCH_TOKENS if batch_tokens is None else batch_tokens)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> "TracedGraph":
        """See `bert_embed.engines.protocol.Engine`."""
        return TracedGraph(traced(self._model, spec, output_spec, prompt_tokens, self._special))

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert_embed.engines.protocol.Engine`."""
        return finish(self._model, spec, pooled).numpy()


class TracedGraph:
    """A ConcreteFunction as a `bert_embed.engines.protocol.Graph`."""

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
    output_spec: OutputSpec,
    prompt_tokens: int,
    special_ids: tuple[int, int],
    jit_compile: bool | None = None,
) -> Any:
    """Returns the ConcreteFunction of `graph.pooling.model_outputs` for rows of any number."""

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3,
        autograph=False,
        jit_compile=jit_compile,
    )
    def outputs(input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return model_outputs(
            model, spec, output_spec, input_ids, mask, type_ids, special_ids, prompt_tokens
        )

    return outputs.get_concrete_function()


def _has_onednn() -> bool:
    # TensorFlow decides by processor and settings, and has no public function that says so.
    from tensorflow.python.util import _pywrap_util_port  # noqa: PLC2701

    return bool(_pywrap_util_port.IsMklEnabled())


def _one_core_a_batch() -> None:
    # A batch on one core does not wait for other cores, and takes 7% less time.
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:  # TensorFlow has started: results are the same, only slower
        _LOG.info("TensorFlow was started before the encoder, its threads stay unchanged")
