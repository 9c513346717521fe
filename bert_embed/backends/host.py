"""What follows hidden states, once for every backend: layers, pooling, modules and heads.

Functions that take `xp` compute on arrays of its kind, by what NumPy, `jax.numpy` and
`tf.experimental.numpy` have in common: NumPy's arrays on the host, or values inside a program of a
device. A mask is 1 for tokens and 0 for padding, which is at the end; None says that there is none.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from bert_embed.backends.protocol import Graph, PaddedRows, Shape
from bert_embed.backends.runner import CPU_BATCH_TOKENS, EqualLengths
from bert_embed.bundle.bundle import Bundle, load_tensors
from bert_embed.models.encoder import EncoderConfig, Ops
from bert_embed.models.modules import OF_TOKENS, POOLED, modules_graph
from bert_embed.models.static import WORDS, StaticConfig
from bert_embed.settings import OutputSpec, VectorSpec


@dataclass(frozen=True)
class Wanted:
    """What the rows of a batch are asked for.

    Text never has `special_ids`, those of [CLS] and [SEP], because the tokenizer splits off
    brackets; so a token with one of them is a special token.
    """

    config: EncoderConfig
    special_ids: tuple[int, int]
    spec: VectorSpec
    output_spec: OutputSpec
    head: int = 0  # tokens up to the prompt's end, [CLS] included; 0 without a prompt

    @cached_property
    def layers(self) -> set[int]:
        """The numbers of the hidden states that `outputs` reads."""
        last = (self.config.num_hidden_layers,) if self.output_spec.heads else ()
        return {*self._numbers, *self._token_numbers, *last}

    @cached_property
    def _numbers(self) -> Sequence[int]:
        return self.spec.layer_numbers(self.config) if self.output_spec.sentences else ()

    @cached_property
    def _token_numbers(self) -> Sequence[int]:
        return self.spec.token_layer_numbers(self.config) if self.output_spec.tokens else ()

    def outputs(
        self,
        xp: Any,
        states: Mapping[int, Any],
        call: Callable[[str, Any], Any],
        ids: Any,
        mask: Any = None,
    ) -> dict[str, Any]:
        """Returns what `bert_embed.backends.protocol.Graph` says.

        `states` are float32 `[batch, length, hidden]` by their layers, at least those of `layers`;
        `call` is as `Model.call`; `ids` and `mask` are int32 `[batch, length]`. The outputs of a
        row depend only on its own tokens.
        """
        spec = self.spec
        outputs: dict[str, Any] = {}
        for kind in self.output_spec.heads:
            outputs[kind] = call(kind, states[self.config.num_hidden_layers])
        if self.output_spec.tokens:
            chosen = [states[number] for number in self._token_numbers]
            combined = combine_layers(xp, chosen, spec.layer_combine, spec.layer_weights)
            outputs["tokens"] = _joined(xp, combined)
        if not self.output_spec.sentences:
            return outputs
        chosen = [states[number] for number in self._numbers]
        if spec.pooling == "pooler":
            outputs["sentences"] = call("pooler", chosen[0][:, 0])
            return outputs
        counted = counted_tokens(xp, ids, mask, self.special_ids, spec, self.head)
        layers = combine_layers(xp, chosen, spec.layer_combine, spec.layer_weights)
        if spec.token_dense:
            layers = [call("token_modules", layer) for layer in layers]
        pooled = [pool(xp, layer, counted, mask, spec.poolings) for layer in layers]
        outputs["sentences"] = _joined(xp, pooled)
        return outputs


def combine_layers(
    xp: Any, states: Sequence[Any], combine: str, weights: Sequence[float] = ()
) -> list[Any]:
    """Returns one array `[batch, length, width]`; for "stack" one for each state."""
    if combine == "stack":
        return list(states)
    if combine == "concat":
        return [_joined(xp, states)]
    if weights:
        states = [state * weight for state, weight in zip(states, weights, strict=True)]
    total = sum(states[1:], start=states[0])
    return [total / (sum(weights) or len(states)) if combine == "mean" else total]


def counted_tokens(
    xp: Any, ids: Any, mask: Any, special_ids: tuple[int, int], spec: VectorSpec, head: int
) -> Any:
    """float32 `[batch, length]`: 1 where a token counts in the pooling; None if all do.

    Special tokens and the prompt count where `spec` says so, and in rows without other tokens.
    `head` are the tokens up to the prompt's last one; 0 without a prompt.
    """
    inner = None if mask is None else mask > 0
    if spec.pool_special_tokens and (spec.pool_prompt or not head):
        return None if inner is None else _ones_where(xp, inner)
    whole = inner = xp.ones_like(ids) > 0 if inner is None else inner
    if not spec.pool_special_tokens:
        inner = inner & ~((ids == special_ids[0]) | (ids == special_ids[1]))
    if head and not spec.pool_prompt:
        inner = inner & (_places(xp, ids) > head)
    return _ones_where(xp, xp.where(xp.any(inner, axis=1, keepdims=True), inner, whole))


def pool(xp: Any, states: Any, counted: Any, mask: Any, poolings: Sequence[str]) -> Any:
    """Pools float32 `[batch, length, width]` to `[batch, poolings * width]`.

    "sep" is the row's last token, "lasttoken" the last one that counts. "weightedmean" weights a
    token by its position, starting with 1, as sentence-transformers does. `counted` is as
    `counted_tokens` returns it.
    """
    vectors = []
    for pooling in poolings:
        if pooling == "cls":
            vectors.append(states[:, 0])
        elif pooling == "sep":
            last = states[:, -1] if mask is None else _last(xp, states, _ones_where(xp, mask > 0))
            vectors.append(last)
        elif pooling == "mean" and counted is None:
            vectors.append(xp.sum(states, axis=1) / states.shape[1])
        else:
            weights = xp.ones_like(states[:, :, 0]) if counted is None else counted
            vectors.append(_POOLINGS[pooling](xp, states, weights))
    return _joined(xp, vectors)


def _sum(xp: Any, states: Any, weights: Any) -> Any:
    # Not a product of matrices: OpenBLAS would use all cores, and other orders for other shapes.
    return xp.sum(states * weights[:, :, None], axis=1)


def _mean(xp: Any, states: Any, weights: Any) -> Any:
    return _sum(xp, states, weights) / xp.sum(weights, axis=1, keepdims=True)


def _max(xp: Any, states: Any, counted: Any) -> Any:
    least = xp.asarray(-math.inf, dtype=xp.float32)
    return xp.max(xp.where(counted[:, :, None] > 0, states, least), axis=1)


def _last(xp: Any, states: Any, counted: Any) -> Any:
    places = counted * _places(xp, counted)
    return _max(xp, states, _ones_where(xp, places == xp.max(places, axis=1, keepdims=True)))


_POOLINGS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mean": _mean,
    "max": _max,
    "mean_sqrt_len": lambda xp, x, counted: (
        _sum(xp, x, counted) / xp.sqrt(xp.sum(counted, axis=1, keepdims=True))
    ),
    "weightedmean": lambda xp, x, counted: _mean(xp, x, counted * _places(xp, counted)),
    "lasttoken": _last,
}


def _places(xp: Any, values: Any) -> Any:
    """The places of tokens from 1 on, of the type of `values`: no shape need be known."""
    return xp.cumsum(xp.ones_like(values), axis=1)


def _ones_where(xp: Any, condition: Any) -> Any:
    one, zero = (xp.asarray(value, dtype=xp.float32) for value in (1, 0))
    return xp.where(condition, one, zero)


def _joined(xp: Any, parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)


def fused_attention(
    tensors: Mapping[str, np.ndarray], layer: str, head_width: int
) -> dict[str, np.ndarray]:
    """Returns query, key, value side by side; query or its norm divided by sqrt(head width)."""
    scale = np.float32(1) if is_normed(tensors, layer) else query_scale(head_width)
    fused = {}
    for part in ("kernel", "bias"):
        if f"{layer}/query/{part}" not in tensors:
            continue
        query, key, value = (
            tensors[f"{layer}/{name}/{part}"] for name in ("query", "key", "value")
        )
        fused[part] = np.concatenate([query * scale, key, value], axis=-1)
    return fused


def query_scale(head_width: int) -> np.float32:
    """Returns what queries are multiplied by, for scores of the same size at any width."""
    return np.float32(1 / math.sqrt(head_width))


def is_normed(tensors: Mapping[str, Any], layer: str) -> bool:
    """Returns whether a layer has norms of its queries and keys."""
    return f"{layer}/query_norm/gamma" in tensors


def graph_tensors(bundle: Bundle, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what a program that ends with the pooling reads, but for the encoder's tables."""
    others = {*bundle.unread, *bundle.config.in_tables}
    return {
        name: array
        for name, array in tensors.items()
        if name not in others and not name.startswith(f"{POOLED}/")
    }


def tail(bundle: Bundle, ops: Any, name: str, x: Any) -> Any:
    """Adds what `Model.call` computes by some `Ops`; of each token `[tokens, width]`."""
    if name == "pooler":
        return ops.activated(ops.product(x, "pooler"), "tanh")
    if name == "modules":
        return modules_graph(bundle.dense, ops, x)
    if name == "token_modules":
        return modules_graph(bundle.token_dense, ops, ops.flat(x), OF_TOKENS)
    return bundle.heads[name].graph(ops, ops.flat(x))


class Model(Protocol):
    """What a backend that gives its hidden states to the host computes, a batch at a time."""

    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> Mapping[int, np.ndarray]:
        """Returns float32 `[batch, length, hidden]` for each of the layers.

        `mask`, int32 `[batch, length]`, is 0 for tokens that no token sees.
        """

    def call(self, name: str, x: np.ndarray) -> np.ndarray:
        """Returns what follows: float32 `[rows, width]`, of a head `[rows, length, width]`, too.

        "pooler" and "modules" take vectors, float32 `[rows, width]`, a head, by its kind, the last
        states.
        """


class HostEngine(ABC):
    """An `Engine` of a backend whose hidden states come to the host, where NumPy pools them.

    Batches hold rows of equal length, without padding: a vector must have the same bits whatever
    its neighbours are.
    """

    at_once: int | None = None
    device: AbstractContextManager = nullcontext()  # models do not wait for each other
    batch_tokens = CPU_BATCH_TOKENS  # most of a batch, if a call does not say it

    def __init__(self, bundle: Bundle, special_ids: tuple[int, int]) -> None:
        self.config, self.heads, self.special_ids = bundle.config, bundle.heads, special_ids

    @abstractmethod
    def model(self, highest: int, heads: Sequence[str] = ()) -> AbstractContextManager[Model]:
        """Lends a model, with its layers up to `highest` and these heads, to one thread."""

    def batching(self, batch_tokens: int | None, longest: int) -> EqualLengths:
        return EqualLengths(batch_tokens or self.batch_tokens)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Graph:
        wanted = Wanted(self.config, self.special_ids, spec, output_spec, head)

        def run(rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
            if output_spec.sentences and not rows.seen.all():
                raise ValueError(
                    "pooling counts every token of a row, padding and unseen ones included"
                )
            with self.model(max(wanted.layers), output_spec.heads) as model:
                states = model.states(rows.input_ids, rows.type_ids, wanted.layers, rows.seen)
                return wanted.outputs(np, states, model.call, rows.input_ids)

        return run

    def modules(self, vectors: np.ndarray) -> np.ndarray:
        with self.model(self.config.num_hidden_layers) as model:
            return model.call("modules", vectors)


class ProgramEngine:
    """What engines share whose compiled programs end with the pooling, on a device.

    Modules behind it are computed on the processor, because any row count occurs.
    """

    at_once: int | None = 3  # one is computed, one is padded or copied back, and one waits

    def __init__(
        self, bundle: Bundle, special_ids: tuple[int, int], tensors: Mapping[str, np.ndarray]
    ) -> None:
        self._bundle, self._special, self._process = bundle, special_ids, os.getpid()
        self._tensors = {name: tensors[name] for name in tensors if name.startswith(f"{POOLED}/")}

    def wanted(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Wanted:
        """Returns what the programs of such a graph compute."""
        return Wanted(self._bundle.config, self._special, spec, output_spec, head)

    def modules(self, vectors: np.ndarray) -> np.ndarray:
        return host_call(self._bundle, self._tensors, "modules", vectors)

    def check_process(self) -> None:
        """Raises RuntimeError in a forked process, where the device's runtime would hang."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a model on a GPU or TPU cannot be used in a forked process: start processes by "
                "multiprocessing's method spawn, and load the model in each"
            )


# erf(x / sqrt 2) is tanh(x P(x^2)) within 7e-8 up to 5.6, and 1 beyond; NumPy has no erf.
_ERF = (
    *(1.81392624e-09, -1.33783154e-07, 3.97407004e-06, -5.52733815e-05, -3.30267186e-05),
    *(0.0363341491, 0.797884268),
)


def _gelu(xp: Any, x: Any) -> Any:
    bounded = xp.clip(x, -5.6, 5.6)
    square, polynomial = bounded * bounded, _ERF[0]
    for factor in _ERF[1:]:
        polynomial = polynomial * square + factor
    return 0.5 * x * (1 + xp.tanh(bounded * polynomial))


def _gelu_new(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _sigmoid(xp: Any, x: Any) -> Any:
    return 0.5 * (1 + xp.tanh(0.5 * x))  # which overflows nowhere


_ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "gelu": _gelu,
    "gelu_new": _gelu_new,
    "relu": lambda xp, x: xp.maximum(x, 0),
    "silu": lambda xp, x: x * _sigmoid(xp, x),
    "tanh": lambda xp, x: xp.tanh(x),
    "sigmoid": _sigmoid,
    "log1p": lambda xp, x: xp.log1p(x),
}


class ArrayOps(Ops):
    """The operations behind the layers, in float32.

    A backend whose layers are written over the array API, too, adds those that look at tokens:
    `gather`, `first_rows`, `by_distance` and `attention`.
    """

    def __init__(
        self, xp: Any, config: EncoderConfig, weights: Mapping[str, Any], mask: Any = None
    ) -> None:
        """Takes the mask where tokens are pooled or come as `[batch, length, width]`."""
        self.xp, self.config, self.weights, self.mask = xp, config, weights, mask

    def by_row(self, x: Any) -> Any:
        """Returns `[batch, length, width]` of `[tokens, width]`."""
        return self.xp.reshape(x, (*self.mask.shape, x.shape[-1]))

    def flat(self, x: Any) -> Any:
        return self.xp.reshape(x, (-1, x.shape[-1]))

    def activated(self, x: Any, activation: str) -> Any:
        return _ACTIVATIONS[activation](self.xp, x)

    def norm(self, x: Any, name: str, epsilon: float | None = None) -> Any:
        xp = self.xp
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        variance = xp.mean(centred * centred, axis=-1, keepdims=True)
        x = centred / xp.sqrt(variance + xp.float32(epsilon))
        x, beta = x * self.weights[f"{name}/gamma"], self.weights.get(f"{name}/beta")
        return x if beta is None else x + beta

    def product(self, x: Any, name: str) -> Any:
        x, bias = x @ self.weights[f"{name}/kernel"], self.weights.get(f"{name}/bias")
        return x if bias is None else x + bias

    def against(self, x: Any, table: str, bias: str | None, block: int) -> Iterator[Any]:
        rows = self.weights[table]
        for start in range(0, rows.shape[0], block):
            products = self.with_rows(x, rows[start : start + block])
            yield products if bias is None else products + self.weights[bias][start : start + block]

    def with_rows(self, x: Any, rows: Any) -> Any:
        """Returns the float32 products of `x` with the rows of a table."""
        return x @ rows.T

    def over_tokens(self, x: Any, pooling: Literal["max", "sum", "mean", "first"]) -> Any:
        x = self.by_row(x)
        if pooling == "first":
            return x[:, 0]
        counted = _ones_where(self.xp, self.mask > 0)
        return {"max": _max, "sum": _sum, "mean": _mean}[pooling](self.xp, x, counted)

    def joined(self, parts: list[Any]) -> Any:
        return _joined(self.xp, parts)


class HostModel(Model):
    """A `Model` of which a backend computes the hidden states alone; NumPy does what follows."""

    def __init__(self, bundle: Bundle) -> None:
        """Reads the weights; `tensors` are float32, by their names."""
        self.bundle, self.tensors = bundle, load_tensors(bundle)

    def call(self, name: str, x: np.ndarray) -> np.ndarray:
        if len(x) < 2:
            return host_call(self.bundle, self.tensors, name, x)
        # One by one: with the number of rows BLAS changes the order in which it adds numbers.
        return np.concatenate([host_call(self.bundle, self.tensors, name, row[None]) for row in x])


def host_call(
    bundle: Bundle, tensors: Mapping[str, np.ndarray], name: str, x: np.ndarray
) -> np.ndarray:
    """Computes what `Model.call` says with NumPy, for rows without padding."""
    mask = np.ones(x.shape[:2], np.int32)
    # Nothing behind the layers asks for what is missing.
    ops = ArrayOps(np, bundle.config, tensors, mask)  # type: ignore[abstract]
    outputs = tail(bundle, ops, name, x)
    return outputs.reshape(*x.shape[:2], -1) if name in bundle.per_token else outputs


_BATCH_TOKENS = 2048  # whose rows of the table stay in a core's cache


class StaticEngine(HostEngine):
    """Static models alone have it: there is nothing to compile, and nothing for a GPU to do."""

    batch_tokens = _BATCH_TOKENS

    def __init__(self, bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> None:
        config = bundle.config
        unknown = config.unknown_id if isinstance(config, StaticConfig) else -1
        super().__init__(bundle, (unknown, unknown))
        self._unknown, self._model = unknown, _Table(bundle)

    def model(self, highest: int, heads: Sequence[str] = ()) -> AbstractContextManager["_Table"]:
        return nullcontext(self._model)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Graph:
        run = super().graph(spec, output_spec, head)
        layers = len(spec.layers) if spec.layer_combine in ("concat", "stack") else 1
        width = layers * self.config.hidden_size
        means = output_spec == OutputSpec(finished=output_spec.finished) and (
            (spec.pooling, layers) == ("mean", 1) and (spec.pool_prompt or not head)
        )
        counts_unknown = spec.pool_special_tokens or self._unknown < 0

        def outputs(rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
            input_ids = rows.input_ids
            count, length = input_ids.shape
            if not length:  # the vector of an empty text is 0, in both libraries
                sentences = np.zeros((count, width * len(spec.poolings)), np.float32)
                return {"sentences": sentences, "tokens": np.zeros((count, 0, width), np.float32)}
            if not means:
                return run(rows, shape)
            lengths = (
                length if counts_unknown else (input_ids != self._unknown).sum(axis=1)[:, None]
            )
            return {
                "sentences": self._model.sums(input_ids) / np.maximum(lengths, 1).astype(np.float32)
            }

        return outputs


class _Table(HostModel):
    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> Mapping[int, np.ndarray]:
        return {0: self.tensors[WORDS][input_ids]}

    def sums(self, ids: np.ndarray) -> np.ndarray:
        """Returns float32 `[batch, width]`, with few rows of the table in memory at a time."""
        table = self.tensors[WORDS]
        if ids.shape[1] <= _BATCH_TOKENS:
            return table[ids].sum(axis=1)
        starts = range(0, ids.shape[1], _BATCH_TOKENS)
        parts = (table[ids[:, start : start + _BATCH_TOKENS]].sum(axis=1) for start in starts)
        return sum(parts, start=np.zeros((len(ids), table.shape[1]), np.float32))
