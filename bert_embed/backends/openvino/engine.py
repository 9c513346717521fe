"""OpenVINOEngine: compiles a model's graphs for this processor, and runs them."""

import ctypes
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import numpy as np

from bert_embed.backends.host import HostEngine, tail
from bert_embed.backends.openvino.ops import OpenVINOOps, op, ov
from bert_embed.base.threads import renew_after_fork
from bert_embed.bundle.bundle import Bundle, load_tensors

_Graph = tuple[int, ...] | str  # the layers whose hidden states it gives, or what follows them
_TYPES = {"float32": "f32", "bfloat16": "bf16"}
# Graphs of hidden states, each with its own weights: a run has one, and a caller compares two.
_MOST = 2


class OpenVINOEngine(HostEngine):
    """Is the `Model` of all threads: each graph is compiled once, and runs a batch on one core."""

    batch_tokens = 1024  # of numbers that are half as long as those of CPU_BATCH_TOKENS

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        """Reads the weights; a graph is compiled when it is called for the first time."""
        super().__init__(bundle, special_ids)
        self._bundle, self._precision, self._threads = bundle, precision, threads
        self._tensors = load_tensors(bundle)
        self._core = ov.Core()
        self._compiled: dict[_Graph, tuple[ov.CompiledModel, list[ov.InferRequest]]] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forgets what runs in the threads of the other process: graphs are compiled anew."""
        # Never freed, which would wait for those threads.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._compiled, self._core)))
        self._lock, self._compiled = threading.Lock(), {}

    def model(
        self, highest: int, heads: Sequence[str] = ()
    ) -> AbstractContextManager["OpenVINOEngine"]:
        return nullcontext(self)

    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> dict[int, np.ndarray]:
        """See `Model.states`."""
        wanted = tuple(sorted(layers))
        return dict(zip(wanted, self._run(wanted, input_ids, type_ids, mask), strict=True))

    def call(self, name: str, x: np.ndarray) -> np.ndarray:
        """See `Model.call`."""
        return self._run(name, x)[0]

    def _run(self, graph: _Graph, *inputs: np.ndarray) -> list[np.ndarray]:
        with self._lock:
            if graph not in self._compiled:
                self._compiled[graph] = self._compile(graph), []
                layers = [one for one in self._compiled if isinstance(one, tuple)]
                for old in layers[:-_MOST]:
                    del self._compiled[old]
            compiled, idle = self._compiled[graph]
            request = idle.pop() if idle else compiled.create_infer_request()
        try:
            arrays = map(np.ascontiguousarray, inputs[: len(compiled.inputs)])
            request.infer(dict(enumerate(arrays)), share_inputs=True)
            return [tensor.data.copy() for tensor in request.output_tensors]
        finally:
            idle.append(request)

    def _compile(self, graph: _Graph) -> ov.CompiledModel:
        inputs, results = self._states(graph) if isinstance(graph, tuple) else self._tail(graph)
        short = isinstance(graph, tuple) or graph in self._bundle.heads
        settings = {
            "INFERENCE_PRECISION_HINT": _TYPES[self._precision if short else "float32"],
            "INFERENCE_NUM_THREADS": self._threads,
            "NUM_STREAMS": self._threads,
            "ENABLE_CPU_PINNING": False,
        }
        return self._core.compile_model(ov.Model(results, inputs), "CPU", settings)

    def _states(self, layers: tuple[int, ...]) -> tuple[list[ov.Node], list[ov.Node]]:
        ids, types, mask = (op.parameter([-1, -1], ov.Type.i32) for _ in range(3))
        masked = getattr(self.heads.get("multi"), "needs_mask", False)
        ops = OpenVINOOps(self.config, self._tensors, ids, mask if masked else None)
        states = [*islice(self.config.hidden_states(ops, ids, types), layers[-1] + 1)]
        return [ids, types, mask][: 3 if masked else 2], [states[layer] for layer in layers]

    def _tail(self, name: str) -> tuple[list[ov.Node], list[ov.Node]]:
        per_row = name in ("pooler", "modules")
        x = op.parameter([-1, -1] if per_row else [-1, -1, self.config.hidden_size], ov.Type.f32)
        ops = OpenVINOOps(self.config, self._tensors)
        return [x], [tail(self._bundle, ops, name, x)]
