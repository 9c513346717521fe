"""Writes an encoder as LiteRT models, in float32 and with products in int8."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from bert_embed.backends.litert.file import Graph, ModelFile, read_arrays
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import AGAIN, LITERT, WEIGHTS, Bundle
from bert_embed.models.encoder import DenseModule, EncoderConfig
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.multi import MultiHead


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


_Tensors = Mapping[str, np.ndarray]
_UNSEEN = 1e9  # taken from the scores of tokens that no token sees: their softmax is exactly 0
_INT8_FULLY_CONNECTED = 12  # the operators' versions that have int8 weights
_INT8_GATHER = 2
WORD_SCALES = "row"  # what has a scale of its own in the word embeddings of the int8 file
_IDS = ([-1, -1], "int32")
_ONE_WIDE = {"shape": [-1, -1, 1]}
_ACTIVATIONS = {
    "gelu": ("GELU", schema.GeluOptionsT(approximate=False)),
    "gelu_new": ("GELU", schema.GeluOptionsT(approximate=True)),
    "relu": ("RELU", None),
    "tanh": ("TANH", None),
    "sigmoid": ("LOGISTIC", None),
}


def write_litert(
    folder: str | Path,
    config: EncoderConfig,
    tensors: _Tensors,
    dense: Sequence[DenseModule] = (),
    heads: Mapping[str, Head] | None = None,
    apart: Container[str] = (),
) -> None:
    """Writes a file for each precision into the folder.

    Each has these signatures, of rows without padding:
        hidden_states: `input_ids` and `type_ids`, int32 `[batch, length]`, to float32
            `[batch * length, hidden]` each, the embeddings and the layers in order.
        pooler: `x` float32 `[rows, hidden]`, last states of [CLS], to the pooler's output.
        dense: `x` float32 `[rows, in_features]` through all Dense modules.
        sparse, multi, scores: `x` float32 `[batch, length, hidden]`, last states, to `Head.graph`.
            `cut_model` alone gives those of kinds that are `apart`.

    In int8, weights of layers have a scale for each output of a product. Activations become int8
    when the model runs, with a scale for each token, so a vector depends only on its own row. All
    but the layers' products and the word embeddings is float32. No calibration is necessary. The
    float32 file is also where the weights are kept: `load_tensors` reads them by their names.
    Models without segment embeddings do not read `type_ids`.
    """
    for precision, name in LITERT.items():
        file = ModelFile()
        multi = (heads or {}).get("multi")
        masked = isinstance(multi, MultiHead) and multi.needs_mask
        _write_encoder(file.graph("hidden_states"), config, tensors, precision == "int8", masked)
        if "pooler/kernel" in tensors:
            _write_layers(file.graph("pooler"), tensors, {"pooler": "tanh"})
        if dense:
            names = {f"dense/{number}": module.activation for number, module in enumerate(dense)}
            _write_layers(file.graph("dense"), tensors, names)
        for head in (heads or {}).values():
            graph = file.graph(head.kind, head.kind in apart)
            _write_head(graph, head, config, tensors, precision == "int8")
        file.write(Path(folder, name))


def _write_encoder(
    graph: Graph, config: EncoderConfig, tensors: _Tensors, int8: bool, masked: bool
) -> None:
    """Writes the graph of the embeddings and all layers."""
    ids = ("input_ids", "type_ids", *(["mask"] if masked else []))
    ops = _LiteRTOps(graph, config, tensors, int8, ids)
    for number, state in enumerate(config.hidden_states(ops, *ops.inputs[:2])):
        graph.output(f"layer_{number}", state)
    if not int8:
        ops.keep_originals()


def _write_head(
    graph: Graph, head: Head, config: EncoderConfig, tensors: _Tensors, int8: bool
) -> None:
    """Writes the graph of a head on the last states."""
    ops = _LiteRTOps(graph, config, tensors, int8, ("x",))
    graph.output("y", head.graph(ops, ops.flat(*ops.inputs)))
    for name in head.unread:
        graph.constant(tensors[name], name=name)


class _LiteRTOps:
    """`Ops` for rows without padding; `[heads, batch, length, head width]` within the attention."""

    def __init__(
        self,
        graph: Graph,
        config: EncoderConfig,
        tensors: _Tensors,
        int8: bool,
        inputs: tuple[str, ...],
    ) -> None:
        """Adds inputs: ids, mask, int32 `[batch, length]`, or "x", `[batch, length, hidden]`."""
        self._graph, self._config, self._int8 = graph, config, int8
        self._tensors, self._tables = tensors, config.tables(tensors)
        # In how many products a layer computes query, key and value. In int8 each would make `x`
        # int8 anew; in float32, XNNPACK computes three in 0.96 of the time of one, with the same
        # bits. Norms of queries and keys take each by itself.
        self._normed = is_normed(tensors, config.layer_names[0])
        self._products = 1 if int8 and not self._normed else 3
        self._last_axis = graph.numbers(-1)
        self._flat = graph.numbers(-1, config.hidden_size)
        self._epsilon = graph.constant(np.array(config.layer_norm_eps, np.float32))
        kind = ([-1, -1, config.hidden_size], "float32") if inputs == ("x",) else _IDS
        self.inputs = tuple(graph.input(name, *kind) for name in inputs)
        size = schema.ShapeOptionsT(2)
        shape = graph.add(
            "SHAPE", self.inputs[0], options=size, shape=[len(kind[0])], dtype="int32"
        )
        self._shape = shape
        self._unseen = self._unseen_scores() if "mask" in inputs else None
        if kind is not _IDS:
            return
        # The shape of query, key and value by head.
        split = graph.numbers(3 * config.num_attention_heads // self._products, config.head_width)
        join = schema.ConcatenationOptionsT()
        self._by_head = graph.add(
            "CONCATENATION", shape, split, options=join, shape=[4], dtype="int32"
        )

    def gather(self, table: str, ids: int) -> int:
        graph, rows = self._graph, self._tensors[table]
        width = rows.shape[1]
        gather: dict[str, Any] = {"options": schema.GatherOptionsT(), "shape": [-1, -1, width]}
        if not self._int8 or table != "embeddings/word":
            return graph.add("GATHER", graph.constant(rows, name=table, key=table), ids, **gather)
        # A scale for each row, which LiteRT's own int8 tables cannot have.
        values, scales = _quantized(rows)
        int8 = gather | {"version": _INT8_GATHER, "dtype": "int8"}
        x = graph.add("GATHER", graph.constant(values, key=table), ids, **int8)
        cast = schema.CastOptionsT(schema.TensorType.INT8, schema.TensorType.FLOAT32)
        x = graph.add("CAST", x, options=cast)
        scale = graph.add("GATHER", graph.constant(scales[:, None]), ids, **gather | _ONE_WIDE)
        return graph.add("MUL", x, scale)

    def first_rows(self, table: str) -> int:
        if table in self._tables:
            return self._cut(self._tables[table])
        return self._cut(self._tensors[table], table)

    def flat(self, x: int) -> int:
        width = self._graph.width(x)
        whole = width == self._config.hidden_size
        shape = self._flat if whole else self._graph.numbers(-1, width)
        return self._graph.add("RESHAPE", x, shape, shape=[-1, width])

    def add(self, x: int, y: int) -> int:
        return self._graph.add("ADD", x, y)

    def multiply(self, x: int, y: int) -> int:
        return self._graph.add("MUL", x, y)

    def activated(self, x: int, activation: str) -> int:
        return _activated(self._graph, activation, x)

    def norm(self, x: int, name: str) -> int:
        graph, axis = self._graph, self._last_axis
        mean = {"options": schema.ReducerOptionsT(keepDims=True), "shape": [-1, 1]}
        centred = graph.add("SUB", x, graph.add("MEAN", x, axis, **mean))
        variance = graph.add("MEAN", graph.add("MUL", centred, centred), axis, **mean)
        factor = graph.add("RSQRT", graph.add("ADD", variance, self._epsilon))
        x = graph.add("MUL", centred, factor)
        gamma, *beta = (
            graph.constant(self._tensors[key], name=key)
            for key in (f"{name}/gamma", f"{name}/beta")
            if key in self._tensors
        )
        x = graph.add("MUL", x, gamma)
        return graph.add("ADD", x, *beta) if beta else x

    def product(self, x: int, name: str) -> int:
        int8 = self._int8 and name.startswith("layers/")
        return _product(self._graph, *_weights(self._tensors, name), x, int8)

    def by_distance(self, table: str) -> int:
        graph, positions = self._graph, self._config.max_position_embeddings
        places = np.arange(positions, dtype=np.int32)
        first = self._cut(places[:, None])
        second = self._cut(places[:, None] + np.int32(positions - 1))
        across = graph.numbers(1, -1)
        second = graph.add("RESHAPE", second, across, shape=[1, -1], dtype="int32")
        distances = graph.add("SUB", second, first, shape=[-1, -1], dtype="int32")
        scores = self._tables[table][:, None]
        return graph.add(
            *("GATHER", graph.constant(scores), distances),
            options=schema.GatherOptionsT(axis=2),
            shape=[len(scores), 1, -1, -1],
        )

    def attention(
        self, x: int, layer: str, added: int | None = None, rotation: tuple[int, int] | None = None
    ) -> int:
        graph, config = self._graph, self._config
        heads, width = config.num_attention_heads, config.head_width
        query, key, value = self._query_key_value(layer, x)
        if rotation is not None:
            query, key = (self._rotated(part, *rotation) for part in (query, key))
        by_token, by_pair = [heads, -1, -1, width], [heads, -1, -1, -1]
        product = schema.BatchMatMulOptionsT(adjY=True)
        scores = graph.add("BATCH_MATMUL", query, key, options=product, shape=by_pair)
        if added is not None:
            scores = graph.add("ADD", scores, added)
        if self._unseen is not None:
            scores = graph.add("ADD", scores, self._unseen)
        weights = graph.add("SOFTMAX", scores, options=schema.SoftmaxOptionsT(1.0))
        product = schema.BatchMatMulOptionsT()
        mixed = graph.add("BATCH_MATMUL", weights, value, options=product, shape=by_token)
        mixed = graph.add(
            "TRANSPOSE", mixed, graph.numbers(1, 2, 0, 3), shape=[-1, -1, heads, width]
        )
        return graph.add("RESHAPE", mixed, self._flat, shape=[-1, config.hidden_size])

    def against(self, x: int, table: str, bias: str | None, block: int) -> Iterator[int]:
        graph, rows = self._graph, self._tensors[table]
        if not self._int8 and not table.startswith("embeddings/"):
            graph.constant(rows, name=table, key=table)
        scales = None
        if self._int8:
            rows, scales = _quantized(rows)
        options = schema.FullyConnectedOptionsT(asymmetricQuantizeInputs=self._int8)
        added = None if bias is None else self._tensors[bias]
        if added is not None and not self._int8:
            graph.constant(added, name=bias or "")
        starts = range(0, len(rows), block)
        for start, part in zip(starts, graph.row_blocks(rows, scales, table, block), strict=True):
            width = min(block, len(rows) - start)
            yield graph.add(
                *("FULLY_CONNECTED", x, part),
                -1 if added is None else graph.constant(added[start : start + width]),
                options=options,
                version=_INT8_FULLY_CONNECTED if self._int8 else 1,
                shape=[-1, width],
            )

    def over_tokens(self, x: int, pooling: str) -> int:
        graph = self._graph
        width = graph.width(x)
        join = schema.ConcatenationOptionsT()
        zero, two, one = map(graph.numbers, (0, 2, 1))
        cut = schema.StridedSliceOptionsT()
        rows = graph.add(
            *("STRIDED_SLICE", self._shape, zero, two, one), options=cut, shape=[2], dtype="int32"
        )
        shape = graph.add(
            *("CONCATENATION", rows, graph.numbers(width)),
            options=join,
            shape=[3],
            dtype="int32",
        )
        x = graph.add("RESHAPE", x, shape, shape=[-1, -1, width])
        if pooling == "first":
            first = graph.constant(np.array(0, np.int32))
            options = schema.GatherOptionsT(axis=1)
            return graph.add("GATHER", x, first, options=options, shape=[-1, width])
        operator = {"max": "REDUCE_MAX", "sum": "SUM", "mean": "MEAN"}[pooling]
        return graph.add(
            *(operator, x, graph.numbers(1)), options=schema.ReducerOptionsT(), shape=[-1, width]
        )

    def joined(self, parts: list[int]) -> int:
        if len(parts) == 1:
            return parts[0]
        width = sum(map(self._graph.width, parts))
        options = schema.ConcatenationOptionsT(axis=1)
        return self._graph.add("CONCATENATION", *parts, options=options, shape=[-1, width])

    def keep_originals(self) -> None:
        """Adds the weights that the graph holds in another form, for `read_tensors` alone."""
        for name in self._tensors:
            if "/query/" in name or name in self._config.in_tables:
                self._graph.constant(_stored(name, self._tensors[name]), name=name)

    def _unseen_scores(self) -> int:
        """Adds `[batch, 1, length]`, what is added to scores: 0 for tokens that others see."""
        graph, mask = self._graph, self.inputs[-1]
        cast = schema.CastOptionsT(schema.TensorType.INT32, schema.TensorType.FLOAT32)
        seen = graph.add("CAST", mask, options=cast)
        # Exactly 0 where the mask is 1, so that rows without such tokens keep their bits.
        scores = graph.add("MUL", seen, graph.constant(np.array(_UNSEEN, np.float32)))
        scores = graph.add("SUB", scores, graph.constant(np.array(_UNSEEN, np.float32)))
        axis = graph.numbers(1)
        return graph.add(
            *("EXPAND_DIMS", scores, axis), options=schema.ExpandDimsOptionsT(), shape=[-1, 1, -1]
        )

    def _cut(self, table: np.ndarray, name: str = "") -> int:
        """Adds as many rows of a table as a row of the batch has tokens."""
        graph = self._graph
        zero, one, two = map(graph.numbers, (0, 1, 2))
        cut = schema.StridedSliceOptionsT()
        length = graph.add(
            *("STRIDED_SLICE", self._shape, one, two, one), options=cut, shape=[1], dtype="int32"
        )
        rest, dtype = list(table.shape[1:]), table.dtype.name
        constant = graph.constant(table, name=name)
        return graph.add(
            *("STRIDED_SLICE", constant, zero, length, one),
            options=cut,
            shape=[-1, *rest],
            dtype=dtype,
        )

    def _rotated(self, x: int, factors: int, exchanged_factors: int) -> int:
        graph, config = self._graph, self._config
        shape = [config.num_attention_heads, -1, -1, config.head_width // 2]
        first, second = graph.add(
            *("SPLIT", graph.constant(np.array(3, np.int32)), x),
            options=schema.SplitOptionsT(2),
            outputs=2,
            shape=shape,
        )
        whole = [*shape[:3], config.head_width]
        join = schema.ConcatenationOptionsT(axis=3)
        exchanged = graph.add("CONCATENATION", second, first, options=join, shape=whole)
        exchanged = graph.add("MUL", exchanged, exchanged_factors)
        return graph.add("ADD", graph.add("MUL", x, factors), exchanged)

    def _query_key_value(self, name: str, x: int) -> list[int]:
        """Adds the three products of a layer, each `[heads, batch, length, head width]`."""
        graph, heads = self._graph, self._config.num_attention_heads
        width = self._config.head_width
        fused = fused_attention(self._tensors, name, width)
        computed = 3 * heads // self._products
        products: list[int] = []
        kernels = np.split(fused["kernel"], self._products, -1)
        biases: Sequence[np.ndarray | None] = [None] * self._products
        if "bias" in fused:
            biases = np.split(fused["bias"], self._products, -1)
        # The query's weights are scaled here, so they have no name.
        names = ("", f"{name}/key", f"{name}/value")
        for product, kernel, bias in zip(names, kernels, biases, strict=False):
            y = _product(graph, product, kernel, bias, x, self._int8)
            if self._normed:
                y = self._part_normed(y, name, part=len(products))
            y = graph.add("RESHAPE", y, self._by_head, shape=[-1, -1, computed, width])
            order = graph.numbers(2, 0, 1, 3)
            products.append(graph.add("TRANSPOSE", y, order, shape=[computed, -1, -1, width]))
        if len(products) == 3:
            return products
        first, split = graph.constant(np.array(0, np.int32)), schema.SplitOptionsT(3)
        shape = [heads, -1, -1, width]
        return list(graph.add("SPLIT", first, *products, options=split, outputs=3, shape=shape))

    def _part_normed(self, x: int, layer: str, part: int) -> int:
        """Adds the norm of queries (part 0), which are then scaled, or of keys (part 1)."""
        if part == 2:
            return x
        x = self.norm(x, f"{layer}/{('query_norm', 'key_norm')[part]}")
        if part:
            return x
        scale = np.array(query_scale(self._config.head_width))
        return self._graph.add("MUL", x, self._graph.constant(scale))


def _write_layers(graph: Graph, tensors: _Tensors, activations: Mapping[str, str]) -> None:
    """Writes a graph of some layers, each with its activation, on `x`."""
    x = graph.input("x", [-1, tensors[f"{next(iter(activations))}/kernel"].shape[0]])
    for name, activation in activations.items():
        x = _activated(graph, activation, _product(graph, *_weights(tensors, name), x))
    graph.output("y", x)


def _weights(tensors: _Tensors, name: str) -> tuple[str, np.ndarray, np.ndarray | None]:
    return name, tensors[f"{name}/kernel"], tensors.get(f"{name}/bias")


def _product(
    graph: Graph, name: str, kernel: np.ndarray, bias: np.ndarray | None, x: int, int8: bool = False
) -> int:
    """Adds `x @ kernel + bias`; weights without a name are not to be read again."""
    names = [f"{name}/{part}" if name else "" for part in ("kernel", "bias")]
    stored = _stored("/kernel", kernel)
    weights = graph.constant(*_quantized(stored)) if int8 else graph.constant(stored, name=names[0])
    return graph.add(
        "FULLY_CONNECTED",
        x,
        weights,
        -1 if bias is None else graph.constant(bias, name=names[1]),
        options=schema.FullyConnectedOptionsT(asymmetricQuantizeInputs=int8),
        version=_INT8_FULLY_CONNECTED if int8 else 1,
        shape=[-1, len(stored)],
    )


def _stored(name: str, array: np.ndarray) -> np.ndarray:
    """Returns weights of ours as LiteRT has them, or LiteRT's as ours: kernels are transposed."""
    return array.T if name.endswith("/kernel") else array


def read_tensors(path: str | Path) -> dict[str, np.ndarray]:
    """Returns the tensors that `write_litert` wrote, from its float32 file."""
    return {name: _stored(name, array) for name, array in read_arrays(path).items()}


def _activated(graph: Graph, activation: str, x: int) -> int:
    if activation == "identity":
        return x
    if activation == "silu":
        return graph.add("MUL", x, graph.add("LOGISTIC", x))
    if activation == "log1p":
        one = graph.constant(np.array(1, np.float32))
        return graph.add("LOG", graph.add("ADD", x, one))
    operator, options = _ACTIVATIONS[activation]
    return graph.add(operator, x, options=options)


def _quantized(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 rows, and the scale of each, whose products are nearest to float32 `rows`."""
    largest = np.abs(rows).max(axis=1)
    # A weight that is not finite makes the scale so, and with it the vectors, which then fail.
    scales = np.where(largest == 0, 1, largest).astype(np.float32) / np.float32(127)
    with np.errstate(invalid="ignore"):
        return np.rint(rows / scales[:, None]).astype(np.int8), scales


def load_tensors(bundle: Bundle) -> dict[str, np.ndarray]:
    """Returns the float32 weights in the names and shapes of `Bundle.tensor_shapes`."""
    bundle.verify_files([WEIGHTS])
    tensors = read_tensors(Path(bundle.path, WEIGHTS))
    if {name: array.shape for name, array in tensors.items()} != bundle.tensor_shapes():
        raise InputError(f"{bundle.path}: {WEIGHTS} holds another encoder; {AGAIN}")
    return tensors
