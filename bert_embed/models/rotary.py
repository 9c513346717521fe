"""X"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import (
    ACTIVATIONS,
    EncoderConfig,
    Ops,
    norm_shapes,
    product_shapes,
)

_ROPE = {
    *("rope_type", "type", "rope_theta", "factor", "mixed_b", "partial_rotary_factor"),
    "original_max_position_embeddings",
}
GATES = {**ACTIVATIONS, "silu": "silu", "swish": "silu"}  # the same, under another name


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
    kernels: dict[str, tuple[int, int]] = {}
    gates: dict[str, tuple[int, int]] = {}
    norms = ["embeddings/norm"]
    for layer in config.layer_names:
        for name in ("query", "key", "value", "attention_output"):
            kernels[f"{layer}/{name}"] = (hidden, hidden)
        gates |= dict.fromkeys((f"{layer}/gate", f"{layer}/up"), (hidden, inner))
        kernels[f"{layer}/output"] = (inner, hidden)
        norms += [f"{layer}/attention_norm", f"{layer}/output_norm"]
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
