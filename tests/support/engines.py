"""Engines for tests: the real one, with something to be done before each batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bert_embed.bundle.bundle import Bundle
from bert_embed.engines.choose import load_engine
from bert_embed.engines.protocol import Engine


def load_tensorflow(bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> Engine:
    """Loads TensorFlow's engine in float32, with the graph of GPUs and of bfloat16."""
    from bert_embed.engines.tensorflow import TensorFlowEngine

    return TensorFlowEngine(bundle, special_ids, "float32")


ENGINES = {"litert": load_engine, "tensorflow": load_tensorflow}  # in float32 on processors


class WatchedEngine:
    """An engine whose graphs call `before` with the ids of a batch; all else is the engine's own.

    What `before` raises the graph raises; where it does not come back the graph hangs.
    """

    def __init__(self, engine: Engine, before: Callable[[np.ndarray], object]) -> None:
        self._engine, self._before = engine, before
        self.at_once, self.device = engine.at_once, engine.device
        self.batching, self.finish = engine.batching, engine.finish

    def graph(self, *wanted: Any) -> "WatchedGraph":
        return WatchedGraph(self._engine.graph(*wanted), self._before)


class WatchedGraph:
    def __init__(self, graph: Any, before: Callable[[np.ndarray], object]) -> None:
        self._graph, self._before = graph, before
        self.widths = graph.widths

    def __call__(self, input_ids: np.ndarray, *rest: np.ndarray) -> Any:
        self._before(input_ids)
        return self._graph(input_ids, *rest)


def load_watched(before: Callable[[np.ndarray], object], *model: Any) -> WatchedEngine:
    """Loads the real engine; with `functools.partial`, what an Encoder takes as `load_engine`."""
    return WatchedEngine(load_engine(*model), before)
