"""X"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import SIZES, activation, required
from bert_embed.models.rotary import (
    GATES,
    PostNormConfig,
    check_rope,
    frequencies,
    refuse_unless,
)

_USUAL: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("rope", None),
    "layer_norm_type": ("layer_norm",),
    "logn_attention_scale": (False,),
}
_THETAS = {"gte": 160_000.0, "new": 10_000.0}  # where config.json does not say it


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
        *("rope_parameters", *_USUAL),
        *("pack_qkv", "unpad_inputs", "use_memory_efficient_attention"),  # how the code runs
    )
    ntk_factor: float = 0.0  # by how much "ntk" scaling stretches the positions; 0: not

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ntk_factor:
            self._check_theta("ntk_factor")

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "GteConfig":
        required(values, SIZES)
        refuse_unless(values, _USUAL)
        rope = check_rope(values.get("rope_parameters"), "rope_parameters", ("default", "ntk"))
        scaling = check_rope(values.get("rope_scaling"), "rope_scaling", ("default", "ntk"))
        if (rope | scaling).get("mixed_b") is not None:
            raise InputError("config.json: rope_scaling with mixed_b is not supported")
        scaled = "ntk" in {one.get("rope_type", one.get("type")) for one in (rope, scaling)}
        theta = values.get("rope_theta", _THETAS[values["model_type"]])
        return cls(
            **{name: values[name] for name in SIZES},
            hidden_act=activation(values, "hidden_act", GATES),
            type_vocab_size=values.get("type_vocab_size", 1),
            layer_norm_eps=values.get("layer_norm_eps", 1e-12),
            rope_theta=rope.get("rope_theta", theta),
            ntk_factor=(rope | scaling).get("factor", 1.0) if scaled else 0.0,
        )

    def frequencies(self) -> np.ndarray:
        if not self.ntk_factor:
            return super().frequencies()
        scaled = frequencies(self.rope_theta * self.ntk_factor, self.head_width)
        return scaled / np.float32(self.ntk_factor ** (2 / self.head_width))
