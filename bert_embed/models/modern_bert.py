"""ModernBERT: norms before what they belong to, and layers that see a window of tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import (
    Classifier,
    MaskedLM,
    Ops,
    activation,
    norm_shapes,
    product_shapes,
    sizes_of,
)
from bert_embed.models.gated import (
    GATES,
    RotaryConfig,
    check_rope,
    frequencies,
    gated,
    refuse_unless,
    rotation_of,
    rotation_tables,
)

_UNSEEN = np.float32(-1e9)  # added to the scores of tokens outside the window
_MOST_LAYERS = 10_000  # whose numbers are listed before the weights' layers are counted
_FULL, _SLIDING = "full_attention", "sliding_attention"
_THETAS = {_FULL: ("global_rope_theta", 160_000.0), _SLIDING: ("local_rope_theta", 10_000.0)}
# Files say "absolute" or "sans_pos" (Ettin, mmBERT), and positions are rotary all the same.
_USUAL: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", "rope", "sans_pos", None)
}


@dataclass(frozen=True)
class ModernBertConfig(RotaryConfig):
    """A ModernBERT encoder; its last hidden state is the one after the final norm."""

    architecture: ClassVar[str] = "modernbert"
    model_types: ClassVar[Mapping[str, str]] = {"modernbert": "a ModernBERT encoder"}
    prefixes: ClassVar[tuple[str, ...]] = ("model.",)
    modules: ClassVar[Mapping[str, str]] = {
        "embeddings/word": "embeddings.tok_embeddings",
        "embeddings/norm": "embeddings.norm",
        "query": "attn.Wq",
        "key": "attn.Wk",
        "value": "attn.Wv",
        "attention_output": "attn.Wo",
        "attention_norm": "attn_norm",
        "gate": "mlp.Wgate",
        "up": "mlp.Wup",
        "output": "mlp.Wo",
        "output_norm": "mlp_norm",
        "final_norm": "final_norm",
        "pooler": "pooler.dense",
    }
    ignored: ClassVar[tuple[str, ...]] = (*RotaryConfig.ignored, r"(head|decoder)\.")
    masked_lms: ClassVar[Mapping[str, MaskedLM]] = {
        "modernbert": MaskedLM(
            "head.dense", "head.norm", "decoder", activation="classifier_activation"
        )
    }
    classifiers: ClassVar[Mapping[str, Classifier]] = {
        "modernbert": Classifier(
            *("head.dense", "classifier"),
            setting="classifier_activation",
            norm="head.norm",
            pooling="classifier_pooling",
        )
    }
    head_biases: ClassVar[Mapping[str, tuple[str, bool]]] = {
        "head.dense": ("classifier_bias", False),
        "head.norm": ("norm_bias", False),
        "decoder": ("decoder_bias", True),
    }
    packed: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "attn.Wqkv": ("attn.Wq", "attn.Wk", "attn.Wv"),
        "mlp.Wi": ("mlp.Wgate", "mlp.Wup"),
    }
    settings: ClassVar[tuple[str, ...]] = (
        *("hidden_activation", "norm_eps", "norm_bias", "attention_bias", "mlp_bias"),
        *("local_attention", "layer_types", "global_attn_every_n_layers", "global_rope_theta"),
        *("local_rope_theta", "rope_scaling", "rope_parameters", *_USUAL),
        "layer_norm_eps",  # beside norm_eps, which counts
        *("reference_compile", "deterministic_flash_attn", "repad_logits_with_grad"),
        *("sparse_prediction", "sparse_pred_ignore_index"),
    )
    local_rope_theta: float = 10000.0  # as `rope_theta`, for layers with a window
    local_attention: int = 128  # width of the window; a token sees half of it on each side
    full_attention: tuple[int, ...] = ()  # numbers of the layers, from 0 on, without a window
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "full_attention", tuple(self.full_attention))
        self._check_theta("local_rope_theta")
        self._check_positive("local_attention")

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "ModernBertConfig":
        sizes = sizes_of(values)
        refuse_unless(values, _USUAL)
        thetas = {kind: _theta(values, kind) for kind in _THETAS}
        return cls(
            **sizes,
            hidden_act=activation(values, "hidden_activation", GATES),
            type_vocab_size=0,
            layer_norm_eps=values.get("norm_eps", 1e-5),
            rope_theta=thetas[_FULL],
            local_rope_theta=thetas[_SLIDING],
            local_attention=values.get("local_attention", 128),
            full_attention=_full_layers(values),
            norm_bias=values.get("norm_bias", False),
            attention_bias=values.get("attention_bias", False),
            mlp_bias=values.get("mlp_bias", False),
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        feed_forward: dict[str, tuple[int, int]] = {}
        norms = ["embeddings/norm", "final_norm"]
        for number, layer in enumerate(self.layer_names):
            feed_forward |= dict.fromkeys((f"{layer}/gate", f"{layer}/up"), (hidden, inner))
            feed_forward[f"{layer}/output"] = (inner, hidden)
            norms += [f"{layer}/attention_norm"] if number else []  # the first has the embeddings'
            norms.append(f"{layer}/output_norm")
        return {
            "embeddings/word": (self.vocab_size, hidden),
            **product_shapes(self.in_layers(), self.attention_bias),
            **product_shapes(feed_forward, self.mlp_bias),
            **norm_shapes(dict.fromkeys(norms, hidden), self.norm_bias),
        }

    @property
    def reaches(self) -> dict[str, int]:
        return {"window": self.local_attention // 2}

    def tables(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        positions = self.max_position_embeddings
        tables: dict[str, np.ndarray] = {}
        for kind, theta in ((_FULL, self.rope_theta), (_SLIDING, self.local_rope_theta)):
            angles = frequencies(theta, self.head_width)
            tables |= rotation_tables(angles, positions, kind)
        distances = np.abs(np.arange(1 - positions, positions))
        outside = distances > self.reaches["window"]
        tables["window"] = np.where(outside, _UNSEEN, np.float32(0))[None]
        return tables

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        x = ops.norm(ops.flat(ops.gather("embeddings/word", ids)), "embeddings/norm")
        yield x
        rotations = {kind: rotation_of(ops, kind) for kind in _THETAS}
        window = ops.by_distance("window")
        sighted = ops.sighted(self.reaches["window"])
        for number, layer in enumerate(self.layer_names):
            full = number in self.full_attention
            attended = ops.attention(
                ops.norm(x, f"{layer}/attention_norm") if number else x,
                layer,
                None if full else window,
                rotations[_FULL if full else _SLIDING],
            )
            if not full and sighted is not None:  # nothing is mixed from nothing, as by PyTorch
                attended = ops.multiply(attended, sighted)
            x = ops.add(x, ops.product(attended, f"{layer}/attention_output"))
            inner = gated(ops, ops.norm(x, f"{layer}/output_norm"), layer, self.hidden_act)
            x = ops.add(x, ops.product(inner, f"{layer}/output"))
            yield x if number < self.num_hidden_layers - 1 else ops.norm(x, "final_norm")


def _theta(values: Mapping[str, Any], kind: str) -> Any:
    """Returns the theta of layers of a kind, by the old or the new setting."""
    scaling = check_rope(values.get("rope_scaling"), "rope_scaling")
    by_kind = values.get("rope_parameters")
    if by_kind is not None and not isinstance(by_kind, dict):
        raise InputError(f"config.json: rope_parameters must hold an object, got {by_kind!r}")
    if other := {key for key, value in (by_kind or {}).items() if value is not None} - {*_THETAS}:
        raise InputError(
            f"config.json: rope_parameters must be of {' and '.join(_THETAS)}, "
            f"got {', '.join(sorted(other))}, too"
        )
    rope = check_rope((by_kind or {}).get(kind), f"rope_parameters of {kind}") | scaling
    name, usual = _THETAS[kind]
    theta = values.get(name, usual)
    if theta is None:  # in older models: that of all layers
        theta = values.get(_THETAS[_FULL][0], _THETAS[_FULL][1])
    return rope.get("rope_theta", theta)


def _full_layers(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the numbers of the layers whose tokens see all others."""
    count, kinds = values["num_hidden_layers"], values.get("layer_types")
    if not isinstance(count, int) or count > _MOST_LAYERS:
        return ()  # which the checks of the sizes refuse
    if kinds is None:
        every = values.get("global_attn_every_n_layers", 3)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(
                f"config.json: global_attn_every_n_layers must be a positive integer, got {every!r}"
            )
        return tuple(range(0, count, every))
    if not isinstance(kinds, list) or len(kinds) != count or set(kinds) - set(_THETAS):
        raise InputError(
            f"config.json: layer_types must name {_FULL} or {_SLIDING} for each of {count} layers"
        )
    return tuple(number for number, kind in enumerate(kinds) if kind == _FULL)
