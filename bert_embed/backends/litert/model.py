"""Writes an encoder as LiteRT models, in float32 and with products in int8."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from bert_embed.backends.host import fused_attention, is_normed, query_scale, tail
from bert_embed.backends.litert import FILES
from bert_embed.backends.litert.file import FileGraph, ModelFile
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.encoder import EncoderConfig, Ops
from bert_embed.models.heads.multi import MultiHead

_Tensors = Mapping[str, np.ndarray]
_CALIBRATION_ROWS, _CALIBRATION_TOKENS = 16, 32
_UNSEEN = 1e9  # taken from the scores of tokens that no token sees: their softmax is exactly 0
_INT8_FULLY_CONNECTED = 12  # the operators' versions that have int8 weights
_INT8_GATHER = 2
_IDS = ([-1, -1], "int32")
# Products of a layer that read what a norm gives.
_ATTENTION, _BEHIND_NORMS = ("query", "key", "value"), ("intermediate", "gate", "up")
_ONE_WIDE = {"shape": [-1, -1, 1]}
_ACTIVATIONS = {
    "gelu": ("GELU", schema.GeluOptionsT(approximate=False)),
    "gelu_new": ("GELU", schema.GeluOptionsT(approximate=True)),
    "relu": ("RELU", None),
    "tanh": ("TANH", None),
    "sigmoid": ("LOGISTIC", None),
}


def write_litert(folder: str, bundle: Bundle, tensors: _Tensors) -> None:
    """Writes a file for each precision into the folder.

    Each has these signatures, of rows without padding:
        hidden_states: `input_ids` and `type_ids`, int32 `[batch, length]`, to float32
            `[batch * length, hidden]` each, the embeddings and the layers in order.
        pooler: `x` float32 `[rows, hidden]`, last states of [CLS], to the pooler's output.
        modules: `x` float32 `[rows, in_features]` through all modules behind the pooling.
        token_modules: `x` float32 `[batch, length, hidden]` through all modules before it.
        sparse, multi, scores: `x` float32 `[batch, length, hidden]`, last states, to `Head.graph`.
            `cut_model` alone gives those of kinds that are `Bundle.heads_apart`.

    In int8, weights of layers have a scale for each output of a product, behind norms with
    channels balanced by `channel_factors`. Activations become int8
    when the model runs, with a scale for each token, so a vector depends only on its own row. All
    but the layers' products and the word embeddings is float32. No calibration is necessary.
    Models without segment embeddings do not read `type_ids`.
    """
    config = bundle.config
    multi = bundle.heads.get("multi")
    masked = isinstance(multi, MultiHead) and multi.needs_mask
    widths = {"pooler": config.hidden_size} if bundle.has_pooler else {}
    widths |= {"modules": bundle.dense[0].in_features} if bundle.dense else {}
    inputs = {name: {"x": ([-1, width], "float32")} for name, width in widths.items()}
    states = {"x": ([-1, -1, config.hidden_size], "float32")}
    inputs |= dict.fromkeys(
        (*bundle.heads, *(["token_modules"] if bundle.token_dense else [])), states
    )
    ids = dict.fromkeys(("input_ids", "type_ids", *(["mask"] if masked else [])), _IDS)
    for precision, name in FILES.items():
        file, int8 = ModelFile(), precision == "int8"
        graph = file.graph("hidden_states")
        sizes = channel_sizes(config, tensors) if int8 else None
        ops = _LiteRTOps(graph, config, tensors, int8, ids, sizes)
        for number, state in enumerate(config.hidden_states(ops, *ops.inputs[:2])):
            graph.output(f"layer_{number}", state)
        for signature, taken in inputs.items():
            graph = file.graph(signature, signature in bundle.heads_apart)
            ops = _LiteRTOps(graph, config, tensors, int8 and signature in bundle.heads, taken)
            graph.output("y", tail(bundle, ops, signature, *ops.inputs))
        file.write(Path(folder, name))


class _LiteRTOps(Ops):
    """`Ops` for rows without padding; `[heads, batch, length, head width]` within the attention."""

    def __init__(
        self,
        graph: FileGraph,
        config: EncoderConfig,
        tensors: _Tensors,
        int8: bool,
        inputs: Mapping[str, tuple[list[int], str]],
        sizes: _Tensors | None = None,
    ) -> None:
        """Adds inputs, with their shapes and types: ids and a mask, or "x".

        In int8 layers need the `channel_sizes` of their norms.
        """
        self._graph, self._config, self._int8, self._sizes = graph, config, int8, sizes or {}
        self._tensors, self._tables = tensors, config.tables(tensors)
        # Of outputs of norms: their names, and what products of a layer read instead of them.
        self.norms: dict[int, str] = {}
        self._balanced: dict[tuple[int, str], int] = {}
        # In how many products a layer computes query, key and value. In int8 each would make `x`
        # int8 anew; in float32, XNNPACK computes three in 0.96 of the time of one, with the same
        # bits. Norms of queries and keys take each by itself.
        self._normed = is_normed(tensors, config.layer_names[0])
        self._products = 1 if int8 and not self._normed else 3
        self._last_axis = graph.numbers(-1)
        self._flat = graph.numbers(-1, config.hidden_size)
        self._epsilon = graph.constant(np.array(config.layer_norm_eps, np.float32))
        self.inputs = tuple(graph.input(name, *kind) for name, kind in inputs.items())
        size, rank = schema.ShapeOptionsT(2), len(next(iter(inputs.values()))[0])
        shape = graph.add("SHAPE", self.inputs[0], options=size, shape=[rank], dtype="int32")
        self._shape = shape
        self._unseen = self._unseen_scores() if "mask" in inputs else None
        if "x" in inputs:
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
            return graph.add("GATHER", graph.constant(rows, key=table), ids, **gather)
        # A scale for each row, which LiteRT's own int8 tables cannot have.
        values, scales = _quantized(rows)
        int8 = gather | {"version": _INT8_GATHER, "dtype": "int8"}
        x = graph.add("GATHER", graph.constant(values, key=table), ids, **int8)
        cast = schema.CastOptionsT(schema.TensorType.INT8, schema.TensorType.FLOAT32)
        x = graph.add("CAST", x, options=cast)
        scale = graph.add("GATHER", graph.constant(scales[:, None]), ids, **gather | _ONE_WIDE)
        return graph.add("MUL", x, scale)

    def first_rows(self, table: str) -> int:
        return self._cut(self._tables[table] if table in self._tables else self._tensors[table])

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
        graph = self._graph
        if activation == "silu":
            return graph.add("MUL", x, graph.add("LOGISTIC", x))
        if activation == "log1p":
            one = graph.constant(np.array(1, np.float32))
            return graph.add("LOG", graph.add("ADD", x, one))
        operator, options = _ACTIVATIONS[activation]
        return graph.add(operator, x, options=options)

    def norm(self, x: int, name: str, epsilon: float | None = None) -> int:
        graph, axis, added = self._graph, self._last_axis, self._epsilon
        if epsilon is not None:
            added = graph.constant(np.array(epsilon, np.float32))
        mean = {"options": schema.ReducerOptionsT(keepDims=True), "shape": [-1, 1]}
        centred = graph.add("SUB", x, graph.add("MEAN", x, axis, **mean))
        variance = graph.add("MEAN", graph.add("MUL", centred, centred), axis, **mean)
        factor = graph.add("RSQRT", graph.add("ADD", variance, added))
        x = graph.add("MUL", centred, factor)
        gamma, *beta = (
            graph.constant(self._tensors[key])
            for key in (f"{name}/gamma", f"{name}/beta")
            if key in self._tensors
        )
        x = graph.add("MUL", x, gamma)
        x = graph.add("ADD", x, *beta) if beta else x
        self.norms[x] = name
        return x

    def product(self, x: int, name: str) -> int:
        int8 = self._int8 and name.startswith("layers/")
        kernel, bias = self._tensors[f"{name}/kernel"], self._tensors.get(f"{name}/bias")
        layer, _, part = name.rpartition("/")
        if int8 and part in _BEHIND_NORMS:
            x, kernel = self._with_balance(x, kernel, layer, _BEHIND_NORMS)
        return _product(self._graph, kernel, bias, x, int8)

    def _with_balance(
        self, x: int, kernel: np.ndarray, layer: str, parts: Sequence[str]
    ) -> tuple[int, np.ndarray]:
        """Returns what gives `x @ kernel`, with channels of like size for int8.

        All products `parts` of a layer have the factors of `channel_factors`, where a norm gives
        `x`.
        """
        norm, tensors = self.norms.get(x), self._tensors
        if norm is None:
            return x, kernel
        names = [f"{layer}/{part}/kernel" for part in parts]
        kernels = [tensors[name] for name in names if name in tensors]
        factors = channel_factors(self._sizes[norm], kernels)
        key = x, names[0]
        if key not in self._balanced:
            self._balanced[key] = self._graph.add("MUL", x, self._graph.constant(1 / factors))
        return self._balanced[key], kernel * factors[:, None]

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

    def sighted(self, reach: int) -> int | None:
        if self._unseen is None:
            return None
        graph, options = self._graph, schema.ReducerOptionsT(keepDims=True)
        cast = schema.CastOptionsT(schema.TensorType.INT32, schema.TensorType.FLOAT32)
        seen = graph.add("CAST", self.inputs[-1], options=cast)
        most = graph.add("SUM", seen, graph.numbers(1), options=options, shape=[-1, 1])
        most = graph.add("ADD", most, graph.constant(np.array(reach, np.float32)))
        places = self._cut(np.arange(self._config.max_position_embeddings, dtype=np.float32))
        # At least 1 for a token that sees one, and at most 0 for another
        near = graph.add("RELU", graph.add("SUB", most, places, shape=[-1, -1]))
        near = graph.add("MINIMUM", near, graph.constant(np.array(1, np.float32)))
        return graph.add("RESHAPE", near, graph.numbers(-1, 1), shape=[-1, 1])

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
        scales = None
        if self._int8:
            rows, scales = _quantized(rows)
        options = schema.FullyConnectedOptionsT(asymmetricQuantizeInputs=self._int8)
        added = None if bias is None else self._tensors[bias]
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
            *("CONCATENATION", rows, graph.numbers(width)), options=join, shape=[3], dtype="int32"
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

    def _cut(self, table: np.ndarray) -> int:
        """Adds as many rows of a table as a row of the batch has tokens."""
        graph = self._graph
        zero, one, two = map(graph.numbers, (0, 1, 2))
        cut = schema.StridedSliceOptionsT()
        length = graph.add(
            *("STRIDED_SLICE", self._shape, one, two, one), options=cut, shape=[1], dtype="int32"
        )
        rest, dtype = list(table.shape[1:]), table.dtype.name
        return graph.add(
            *("STRIDED_SLICE", graph.constant(table), zero, length, one),
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
        if self._int8:
            x, fused["kernel"] = self._with_balance(x, fused["kernel"], name, _ATTENTION)
        products: list[int] = []
        kernels = np.split(fused["kernel"], self._products, -1)
        biases: Sequence[np.ndarray | None] = [None] * self._products
        if "bias" in fused:
            biases = np.split(fused["bias"], self._products, -1)
        for kernel, bias in zip(kernels, biases, strict=True):
            y = _product(graph, kernel, bias, x, self._int8)
            if self._normed and len(products) < 2:  # queries, which are then scaled, and keys
                y = self.norm(y, f"{name}/{_ATTENTION[len(products)]}_norm")
                if not products:
                    y = graph.add("MUL", y, graph.constant(np.array(query_scale(width))))
            y = graph.add("RESHAPE", y, self._by_head, shape=[-1, -1, computed, width])
            order = graph.numbers(2, 0, 1, 3)
            products.append(graph.add("TRANSPOSE", y, order, shape=[computed, -1, -1, width]))
        if len(products) == 3:
            return products
        first, split = graph.constant(np.array(0, np.int32)), schema.SplitOptionsT(3)
        shape = [heads, -1, -1, width]
        return list(graph.add("SPLIT", first, *products, options=split, outputs=3, shape=shape))


def _product(
    graph: FileGraph, kernel: np.ndarray, bias: np.ndarray | None, x: int, int8: bool = False
) -> int:
    rows = kernel.T  # as LiteRT has them
    return graph.add(
        "FULLY_CONNECTED",
        x,
        graph.constant(*_quantized(rows)) if int8 else graph.constant(rows),
        -1 if bias is None else graph.constant(bias),
        options=schema.FullyConnectedOptionsT(asymmetricQuantizeInputs=int8),
        version=_INT8_FULLY_CONNECTED if int8 else 1,
        shape=[-1, len(rows)],
    )


def channel_sizes(config: EncoderConfig, tensors: _Tensors) -> dict[str, np.ndarray]:
    """Returns the largest number of each channel of norms, float32 `[channels]`, by their names.

    It is that of rows of random ids: the channels that are largest are so whatever the text is.
    """
    file = ModelFile()
    graph = file.graph("sizes")
    ops = _LiteRTOps(graph, config, tensors, False, dict.fromkeys(("input_ids", "type_ids"), _IDS))
    for _ in config.hidden_states(ops, *ops.inputs):
        pass  # adds its operations
    for x, name in ops.norms.items():
        reduce = {"options": schema.ReducerOptionsT(), "shape": [graph.width(x)]}
        largest = graph.add("REDUCE_MAX", graph.add("ABS", x), graph.numbers(0), **reduce)
        graph.output(name, largest)
    shape = _CALIBRATION_ROWS, min(_CALIBRATION_TOKENS, config.max_position_embeddings)
    ids = np.random.default_rng(0).integers(config.vocab_size, size=shape, dtype=np.int32)
    with TemporaryDirectory() as folder:
        file.write(Path(folder, "sizes"))
        run = Interpreter(str(Path(folder, "sizes"))).get_signature_runner("sizes")
        return run(input_ids=ids, type_ids=ids * 0)


def channel_factors(sizes: np.ndarray, kernels: Sequence[np.ndarray]) -> np.ndarray:
    """Returns by what each channel is divided, and rows of kernels that read it are multiplied.

    float32 `[channels]`: roots of a channel's size over the largest of its weights, as SmoothQuant
    has them (Xiao et al., 2022), so that both lose little where they become int8. They are rounded
    to a quarter of an octave, so that last bits of processors do not decide.
    """
    largest = np.abs(np.concatenate(kernels, axis=1)).max(axis=1)
    with np.errstate(all="ignore"):
        quarters = np.rint(2 * np.log2(sizes / largest))
    return np.exp2(np.where(np.isfinite(quarters), quarters, 0) / 4).astype(np.float32)


def _quantized(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 rows, and the scale of each, whose products are nearest to float32 `rows`."""
    largest = np.abs(rows).max(axis=1)
    # A weight that is not finite makes the scale so, and with it the vectors, which then fail.
    scales = np.where(largest == 0, 1, largest).astype(np.float32) / np.float32(127)
    with np.errstate(invalid="ignore"):
        return np.rint(rows / scales[:, None]).astype(np.int8), scales
