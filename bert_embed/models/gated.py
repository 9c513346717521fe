"""GTE, NomicBERT and Jina embeddings v2, and what encoders with gated layers have in common."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.bert import MODULES
from bert_embed.models.encoder import (
    ACTIVATIONS,
    EncoderConfig,
    Ops,
    activation,
    norm_shapes,
    product_shapes,
    sizes_of,
)

_ROPE = {
    *("rope_type", "type", "rope_theta", "factor", "partial_rotary_factor"),
    "original_max_position_embeddings",
}
GATES = {**ACTIVATIONS, "silu": "silu", "swish": "silu"}  # the same, under another name
_GTE_USUAL: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("rope", None),
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
}
_THETAS = {"gte": 160_000.0, "new": 10_000.0}  # where config.json does not say it
# What the code beside the weights calls our fields.
_HUB_FIELDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon",
}
_HUB_GATES = {"swiglu": "silu", "geglu": "gelu"}
_NOMIC_USUAL: dict[str, tuple[Any, ...]] = {
    "prenorm": (False,),
    "parallel_block": (False,),
    "use_rms_norm": (False, None),
    "causal": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "rotary_emb_fraction": (1,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (None,),
    "num_experts": (0, 1, None),
    "moe_every_n_layers": (0, None),
    "ffn_div": (1, None),
}
_JINA_USUAL: dict[str, tuple[Any, ...]] = {
    "feed_forward_type": ("geglu",),
    "hidden_act": ("gelu",),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "emb_pooler": ("mean", None),
}
_DISTANCES = "distance_scores"
_QK_NORM = "qk-post-norm"  # in the name of the code that has these norms


@dataclass(frozen=True)
class RotaryConfig(EncoderConfig):
    """An encoder that turns queries and keys by angles that grow with the position."""

    activations: ClassVar[Mapping[str, str]] = GATES
    ignored: ClassVar[tuple[str, ...]] = (*EncoderConfig.ignored, r".*\.(original_)?inv_freq$")
    rope_theta: float = 10000.0  # the slowest angle takes about this many tokens for a turn

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_theta("rope_theta")
        if self.head_width % 2:
            raise InputError(
                f"config: hidden_size {self.hidden_size} must give each of "
                f"{self.num_attention_heads} attention heads an even width, for rotary positions"
            )

    def _check_theta(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < 1e12:
            raise InputError(f"config: {name} must be a number of at least 1, got {value!r}")
        # The same in JSON, and so in the fingerprint, whether it was 1000 or 1000.0.
        object.__setattr__(self, name, float(value))

    def huggingface_layers(self, values: Mapping[str, Any]) -> str:
        return "layers."


@dataclass(frozen=True)
class PostNormConfig(RotaryConfig):
    """An encoder with norms after what they belong to, as BERT has them."""

    biases: ClassVar[bool] = False  # whether products have any, but for gate and up
    modules: ClassVar[Mapping[str, str]] = {
        "embeddings/word": "embeddings.word_embeddings",
        "embeddings/type": "embeddings.token_type_embeddings",
        "embeddings/norm": "embeddings.LayerNorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "attention_output": "self_attn.o_proj",
        "attention_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "output": "mlp.down_proj",
        "output_norm": "post_mlp_layernorm",
        "pooler": "pooler.dense",
    }
    packed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
    }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return post_norm_shapes(self, self.biases)

    def tables(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return rotation_tables(self.frequencies(), self.max_position_embeddings)

    def frequencies(self) -> np.ndarray:
        """Returns the angles by which one position turns the numbers of a head."""
        return frequencies(self.rope_theta, self.head_width)

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        x = embedded(ops, self, ids, types)
        yield x
        rotation = rotation_of(ops)
        for layer in self.layer_names:
            attended = ops.attention(x, layer, rotation=rotation)
            attended = ops.product(attended, f"{layer}/attention_output")
            x = ops.norm(ops.add(attended, x), f"{layer}/attention_norm")
            inner = gated(ops, x, layer, self.hidden_act)
            x = ops.norm(ops.add(ops.product(inner, f"{layer}/output"), x), f"{layer}/output_norm")
            yield x


def post_norm_shapes(config: EncoderConfig, biases: bool) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of an encoder with gated layers and norms after what they belong to."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"embeddings/word": (config.vocab_size, hidden)}
    if config.type_vocab_size:
        shapes["embeddings/type"] = (config.type_vocab_size, hidden)
    gates: dict[str, tuple[int, int]] = {}
    norms = ["embeddings/norm"]
    for layer in config.layer_names:
        gates |= dict.fromkeys((f"{layer}/gate", f"{layer}/up"), (hidden, inner))
        norms += [f"{layer}/attention_norm", f"{layer}/output_norm"]
    kernels = config.in_layers(output=(inner, hidden))
    shapes |= product_shapes(kernels, biases) | product_shapes(gates, bias=False)
    return shapes | norm_shapes(dict.fromkeys(norms, hidden))


def embedded(ops: Ops, config: EncoderConfig, ids: Any, types: Any) -> Any:
    """Returns the embeddings of words and segments, after their norm, without positions."""
    x = ops.gather("embeddings/word", ids)
    if config.type_vocab_size:
        x = ops.add(x, ops.gather("embeddings/type", types))
    return ops.norm(ops.flat(x), "embeddings/norm")


def gated(ops: Ops, x: Any, layer: str, activation: str) -> Any:
    """Returns `activation(x @ gate) * (x @ up)`."""
    gate = ops.activated(ops.product(x, f"{layer}/gate"), activation)
    return ops.multiply(gate, ops.product(x, f"{layer}/up"))


def frequencies(theta: float, head_width: int) -> np.ndarray:
    """Returns the angles of one position, float32 `[head width / 2]`, as PyTorch rounds them."""
    powers = np.arange(0, head_width, 2, dtype=np.float32) / np.float32(head_width)
    return np.float32(1) / np.float32(theta) ** powers


def rotation_tables(
    angles: np.ndarray, positions: int, name: str = "rotation"
) -> dict[str, np.ndarray]:
    """Returns factors of a head, float32 `[positions, head width]`, and of its halves exchanged."""
    turned = np.arange(positions, dtype=np.float32)[:, None] * angles
    cos, sin = np.cos(turned), np.sin(turned)
    return {
        f"{name}/same": np.concatenate([cos, cos], axis=1),
        f"{name}/exchanged": np.concatenate([-sin, sin], axis=1),
    }


def rotation_of(ops: Ops, name: str = "rotation") -> tuple[Any, Any]:
    """Returns what `Ops.attention` takes as its rotation."""
    return ops.first_rows(f"{name}/same"), ops.first_rows(f"{name}/exchanged")


def check_rope(values: Any, name: str, kinds: tuple[str, ...] = ("default",)) -> dict[str, Any]:
    """Returns config.json's settings of rotary positions; InputError for a kind not in `kinds`."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"config.json: {name} must hold an object, got {values!r}")
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in kinds:
        raise InputError(
            f"config.json: {name} of type {kind!r} is not supported, only {' and '.join(kinds)}"
        )
    if values.get("partial_rotary_factor", 1) != 1:
        raise InputError(f"config.json: {name} with a partial_rotary_factor is not supported")
    for key, value in values.items():
        if key not in _ROPE and value is not None:
            raise InputError(
                f"config.json: {name} with {key}, got {value!r}, is not supported; remove it if it "
                "is known to change nothing"
            )
    return values


def refuse_unless(values: Mapping[str, Any], usual: Mapping[str, tuple[Any, ...]]) -> None:
    """Checks that settings, where config.json has them, are among those that are computed."""
    for name, allowed in usual.items():
        if values.get(name, allowed[0]) not in allowed:
            raise InputError(
                f"config.json: {name} must be {' or '.join(map(repr, allowed))}, "
                f"got {values[name]!r}, which is not supported"
            )


@dataclass(frozen=True)
class GteConfig(PostNormConfig):
    """A GTE encoder: biases but for gate and up, gelu as the gate."""

    architecture: ClassVar[str] = "gte"
    seldom: ClassVar[tuple[str, ...]] = ("ntk_factor",)
    biases: ClassVar[bool] = True
    model_types: ClassVar[Mapping[str, str]] = {"gte": "a GTE encoder", "new": "a GTE encoder"}
    prefixes: ClassVar[tuple[str, ...]] = ("new.", "gte.")
    renamed: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"^encoder\.layer\.", "layers."),
        (r"\.attention\.", ".self_attn."),
        (r"\.attn_ln\.", ".post_attention_layernorm."),
        (r"\.mlp_ln\.", ".post_mlp_layernorm."),
    )
    settings: ClassVar[tuple[str, ...]] = (
        *("hidden_act", "type_vocab_size", "layer_norm_eps", "rope_theta", "rope_scaling"),
        *("rope_parameters", *_GTE_USUAL),
        *("pack_qkv", "unpad_inputs", "use_memory_efficient_attention"),  # how the code runs
    )
    ntk_factor: float = 0.0  # by how much "ntk" scaling stretches the positions; 0: not

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ntk_factor:
            self._check_theta("ntk_factor")

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "GteConfig":
        sizes = sizes_of(values)
        refuse_unless(values, _GTE_USUAL)
        # Of both, transformers reads the former alone.
        name = "rope_scaling" if values.get("rope_scaling") else "rope_parameters"
        rope = check_rope(values.get(name), name, ("default", "ntk"))
        scaled = rope.get("rope_type", rope.get("type")) == "ntk"
        theta = values.get("rope_theta", _THETAS[values["model_type"]])
        return cls(
            **sizes,
            hidden_act=activation(values, "hidden_act", GATES),
            type_vocab_size=values.get("type_vocab_size", 1),
            layer_norm_eps=values.get("layer_norm_eps", 1e-12),
            rope_theta=rope.get("rope_theta", theta),
            ntk_factor=rope.get("factor", 1.0) if scaled else 0.0,
        )

    def frequencies(self) -> np.ndarray:
        if not self.ntk_factor:
            return super().frequencies()
        scaled = frequencies(self.rope_theta * self.ntk_factor, self.head_width)
        return scaled / np.float32(self.ntk_factor ** (2 / self.head_width))


@dataclass(frozen=True)
class NomicBertConfig(PostNormConfig):
    """A NomicBERT encoder: no biases, segments, silu as the gate."""

    architecture: ClassVar[str] = "nomic_bert"
    model_types: ClassVar[Mapping[str, str]] = {"nomic_bert": "a NomicBERT encoder"}
    prefixes: ClassVar[tuple[str, ...]] = ("nomic_bert.", "bert.")
    settings: ClassVar[tuple[str, ...]] = (
        *("hidden_act", "type_vocab_size", "layer_norm_eps", "rope_theta", "rope_parameters"),
        *("head_dim", "rotary_emb_base", "rotary_scaling_factor", "max_trained_positions"),
        *(*_HUB_FIELDS.values(), *_NOMIC_USUAL),
        # How the code runs, and how it would choose among experts
        *("fused_bias_fc", "use_xentropy", "dense_seq_output", "pad_vocab_size_multiple"),
        *("reorder_and_upcast_attn", "moe_top_k", "moe_impl", "moe_normalize_expert_weights"),
    )
    renamed: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"^encoder\.layers\.", "layers."),
        (r"^emb_ln\.", "embeddings.LayerNorm."),
        (r"\.attn\.out_proj\.", ".self_attn.o_proj."),
        (r"\.attn\.Wqkv\.", ".self_attn.qkv_proj."),
        (r"\.fc11\.", ".up_proj."),
        (r"\.fc12\.", ".gate_proj."),
        (r"\.fc2\.", ".down_proj."),
        (r"\.norm1\.", ".post_attention_layernorm."),
        (r"\.norm2\.", ".post_mlp_layernorm."),
    )

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "NomicBertConfig":
        hub = "n_embd" in values
        theirs = _HUB_FIELDS if hub else {}
        sizes = sizes_of(values, theirs)
        refuse_unless(values, _NOMIC_USUAL)
        # Behind this position the code beside the weights scales all angles by a text's length.
        trained = values.get("max_trained_positions")
        if values.get("rotary_scaling_factor") and isinstance(trained, int):
            sizes["max_position_embeddings"] = min(trained, sizes["max_position_embeddings"])
        rope = check_rope(values.get("rope_parameters"), "rope_parameters")
        theta = rope.get("rope_theta", values.get("rope_theta", 1000.0))
        if hub:
            theta = rope.get("rope_theta", values.get("rotary_emb_base", theta))
        else:  # transformers does not know the code's own name
            refuse_unless(values, {"rotary_emb_base": (theta,)})
        gate = theirs.get("hidden_act", "hidden_act")
        gates = _HUB_GATES if hub else {"silu": "silu", **GATES}
        config = cls(
            **sizes,
            hidden_act=activation(values, gate, gates),
            type_vocab_size=values.get("type_vocab_size", 2),
            layer_norm_eps=values.get(theirs.get("layer_norm_eps", "layer_norm_eps"), 1e-12),
            rope_theta=theta,
        )
        if values.get("head_dim") not in (None, config.head_width):
            raise InputError("config.json: head_dim must be hidden_size / num_attention_heads")
        return config


@dataclass(frozen=True)
class JinaConfig(EncoderConfig):
    """An encoder of jina-embeddings-v2; the farther a token, the less a head attends to it."""

    architecture: ClassVar[str] = "jina"
    seldom: ClassVar[tuple[str, ...]] = ("qk_norm",)
    model_types: ClassVar[Mapping[str, str]] = {"bert": "a Jina encoder"}
    prefixes: ClassVar[tuple[str, ...]] = ("bert.",)
    # The code with norms of queries and keys has the second names, and up before gate.
    renamed: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"\.mlp\.down_layer\.", ".mlp.wo."),
        (r"\.layer_norm_2\.", ".mlp.layernorm."),
    )
    packed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mlp.gated_layers": ("mlp.gate", "mlp.up"),
        "mlp.up_gated_layer": ("mlp.up", "mlp.gate"),
    }
    modules: ClassVar[Mapping[str, str]] = {
        **MODULES,
        "query_norm": "attention.self.layer_norm_q",
        "key_norm": "attention.self.layer_norm_k",
        "second_norm": "layer_norm_1",
        "gate": "mlp.gate",
        "up": "mlp.up",
        "output": "mlp.wo",
        "output_norm": "mlp.layernorm",
    }
    settings: ClassVar[tuple[str, ...]] = (
        *("position_embedding_type", "type_vocab_size", "layer_norm_eps", *_JINA_USUAL),
    )
    qk_norm: bool = False  # queries and keys have norms, attention a second one

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "JinaConfig":
        sizes = sizes_of(values)
        refuse_unless({"feed_forward_type": "original", **values}, _JINA_USUAL)
        classes = values.get("auto_map")
        code = [values.get("_name_or_path")]
        code += classes.values() if isinstance(classes, Mapping) else ()
        return cls(
            **sizes,
            type_vocab_size=values.get("type_vocab_size", 2),
            layer_norm_eps=values.get("layer_norm_eps", 1e-12),
            qk_norm=any(_QK_NORM in name for name in code if isinstance(name, str)),
        )

    def huggingface_layers(self, values: Mapping[str, Any]) -> str:
        return "encoder.layer."

    def shapes(self) -> dict[str, tuple[int, ...]]:
        names = ("query_norm", "key_norm", "second_norm") if self.qk_norm else ()
        norms = [f"{layer}/{name}" for layer in self.layer_names for name in names]
        more = norm_shapes(dict.fromkeys(norms, self.hidden_size))
        return post_norm_shapes(self, biases=True) | more

    def tables(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        positions = self.max_position_embeddings
        distances = np.abs(np.arange(1 - positions, positions)).astype(np.float32)
        return {_DISTANCES: -slopes(self.num_attention_heads)[:, None] * distances}

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        x = embedded(ops, self, ids, types)
        yield x
        added = ops.by_distance(_DISTANCES)
        for layer in self.layer_names:
            attended = ops.product(ops.attention(x, layer, added), f"{layer}/attention_output")
            attended = ops.norm(ops.add(attended, x), f"{layer}/attention_norm")
            if self.qk_norm:
                attended = ops.norm(ops.add(attended, x), f"{layer}/second_norm")
            inner = ops.product(gated(ops, attended, layer, self.hidden_act), f"{layer}/output")
            x = ops.norm(ops.add(inner, attended), f"{layer}/output_norm")
            yield x


def slopes(heads: int) -> np.ndarray:
    """Returns by how much one token of distance lowers the scores of each head, float32 `[heads]`.

    A power of two of heads has powers of `2 ** (-8 / heads)`; other numbers have those of the next
    lower power of two, and then every other one of the next higher.

    >>> slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    lower = 1 << (heads.bit_length() - 1)
    powers = [-8 * (place + 1) / lower for place in range(lower)]
    powers += [-4 * (place + 1) / lower for place in range(0, 2 * lower, 2)]
    return np.array([2.0**power for power in powers[:heads]], np.float32)
