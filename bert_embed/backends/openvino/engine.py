"""OpenVINOEngine: writes a model as graphs of OpenVINO, compiles these, and runs them."""

import ctypes
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import numpy as np

from bert_embed.backends.host import HostEngine, fused_attention, is_normed, query_scale, tail
from bert_embed.base.threads import renew_after_fork
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.models.encoder import EncoderConfig, Ops

# It reports each import of it to Intel by openvino_telemetry, which is as if it were not installed.
_REPORTS = "openvino_telemetry"
_modules: dict[str, Any] = sys.modules
_before = _modules.get(_REPORTS)
_modules[_REPORTS] = None
try:
    import openvino as ov
    from openvino import opset15 as op
finally:
    del _modules[_REPORTS]
    if _before is not None:
        _modules[_REPORTS] = _before

Node = Any  # `ov.Node`
_Graph = tuple[int, ...] | str  # the layers whose hidden states it gives, or what follows them
_TYPES = {"float32": "f32", "bfloat16": "bf16"}
# Graphs of hidden states, each with its own weights: a run has one, and a caller compares two.
_MOST = 2
_UNSEEN = -1e9  # added to the scores of tokens that no token sees
_POOLINGS = {"max": op.reduce_max, "sum": op.reduce_sum, "mean": op.reduce_mean}
_ACTIVATIONS = {
    "gelu": lambda x: op.gelu(x, "erf"),
    "gelu_new": lambda x: op.gelu(x, "tanh"),
    "relu": op.relu,
    "silu": op.swish,
    "tanh": op.tanh,
    "sigmoid": op.sigmoid,
    "log1p": lambda x: op.log(op.add(x, _numbers(1, np.float32))),
}


class _OpenVINOOps(Ops):
    """The operations of `bert_embed.models.encoder.Ops`, for rows without padding.

    What the protocol has as `[tokens, width]` is `[batch, length, width]`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tensors: Mapping[str, np.ndarray],
        ids: Node | None = None,
        mask: Node | None = None,
    ) -> None:
        """Takes int32 `[batch, length]`, of a graph that begins with ids, and of masked models."""
        self._config, self._tensors, self._mask = config, tensors, mask
        self._tables = {} if ids is None else config.tables(tensors)
        if ids is not None:
            shape = op.shape_of(ids, output_type="i32")
            self._length = op.gather(shape, _numbers([1]), _numbers(0))

    def gather(self, table: str, ids: Node) -> Node:
        return op.gather(self._constant(table), ids, _numbers(0))

    def first_rows(self, table: str) -> Node:
        return self._cut(self._constant(table))

    def flat(self, x: Node) -> Node:
        return x

    def activated(self, x: Node, activation: str) -> Node:
        return _ACTIVATIONS[activation](x)

    def norm(self, x: Node, name: str, epsilon: float | None = None) -> Node:
        epsilon = float(self._config.layer_norm_eps if epsilon is None else epsilon)
        x = op.mvn(x, _numbers([-1]), True, epsilon, "inside_sqrt")
        x = op.multiply(x, self._constant(f"{name}/gamma"))
        return self._plus(x, f"{name}/beta")

    def product(self, x: Node, name: str) -> Node:
        x = op.matmul(x, self._constant(f"{name}/kernel"), False, False)
        return self._plus(x, f"{name}/bias")

    def by_distance(self, table: str) -> Node:
        places = _constant(np.arange(self._config.max_position_embeddings, dtype=np.int32))
        first = self._cut(places)
        second = op.add(first, _numbers(self._config.max_position_embeddings - 1))
        distances = op.subtract(op.unsqueeze(second, _numbers(0)), op.unsqueeze(first, _numbers(1)))
        return op.unsqueeze(op.gather(self._constant(table), distances, _numbers(1)), _numbers(0))

    def sighted(self, reach: int) -> Node | None:
        if self._mask is None:
            return None
        places = np.arange(self._config.max_position_embeddings, dtype=np.int32)
        seen = op.reduce_sum(self._mask, _numbers([1]), True)
        near = op.less(self._cut(_constant(places)), op.add(seen, _numbers(reach)))
        return op.unsqueeze(op.convert(near, "f32"), _numbers(2))

    def attention(
        self,
        x: Node,
        layer: str,
        added: Node | None = None,
        rotation: tuple[Node, Node] | None = None,
    ) -> Node:
        config = self._config
        heads, width = config.num_attention_heads, config.head_width
        query, key, value = self._query_key_value(x, layer)
        if rotation is not None:
            query, key = (_rotated(part, *rotation) for part in (query, key))
        if self._mask is not None:
            seen = op.convert(op.unsqueeze(self._mask, _numbers([1, 2])), "f32")
            unseen = op.subtract(_numbers(1, np.float32), seen)
            unseen = op.multiply(unseen, _numbers(_UNSEEN, np.float32))
            added = unseen if added is None else op.add(added, unseen)
        scale = _numbers(1, np.float32)  # which queries have
        mixed = op.scaled_dot_product_attention(query, key, value, added, scale)
        mixed = op.transpose(mixed, _numbers([0, 2, 1, 3]))
        return op.reshape(mixed, _numbers([0, 0, heads * width]), True)

    def against(self, x: Node, table: str, bias: str | None, block: int) -> Iterator[Node]:
        rows, added = self._tensors[table], None if bias is None else self._tensors[bias]
        for start in range(0, len(rows), block):
            product = op.matmul(x, _constant(rows[start : start + block]), False, True)
            part = None if added is None else _constant(added[start : start + block])
            yield product if part is None else op.add(product, part)

    def over_tokens(self, x: Node, pooling: str) -> Node:
        if pooling == "first":
            return op.gather(x, _numbers(0), _numbers(1))
        return _POOLINGS[pooling](x, _numbers([1]))

    def joined(self, parts: list[Node]) -> Node:
        return op.concat(parts, -1) if len(parts) > 1 else parts[0]

    def _query_key_value(self, x: Node, layer: str) -> Sequence[Node]:
        """Adds the three products of a layer as one, `[batch, heads, length, head width]` each."""
        heads, width = self._config.num_attention_heads, self._config.head_width
        fused = fused_attention(self._tensors, layer, width)
        products = op.matmul(x, _constant(fused["kernel"]), False, False)
        if "bias" in fused:
            products = op.add(products, _constant(fused["bias"]))
        if is_normed(self._tensors, layer):
            query, key, value = op.split(products, _numbers(-1), 3).outputs()
            scale = _numbers(query_scale(width), np.float32)
            query = op.multiply(self.norm(query, f"{layer}/query_norm"), scale)
            products = op.concat([query, self.norm(key, f"{layer}/key_norm"), value], -1)
        products = op.reshape(products, _numbers([0, 0, 3, heads, width]), True)
        parts = op.split(op.transpose(products, _numbers([2, 0, 3, 1, 4])), _numbers(0), 3)
        return [op.squeeze(part, _numbers([0])) for part in parts.outputs()]

    def _plus(self, x: Node, name: str) -> Node:
        return op.add(x, self._constant(name)) if name in self._tensors else x

    def _constant(self, name: str) -> Node:
        return _constant(self._tables[name] if name in self._tables else self._tensors[name])

    def _cut(self, table: Node) -> Node:
        """Returns as many rows of a table as a row of the batch has tokens."""
        return op.slice(table, _numbers([0]), self._length, _numbers([1]), _numbers([0]))


def _rotated(x: Node, factors: Node, exchanged_factors: Node) -> Node:
    first, second = op.split(x, _numbers(-1), 2).outputs()
    exchanged = op.concat([second, first], -1)
    return op.add(op.multiply(x, factors), op.multiply(exchanged, exchanged_factors))


def _constant(array: np.ndarray) -> Node:
    return op.constant(np.ascontiguousarray(array), shared_memory=True)


def _numbers(values: Any, dtype: Any = np.int32) -> Node:
    return op.constant(np.array(values, dtype))


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
        ops = _OpenVINOOps(self.config, self._tensors, ids, mask if masked else None)
        states = [*islice(self.config.hidden_states(ops, ids, types), layers[-1] + 1)]
        return [ids, types, mask][: 3 if masked else 2], [states[layer] for layer in layers]

    def _tail(self, name: str) -> tuple[list[ov.Node], list[ov.Node]]:
        per_row = name in ("pooler", "modules")
        x = op.parameter([-1, -1] if per_row else [-1, -1, self.config.hidden_size], ov.Type.f32)
        ops = _OpenVINOOps(self.config, self._tensors)
        return [x], [tail(self._bundle, ops, name, x)]
