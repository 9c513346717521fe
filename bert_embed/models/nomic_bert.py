"""X"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import SIZES, activation, required
from bert_embed.models.rotary import GATES, PostNormConfig, check_rope, refuse_unless

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
_USUAL: dict[str, tuple[Any, ...]] = {
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


@dataclass(frozen=True)
class NomicBertConfig(PostNormConfig):
    """A NomicBERT encoder: no biases, segments, silu as the gate."""

    architecture: ClassVar[str] = "nomic_bert"
    model_types: ClassVar[Mapping[str, str]] = {"nomic_bert": "a NomicBERT encoder"}
    prefixes: ClassVar[tuple[str, ...]] = ("nomic_bert.", "bert.")
    settings: ClassVar[tuple[str, ...]] = (
        *("hidden_act", "type_vocab_size", "layer_norm_eps", "rope_theta", "rope_parameters"),
        *("head_dim", "rotary_emb_base", "rotary_scaling_factor", "max_trained_positions"),
        *(*_HUB_FIELDS.values(), *_USUAL),
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
        required(values, [theirs.get(name, name) for name in SIZES])
        refuse_unless(values, _USUAL)
        sizes = {name: values[theirs.get(name, name)] for name in SIZES}
        # Behind this position the code beside the weights scales all angles by a text's length.
        trained = values.get("max_trained_positions")
        if values.get("rotary_scaling_factor") and isinstance(trained, int):
            sizes["max_position_embeddings"] = min(trained, sizes["max_position_embeddings"])
        rope = check_rope(values.get("rope_parameters"), "rope_parameters")
        theta = values.get("rotary_emb_base", values.get("rope_theta", 1000.0))
        if values.get("head_dim") not in (None, _head_width(sizes)):
            raise InputError("config.json: head_dim must be hidden_size / num_attention_heads")
        gate = theirs.get("hidden_act", "hidden_act")
        gates = _HUB_GATES if hub else {"silu": "silu", **GATES}
        return cls(
            **sizes,
            hidden_act=activation(values, gate, gates),
            type_vocab_size=values.get("type_vocab_size", 2),
            layer_norm_eps=values.get(theirs.get("layer_norm_eps", "layer_norm_eps"), 1e-12),
            rope_theta=rope.get("rope_theta", theta),
        )


def _head_width(sizes: Mapping[str, Any]) -> Any:
    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None
