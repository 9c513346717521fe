"""Computes what a call asks for of packed rows: an encoder's graph in JAX, and the pooling.

Weights are arguments, so that a program is compiled once for all models of its sizes. Numbers are
float32; those of products are in the precision of their weights.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from itertools import islice, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

from bert_embed.backends.host import (
    ArrayOps,
    Wanted,
    combine_layers,
    fused_attention,
    graph_tensors,
    is_normed,
    query_scale,
)
from bert_embed.backends.jax.kernels import UNSEEN, flash_attention
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.head import Head
from bert_embed.models.modules import OF_TOKENS, Module, modules_graph
from bert_embed.settings import VectorSpec

_LEAST = -1e30  # below every number, so that what does not count is never the maximum
_FEW = 512  # rows of a table, up to which a TPU is faster by a product than by a gather
# How queries, keys and values are laid out: rows b, heads h, their width d, tokens l. With tokens
# side by side a TPU lays out nothing anew; a GPU has fewer kernels with heads side by side.
_OF_TPU, _OF_OTHERS = "bhdl", "blhd"
_FINITE = 80.0  # a score whose exponential, and the sum of a row of them, a float32 can hold
_LEAST_SUM = 1e-30  # of exponentials: of a smaller one, some are cut off
# GELU is x / (1 + 2^(x P(x^2))) within 1.8e-5, for every x: P is below 0 everywhere.
_GELU = (-2.00973102e-06, 5.73460453e-05, 6.06733153e-04, -0.105920866, -2.30152712)
_FIRST_OF_ROW = 2  # texts of a row that are in the first part of a batch's
# Of a sparse head: texts whose products are made at once, and the tokens of each.
_TEXTS, _TOKENS = 64, 16
_HIGHEST = jax.lax.Precision.HIGHEST
_ATTENTION = ("query", "key", "value")
_JOINED = "query_key_value"  # a layer's three products side by side, for one kernel of attention
Weights = Mapping[str, jax.Array]


def program(
    wanted: Wanted,
    heads: Mapping[str, Head],
    token_modules: Sequence[Module],
    weights: Weights,
    ids: jax.Array,
    types: jax.Array,
    unseen: jax.Array | None,
    lengths: jax.Array,
    exact: bool = False,
    in_parts: bool = True,
) -> dict[str, dict[str, Any]]:
    """Runs the encoder up to the highest layer that is used, pools, and applies heads.

    `ids`, `types` and `unseen`, 1 for tokens that no other sees (None: there are none), are int32
    `[rows, length]`; `lengths`, int32 `[rows, texts]`, are the tokens of each text of a row, 0 for
    none. Returns float32 arrays by the names of `bert_embed.backends.protocol.Graph`: of "tokens"
    `[rows, length, width]`, of "texts" a tuple of parts, `[rows * texts of a part, width]` (one,
    not `in_parts`), and of "largest", a sparse head's texts, one of `parts_of_places`. Not `exact`,
    a TPU may find none for a text that has some: see `_exponentials`.
    """
    spec, output_spec, config = wanted.spec, wanted.output_spec, wanted.config
    layout = _PackedTexts(lengths, ids.shape[1])
    ops = _PackedOps(config, weights, layout, unseen, exact)
    layers = config.hidden_states(ops, ids, types)
    states = {
        number: state.astype(jnp.float32)
        for number, state in enumerate(islice(layers, max(wanted.layers) + 1))
    }
    outputs: dict[str, dict[str, Any]] = {"texts": {}, "largest": {}, "tokens": {}}
    for kind in output_spec.heads:
        head = heads[kind]
        output = head.graph(ops, states[config.num_hidden_layers])
        output = jax.tree.map(lambda x: x.astype(jnp.float32), output)
        of_texts = "largest" if isinstance(output, tuple) else "texts"
        outputs["tokens" if head.per_token else of_texts][kind] = output
    if output_spec.tokens:
        chosen = [states[number] for number in spec.token_layer_numbers(config)]
        outputs["tokens"]["tokens"] = ops.joined(_combined(spec, chosen))
    if output_spec.sentences:
        chosen = [states[number] for number in spec.layer_numbers(config)]
        outputs["texts"]["sentences"] = _sentences(wanted, token_modules, ops, layout, ids, chosen)
    for name, texts in outputs["texts"].items():
        ends = _parts(texts.shape[1], _FIRST_OF_ROW if in_parts else texts.shape[1])
        outputs["texts"][name] = tuple(
            texts[:, start:end].reshape(-1, texts.shape[-1]) for start, end in pairwise(ends)
        )
    return outputs


def _parts(count: int, first: int) -> list[int]:
    """Returns where parts begin and, at last, end: each is as large as all before it.

    The texts of a batch are in the first ones, so that a host fetches little for nothing.
    """
    ends = [count]
    while ends[0] > first:
        ends.insert(0, -(-ends[0] // 2))
    return [0, *ends]


def parts_of_places(count: int) -> list[int]:
    """Returns where the parts of a sparse head's output begin and, at last, end.

    Its rows are `count` places of texts, the longest texts first, and some that no place has.
    """
    return [_TEXTS * turn for turn in _parts(-(-count // _TEXTS), 4)]


def as_written(place: Sharding) -> dict[str, Any]:
    """Returns how `program` has its outputs in memory.

    Texts lie one after another, as they are found: a TPU would exchange rows and columns else.
    """
    rows = Format(Layout((0, 1)), place)
    return {"texts": rows, "largest": rows, "tokens": place}


class _PackedTexts:
    def __init__(self, lengths: jax.Array, length: int) -> None:
        ends = jnp.cumsum(lengths, axis=1)
        self.starts, self.lengths, self.length = ends - lengths, lengths, length
        place = jnp.arange(length)
        # int32 `[rows, length]`: the number of a token's text, behind the last one for padding.
        self.text = (place[None, :, None] >= ends[:, None]).sum(axis=-1)
        # float32 `[rows, texts, length]`: 1 for the tokens of a text.
        self.of_text = (self.text[:, None] == jnp.arange(lengths.shape[1])[:, None]).astype(
            jnp.float32
        )
        started = jnp.where(
            self.text[..., None] > jnp.arange(lengths.shape[1]), lengths[:, None], 0
        )
        self.position = place - started.sum(axis=-1)

    @cached_property
    def spans(self) -> tuple[jax.Array, jax.Array]:
        """int32 `[rows, length]`: the first place of a token's text, and that behind the last."""
        starts = jnp.arange(self.length) - self.position
        sizes = jnp.pad(self.lengths, ((0, 0), (0, 1)))  # that of padding is not known
        ends = starts + jnp.take_along_axis(sizes, self.text, axis=1)
        return starts, jnp.where(self.text < self.lengths.shape[1], ends, self.length)

    def at(self, x: jax.Array, place: jax.Array) -> jax.Array:
        """Returns `[rows, texts, width]`: of each text the token at int32 `[rows, texts]`."""
        return jnp.take_along_axis(x, jnp.clip(place, 0, self.length - 1)[..., None], axis=1)

    def sum(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """Returns `[rows, texts, width]` of `[rows, length, width]` and `[rows, length]`."""
        return jnp.einsum("rtl,rlw->rtw", self.of_text * weights[:, None], x, precision=_HIGHEST)

    def count(self, weights: jax.Array) -> jax.Array:
        """Returns `[rows, texts, 1]`: the sum of each text's weights, and 1 where it is 0."""
        total = (self.of_text * weights[:, None]).sum(axis=-1, keepdims=True)
        return jnp.where(total > 0, total, 1.0)

    def max(self, x: jax.Array, counted: jax.Array) -> jax.Array:
        """Returns `[rows, texts, width]`: the largest number among the tokens that count."""

        def of_text(number: jax.Array) -> jax.Array:
            inside = (self.text == number) & (counted > 0)
            return jnp.where(inside[..., None], x, _LEAST).max(axis=1)

        # One text of each row at a time: all of them at once would be as many copies of `x`.
        return jnp.moveaxis(jax.lax.map(of_text, jnp.arange(self.lengths.shape[1])), 0, 1)


def _combined(spec: VectorSpec, states: Sequence[jax.Array]) -> list[jax.Array]:
    return combine_layers(jnp, states, spec.layer_combine, spec.layer_weights)


def _sentences(
    wanted: Wanted,
    token_modules: Sequence[Module],
    ops: "_PackedOps",
    layout: _PackedTexts,
    ids: jax.Array,
    states: Sequence[jax.Array],
) -> jax.Array:
    """Returns `[rows, texts, pooled width]`; see `bert_embed.backends.host.pool`."""
    spec = wanted.spec
    if spec.pooling == "pooler":
        first = layout.at(states[-1], layout.starts)
        return jnp.tanh(ops.product(first, "pooler").astype(jnp.float32))
    whole = (layout.text < layout.lengths.shape[1]).astype(jnp.float32)
    counted = whole
    if not spec.pool_special_tokens:
        counted *= ~jnp.isin(ids, jnp.asarray(wanted.special_ids))
    if wanted.head and not spec.pool_prompt:
        counted *= layout.position >= wanted.head
    if counted is not whole:  # all tokens count where none would
        some = (layout.of_text * counted[:, None]).max(axis=-1)  # `[rows, texts]`
        counts = jnp.einsum("rtl,rt->rl", layout.of_text, some, precision=_HIGHEST)
        counted = jnp.where(counts > 0, counted, whole)
    layers = _combined(spec, states)
    if spec.token_dense:
        layers = [
            modules_graph(token_modules, ops, layer, OF_TOKENS).astype(jnp.float32)
            for layer in layers
        ]
    pooled = [
        _POOLINGS[pooling](layout, layer, counted) for layer in layers for pooling in spec.poolings
    ]
    return jnp.concatenate(pooled, axis=-1)


def _mean(layout: _PackedTexts, states: jax.Array, counted: jax.Array) -> jax.Array:
    return layout.sum(states, counted) / layout.count(counted)


_POOLINGS: dict[str, Callable[[_PackedTexts, jax.Array, jax.Array], jax.Array]] = {
    "mean": _mean,
    "max": _PackedTexts.max,
    "mean_sqrt_len": lambda texts, x, counted: (
        texts.sum(x, counted) / jnp.sqrt(texts.count(counted))
    ),
    "weightedmean": lambda texts, x, counted: _mean(texts, x, counted * (texts.position + 1)),
    "cls": lambda texts, x, _: texts.at(x, texts.starts),
    "sep": lambda texts, x, _: texts.at(x, texts.starts + texts.lengths - 1),
    "lasttoken": lambda texts, x, counted: texts.at(x, _last_counted(texts, counted)),
}


def _last_counted(layout: _PackedTexts, counted: jax.Array) -> jax.Array:
    places = (counted > 0) * jnp.arange(layout.length)
    return (layout.of_text * places[:, None]).max(axis=-1).astype(jnp.int32)


def program_weights(
    bundle: Bundle, tensors: Mapping[str, np.ndarray], dtype: Any, joined: bool = False
) -> dict[str, np.ndarray]:
    """Returns what programs read: queries scaled, tables added, products' weights in `dtype`.

    With `joined` programs use `bert_embed.backends.jax.kernels`.
    """
    arrays = graph_tensors(bundle, tensors)
    if joined:
        arrays = joined_products(arrays, bundle.config.head_width)
    for name, array in arrays.items():
        layer, _, module = name.rpartition("/")[0].rpartition("/")
        if module == "query" and not is_normed(tensors, layer):
            array = array * query_scale(bundle.config.head_width)
        arrays[name] = array.astype(weight_type(name, dtype))
    return arrays | bundle.config.tables(tensors)


def joined_products(tensors: Mapping[str, np.ndarray], head_width: int) -> dict[str, np.ndarray]:
    """Returns tensors with the queries, keys and values of each layer side by side, scaled."""
    found = dict(tensors)
    for layer in [
        name.removesuffix("/query/kernel") for name in tensors if name.endswith("/query/kernel")
    ]:
        for part, array in fused_attention(tensors, layer, head_width).items():
            found[f"{layer}/{_JOINED}/{part}"] = array
            for module in _ATTENTION:
                del found[f"{layer}/{module}/{part}"]
    return found


def weight_type(name: str, dtype: Any) -> Any:
    """Returns the number type of a tensor in programs whose products are in `dtype`.

    So is the table of words: gathers are quick from where a TPU's cores are, if it fits there.
    """
    short = name.endswith(("/kernel", "/bias")) or name == "embeddings/word"
    return dtype if short else np.float32


class _Added(NamedTuple):
    """What is added to the scores of two tokens by their distance."""

    scores: jax.Array  # float32 `[1, heads or 1, length, length]`
    reach: int | None  # if that is nothing but who is seen: up to how many places away


class _PackedOps(ArrayOps):
    """The operations of `bert_embed.models.encoder.Ops` on `[rows, length, width]` throughout.

    `flat` changes nothing: TPUs lay out `[tokens, width]` anew before every attention. Tokens see
    only tokens of their own text.
    """

    def __init__(
        self,
        config: EncoderConfig,
        weights: Weights,
        layout: _PackedTexts,
        unseen: jax.Array | None,
        exact: bool,
    ) -> None:
        super().__init__(jnp, config, weights)
        self._layout, self._exact = layout, exact
        self._dtype = next(
            array.dtype for name, array in weights.items() if name.endswith("/kernel")
        )
        self._has_kernels = any(f"/{_JOINED}/" in name for name in weights)
        self._gated = any("/gate/" in name for name in weights)
        self._short = self._has_kernels and self._dtype.itemsize == 2
        precision = _HIGHEST if self._dtype == jnp.float32 else None
        self._einsum = partial(jnp.einsum, precision=precision)
        self._text_of_keys = layout.text  # int32 `[rows, length]`, of unseen tokens no text's
        if unseen is not None:
            self._text_of_keys = jnp.where(unseen > 0, -2, layout.text)
        seen = layout.text[:, :, None] == self._text_of_keys[:, None]
        self._seen = seen[:, None]  # bool `[rows, 1, length, length]`

    def gather(self, table: str, ids: jax.Array) -> jax.Array:
        rows = self.weights[table]
        if len(rows) == 2:  # a choice costs less than a gather
            return jnp.where(ids[..., None] > 0, rows[1], rows[0])
        return _at(rows, ids)

    def first_rows(self, table: str) -> jax.Array:
        """See `Ops.first_rows`; `[rows, length, width]`, because positions start with each text."""
        rows, length = self.weights[table], self._layout.length
        position = jnp.minimum(self._layout.position, len(rows) - 1)
        if length > _FEW:
            return _at(rows, position)
        chosen = partial(_chosen, count=min(length, len(rows)))
        return _by_platform(tpu=chosen, others=_at)(rows, position)

    def flat(self, x: jax.Array) -> jax.Array:
        return x

    def add(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y.astype(x.dtype)

    def activated(self, x: jax.Array, activation: str) -> jax.Array:
        if self._short and activation in ("gelu", "gelu_new"):
            return gelu(x, activation, self._gated)
        return super().activated(x.astype(jnp.float32), activation).astype(x.dtype)

    def norm(self, x: jax.Array, name: str, epsilon: float | None = None) -> jax.Array:
        in_two_passes = partial(super().norm, name=name, epsilon=epsilon)
        x = x.astype(jnp.float32)
        if self._dtype == jnp.float32:
            return in_two_passes(x)
        in_one_pass = partial(self._norm_in_one_pass, name=name, epsilon=epsilon)
        return _by_platform(tpu=in_one_pass, others=in_two_passes)(x)

    def _norm_in_one_pass(self, x: jax.Array, name: str, epsilon: float | None) -> jax.Array:
        """Mean and variance at once: what that rounds is far below what products have rounded."""
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        mean = x.mean(axis=-1, keepdims=True)
        variance = jnp.maximum((x * x).mean(axis=-1, keepdims=True) - mean * mean, 0.0)
        x = (x - mean) * jax.lax.rsqrt(variance + epsilon)
        x, beta = x * self.weights[f"{name}/gamma"], self.weights.get(f"{name}/beta")
        return x if beta is None else x + beta

    def product(self, x: jax.Array, name: str) -> jax.Array:
        kernel, bias = self.weights[f"{name}/kernel"], self.weights.get(f"{name}/bias")
        x = self._einsum("...i,io->...o", x.astype(kernel.dtype), kernel)
        return x if bias is None else x + bias

    def by_distance(self, table: str) -> _Added:
        # Within a text, places differ as positions do. Of other texts any column does.
        rows, places = self.weights[table], np.arange(self._layout.length)
        middle = rows.shape[1] // 2
        columns = np.clip(middle + places[None] - places[:, None], 0, rows.shape[1] - 1)
        return _Added(rows[:, columns][None], self.config.reaches.get(table))

    def sighted(self, reach: int) -> jax.Array | None:
        layout = self._layout
        if self._text_of_keys is layout.text:
            return None
        seen = layout.count((self._text_of_keys == layout.text).astype(jnp.float32))[..., 0]
        most = jnp.einsum("rtl,rt->rl", layout.of_text, seen, precision=_HIGHEST) + reach
        return (layout.position < most).astype(jnp.float32)[..., None]

    def attention(
        self,
        x: jax.Array,
        layer: str,
        added: _Added | None = None,
        rotation: tuple[jax.Array, jax.Array] | None = None,
    ) -> jax.Array:
        if self._has_kernels:
            return self._joined_attention(layer, added, rotation, x)
        of_tpu, of_others = (
            partial(self._attention, layout, layer, added and added.scores, rotation)
            for layout in (_OF_TPU, _OF_OTHERS)
        )
        return _by_platform(tpu=of_tpu, others=of_others)(x)

    def _attention(
        self,
        layout: str,
        layer: str,
        added: jax.Array | None,
        rotation: tuple[jax.Array, jax.Array] | None,
        x: jax.Array,
    ) -> jax.Array:
        query, key, value = (self._heads(layout, x, layer, name) for name in _ATTENTION)
        if rotation is not None:
            query, key = (_rotated(layout, part, *rotation) for part in (query, key))
        of_keys = layout.replace("l", "m")
        scores = self._einsum(
            f"{layout},{of_keys}->bhlm", query, key, preferred_element_type=jnp.float32
        )
        scores = jnp.where(self._seen, scores if added is None else scores + added, UNSEEN)
        if layout == _OF_TPU and not self._exact:
            weights, share = _exponentials(scores, query, key, added)
        else:
            weights, share = jax.nn.softmax(scores).astype(value.dtype), None
        mixed = self._einsum(
            f"bhlm,{of_keys}->blhd",
            weights,
            value,
            preferred_element_type=None if share is None else jnp.float32,
        )
        if share is not None:
            mixed = mixed * jnp.einsum("bhl->blh", share)[..., None]
        return mixed.astype(value.dtype).reshape(*x.shape[:2], -1)

    def _joined_attention(
        self,
        layer: str,
        added: _Added | None,
        rotation: tuple[jax.Array, jax.Array] | None,
        x: jax.Array,
    ) -> jax.Array:
        heads, layout = self.config.num_attention_heads, self._layout
        split = *x.shape[:2], -1, self.config.head_width
        joined = self.product(x, f"{layer}/{_JOINED}")
        parts = [(joined.reshape(split), number * heads) for number in range(len(_ATTENTION))]
        for number, name in enumerate(_ATTENTION[:2]):
            if rotation is None and not is_normed(self.weights, layer):
                break
            part = jnp.split(joined, len(_ATTENTION), axis=-1)[number]
            part = self._normed(part, layer, name).astype(joined.dtype).reshape(split)
            parts[number] = part if rotation is None else _rotated("blhd", part, *rotation), 0
        scores, reach = added or (None, None)
        found = flash_attention(
            parts,
            heads,
            layout.text,
            self._text_of_keys,
            layout.spans,
            scores if reach is None else None,
            reach,
        )
        return found.reshape(*x.shape[:2], -1)

    def _heads(self, layout: str, x: jax.Array, layer: str, name: str) -> jax.Array:
        module, config = f"{layer}/{name}", self.config
        split = config.num_attention_heads, config.head_width
        if layout == _OF_TPU and (name == "value" or not is_normed(self.weights, layer)):
            kernel, bias = self.weights[f"{module}/kernel"], self.weights.get(f"{module}/bias")
            x = self._einsum("bli,ihd->bhdl", x.astype(kernel.dtype), kernel.reshape(-1, *split))
            return x if bias is None else x + bias.reshape(*split, 1)
        x = self._normed(self.product(x, module), layer, name)
        return jnp.einsum(f"blhd->{layout}", x.astype(self._dtype).reshape(*x.shape[:2], *split))

    def _normed(self, x: jax.Array, layer: str, name: str) -> jax.Array:
        """Returns queries, keys or values, of all heads together, behind their norm, if any."""
        if name == "value" or not is_normed(self.weights, layer):
            return x
        x = self.norm(x, f"{layer}/{name}_norm")
        return x * query_scale(self.config.head_width) if name == "query" else x

    def with_rows(self, x: jax.Array, rows: jax.Array) -> jax.Array:
        x, rows = x.astype(self._dtype), rows.astype(self._dtype)
        return self._einsum("...i,oi->...o", x, rows).astype(jnp.float32)

    def largest_against(
        self, x: jax.Array, table: str, bias: str | None, block: int
    ) -> tuple[jax.Array, ...]:
        """See `Ops.largest_against`; `[texts, rows of the table]` each, by `parts_of_places`.

        Texts come some at a time, the longest first, and of each a few tokens at a time: a TPU
        finds the largest products as it makes them, and places without a text cost nothing.
        """
        rows, lengths = self.weights[table].astype(self._dtype), self._layout.lengths.ravel()
        starts = (self._layout.starts + x.shape[1] * jnp.arange(len(x))[:, None]).ravel()
        states, count = x.astype(self._dtype).reshape(-1, x.shape[-1]), len(lengths)
        order = jnp.argsort(-lengths)
        order = jnp.pad(order, (0, -count % _TEXTS), constant_values=count)  # no place
        # Which maxima keep what is not a number is each compiler's own affair.
        spoiled = jnp.repeat(jnp.isnan(x[:, :, 0]).any(axis=1), count // len(x))

        def of_texts(turn: jax.Array, found: jax.Array, first: int) -> jax.Array:
            places = jax.lax.dynamic_slice(order, [turn * _TEXTS], [_TEXTS])
            start, length = (part.at[places].get(mode="clip") for part in (starts, lengths))

            def of_tokens(step: jax.Array, most: jax.Array) -> jax.Array:
                ahead = step * _TOKENS + jnp.arange(_TOKENS)
                # A text's last token comes again behind it, which changes no maximum.
                ahead = jnp.minimum(ahead, jnp.maximum(length - 1, 0)[:, None])
                some = states.at[start[:, None] + ahead].get(mode="clip")
                return jnp.maximum(most, self._einsum("tni,oi->tno", some, rows).max(axis=1))

            least = jnp.full((_TEXTS, len(rows)), _LEAST, self._dtype)
            steps = (length[0] + _TOKENS - 1) // _TOKENS
            most = jax.lax.fori_loop(0, steps, of_tokens, least).astype(jnp.float32)
            most = most if bias is None else most + self.weights[bias]
            most = jnp.where(spoiled.at[places].get(mode="clip")[:, None], jnp.nan, most)
            return jax.lax.dynamic_update_slice(found, most, [turn * _TEXTS - first, 0])

        turns = ((lengths > 0).sum() + _TEXTS - 1) // _TEXTS
        return tuple(
            jax.lax.fori_loop(
                first // _TEXTS,
                jnp.minimum(turns, last // _TEXTS),
                partial(of_texts, first=first),
                jax.lax.empty((last - first, len(rows)), jnp.float32),
            )
            for first, last in pairwise(parts_of_places(count))
        )

    def over_tokens(self, x: jax.Array, pooling: str) -> jax.Array:
        """See `Ops.over_tokens`; `[rows, texts, width]`."""
        x, layout = x.astype(jnp.float32), self._layout
        if pooling == "first":
            return layout.at(x, layout.starts)
        everything = jnp.ones(x.shape[:2], jnp.float32)
        if pooling == "max":
            return layout.max(x, everything)
        return (_mean if pooling == "mean" else _PackedTexts.sum)(layout, x, everything)


def gelu(x: jax.Array, activation: str, gated: bool) -> jax.Array:
    """Returns "gelu" or "gelu_new" of a product in 16 bits, for GPUs.

    The form with tanh, which "gelu_new" is, cuBLAS computes while it makes the product, of numbers
    that are not rounded yet. So in bfloat16, where exact GELU of rounded numbers is no nearer to
    that of float32, it stands for "gelu", too, within 5e-4. In float16, which rounds by an eighth
    of that, and of gates, which XLA multiplies by, "gelu" is within 2e-5 and takes half the
    operations that XLA's, exact to float32, does.
    """
    if activation == "gelu_new" or (x.dtype == jnp.bfloat16 and not gated):
        return jax.nn.gelu(x, approximate=True)
    wide = x.astype(jnp.float32)
    square = wide * wide
    polynomial = reduce(lambda found, factor: found * square + factor, _GELU)
    return (wide / (1 + jnp.exp2(wide * polynomial))).astype(x.dtype)


def _exponentials(
    scores: jax.Array, query: jax.Array, key: jax.Array, added: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """The softmax of `[rows, heads, length, length]` scores, of `_OF_TPU`, not yet divided.

    Returns exponentials and, `[rows, heads, length]`, what to multiply a row of them by. The
    largest score would be a pass of its own over all of them. No score is above the product of the
    lengths of query and key, which costs nothing; where that is too large to tell anything, and the
    exponentials come to nothing, the result is NaN, and the text is run again by an exact program.
    """
    squares, of_keys = (jnp.square(part.astype(jnp.float32)).sum(axis=2) for part in (query, key))
    most = jnp.sqrt(squares * of_keys.max(axis=-1, keepdims=True))
    if added is not None:
        most += jnp.maximum(added.max(), 0.0)
    exponentials = jnp.exp(scores - jnp.maximum(most - _FINITE, 0.0)[..., None])
    # The sum is of what the product sees; else a TPU would keep them in float32, too.
    exponentials = exponentials.astype(key.dtype)
    total = exponentials.astype(jnp.float32).sum(axis=-1)
    return exponentials, jnp.where(total > _LEAST_SUM, 1.0 / total, jnp.nan)


def _rotated(
    layout: str, x: jax.Array, factors: jax.Array, exchanged_factors: jax.Array
) -> jax.Array:
    """Turns queries or keys of a layout by factors `[rows, length, head width]`."""
    width = layout.index("d")
    factors, exchanged_factors = (
        jnp.einsum(f"blhd->{layout}", part[:, :, None]) for part in (factors, exchanged_factors)
    )
    wide = x.astype(jnp.float32)
    first, second = jnp.split(wide, 2, axis=width)
    exchanged = jnp.concatenate([second, first], axis=width)
    return (wide * factors + exchanged * exchanged_factors).astype(x.dtype)


def _at(rows: jax.Array, numbers: jax.Array) -> jax.Array:
    """Returns the rows of a table with some numbers, all of which it has."""
    return rows.at[numbers].get(mode="promise_in_bounds")


def _chosen(rows: jax.Array, numbers: jax.Array, count: int) -> jax.Array:
    """As `_at`, of the first rows, by a product with ones and zeros, which is exact.

    A TPU gathers row by row.
    """
    ones = jax.nn.one_hot(numbers, count, dtype=rows.dtype)
    return jnp.einsum("blp,pw->blw", ones, rows[:count], precision=_HIGHEST)


def _by_platform(
    tpu: Callable[..., jax.Array], others: Callable[..., jax.Array]
) -> Callable[..., jax.Array]:
    """Returns a function that is the one or the other, by the chip the program is for."""
    return partial(jax.lax.platform_dependent, tpu=tpu, default=others)
