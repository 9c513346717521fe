"""Engines for tests: the real one, with something to be done before each batch."""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bert_embed.backends.choose import load_engine
from bert_embed.backends.host import Wanted
from bert_embed.backends.protocol import Engine, Graph, PaddedRows, Shape
from bert_embed.backends.runner import CPU_BATCH_TOKENS, NOT_FINITE
from bert_embed.bundle.bundle import Bundle
from bert_embed.settings import OutputSpec, VectorSpec
from tests.support.command import ran


def load_tensorflow(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    """Loads the graph of GPUs in float32, which TensorFlow runs as it is, uncompiled."""
    import tensorflow as tf

    from bert_embed.backends.tensorflow.model import Programs, XLAEngine

    class UncompiledEngine(XLAEngine):
        def batching(self, batch_tokens: int | None, longest: int) -> Any:
            return super().batching(batch_tokens or CPU_BATCH_TOKENS, longest)

        def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Programs:
            wanted = Wanted(bundle.config, special_ids, spec, output_spec, head)

            @tf.function(
                input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3, autograph=False
            )
            def outputs(*batch: tf.Tensor) -> dict[str, tf.Tensor]:
                return self._model.outputs(wanted, *batch)

            return Programs(outputs, "/CPU:0")

    return UncompiledEngine(bundle, special_ids, "float32", "cpu")


def load_openvino(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    return load_engine(bundle, special_ids, "float32", "cpu", engine="openvino")


def load_jax(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    """Loads the programs of TPUs and GPUs in float32, compiled for this machine's processor."""
    return load_engine(bundle, special_ids, "float32", "cpu", engine="jax")


def load_jax_as_tpu(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    """Does so with what TPUs compute in another way than other chips."""
    return _AsTPU(load_jax(bundle, special_ids), lambda ids: None)


def load_jax_as_gpu(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    """Does so with the kernel of GPUs, step by step."""
    with mock.patch("bert_embed.backends.jax.engine.has_kernels", return_value=True):
        return load_jax(bundle, special_ids)


ENGINES = {"litert": load_engine, "tensorflow": load_tensorflow}  # in float32 on processors
if find_spec("openvino") is not None:  # which is for x86 alone
    ENGINES |= {"openvino": load_openvino}
if find_spec("jax") is not None:  # in the environment of `make test-accelerators`
    ENGINES |= {
        "jax": load_jax,
        "jax as on a TPU": load_jax_as_tpu,
        "jax as on a GPU": load_jax_as_gpu,
    }


def run_equal(graph: Graph, ids: np.ndarray, types: np.ndarray) -> Any:
    """Runs a graph on rows without padding, int32 `[rows, length]` both."""
    ones = np.ones_like(ids)
    return graph(PaddedRows(ids, ones, types, ones), ids.shape)


class WatchedEngine:
    """An engine whose graphs call `before` with the ids of a batch; all else is the engine's own.

    What `before` raises the graph raises; where it does not come back the graph hangs; where it
    returns NOT_FINITE no number of the outputs is one.
    """

    def __init__(self, engine: Engine, before: Callable[[np.ndarray], object]) -> None:
        self._engine, self._before = engine, before
        self.at_once, self.device = engine.at_once, engine.device
        self.batching, self.modules = engine.batching, engine.modules

    def graph(self, *wanted: Any) -> Any:
        graph = self._engine.graph(*wanted)

        def call(rows: PaddedRows, shape: Shape) -> Any:
            said = self._before(rows.input_ids)
            outputs = graph(rows, shape)
            if said != NOT_FINITE:
                return outputs
            return {name: values * np.float32(np.nan) for name, values in outputs.items()}

        return call


class _AsTPU(WatchedEngine):
    def graph(self, *wanted: Any) -> Any:
        from bert_embed.backends.jax import program

        graph = super().graph(*wanted)

        def call(rows: PaddedRows, shape: Shape) -> Any:
            with mock.patch.object(program, "_by_platform", lambda tpu, others: tpu):
                return graph(rows, shape)

        return call


def load_watched(before: Callable[[np.ndarray], object], *model: Any) -> WatchedEngine:
    """Loads the real engine; with `functools.partial`, what an Encoder takes as `load_engine`."""
    return WatchedEngine(load_engine(*model), before)


def jax_process(code: str, cache: Path, *words: str, **variables: str) -> tuple[Any, str]:
    """What a process of its own with JAX on this processor prints last, as JSON; and its stderr."""
    variables = {"BERT_EMBED_CACHE": str(cache), "JAX_PLATFORMS": "cpu"} | variables
    done = ran([sys.executable, "-c", code, *words], **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr
