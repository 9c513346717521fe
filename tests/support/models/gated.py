"""Small random encoders with rotary positions and gated layers: configurations and weights.

Names and settings are those of transformers; `as_hub` gives those of the code that some of these
models have beside their weights. Biases and norms are random, so that each of them matters.
"""

import re
from typing import Any

import numpy as np

from tests.support.models.folder import Shapes, drawn, layers_of

GATED = ("nomic_bert", "modernbert", "modernbert_biased", "gte", "new")
HIDDEN, INNER, HEADS, POSITIONS = 32, 48, 4, 1024
LAYERS = {"modernbert": 4, "modernbert_biased": 3}  # others have 2
# The first with the usual window; that of the second ends within most texts.
_MODERN = {
    "modernbert": {},
    "modernbert_biased": {
        **{"norm_bias": True, "attention_bias": True, "mlp_bias": True, "local_attention": 16},
        **{"global_attn_every_n_layers": 2, "global_rope_theta": 9000.0, "local_rope_theta": 300.0},
        **{"hidden_activation": "gelu_pytorch_tanh", "norm_eps": 1e-3},
    },
}
NTK = {"type": "ntk", "factor": 2.0}
_HUB_TENSORS = {
    "nomic_bert": (
        (r"^layers\.", "encoder.layers."),
        (r"^embeddings\.LayerNorm\.", "emb_ln."),
        (r"\.self_attn\.o_proj\.", ".attn.out_proj."),
        (r"\.self_attn\.qkv_proj\.", ".attn.Wqkv."),
        (r"\.up_proj\.", ".fc11."),
        (r"\.gate_proj\.", ".fc12."),
        (r"\.down_proj\.", ".fc2."),
        (r"\.post_attention_layernorm\.", ".norm1."),
        (r"\.post_mlp_layernorm\.", ".norm2."),
    ),
    "new": (
        (r"^layers\.", "encoder.layer."),
        (r"\.self_attn\.", ".attention."),
        (r"\.post_attention_layernorm\.", ".attn_ln."),
        (r"\.post_mlp_layernorm\.", ".mlp_ln."),
        (r"^", "new."),
    ),
}
_HUB_CONFIG = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}


def config(kind: str) -> dict[str, Any]:
    sizes = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS.get(kind, 2),
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
    }
    if kind in _MODERN:
        return sizes | {"model_type": "modernbert", **_MODERN[kind]}
    sizes |= {"layer_norm_eps": 1e-5, "type_vocab_size": 0 if kind == "new" else 2}
    if kind == "nomic_bert":
        return sizes | {"model_type": kind, "rope_parameters": _rope(1000.0)}
    return sizes | {"model_type": "gte", "hidden_act": "gelu", "rope_parameters": _rope(20000.0)}


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def tensors(kind: str, entries: int) -> dict[str, np.ndarray]:
    return drawn(_modern(kind, entries) if kind in _MODERN else _post_norm(kind, entries), 11)


def _post_norm(kind: str, entries: int) -> Shapes:
    shapes: Shapes = {"embeddings.word_embeddings.weight": (entries, HIDDEN)}
    if kind != "new":
        shapes["embeddings.token_type_embeddings.weight"] = (2, HIDDEN)
    layers: Shapes = {"embeddings.LayerNorm": (HIDDEN,)}
    for layer in (f"layers.{number}" for number in range(2)):
        layers |= {f"{layer}.self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"}
        layers |= {f"{layer}.mlp.{name}_proj": (INNER, HIDDEN) for name in ("up", "gate")}
        layers[f"{layer}.mlp.down_proj"] = HIDDEN, INNER
        norms = [f"{layer}.post_{name}_layernorm" for name in ("attention", "mlp")]
        layers |= dict.fromkeys(norms, (HIDDEN,))
    unbiased = "proj" if kind == "nomic_bert" else ("up_proj", "gate_proj")
    return shapes | layers_of(layers, lambda name: name.endswith(unbiased))


def _modern(kind: str, entries: int) -> Shapes:
    shapes: Shapes = {"embeddings.tok_embeddings.weight": (entries, HIDDEN)}
    layers: Shapes = {"embeddings.norm": (HIDDEN,)}
    for layer in (f"layers.{number}" for number in range(LAYERS[kind])):
        layers |= {
            f"{layer}.attn_norm": (HIDDEN,),
            f"{layer}.attn.Wqkv": (3 * HIDDEN, HIDDEN),
            f"{layer}.attn.Wo": (HIDDEN, HIDDEN),
            f"{layer}.mlp_norm": (HIDDEN,),
            f"{layer}.mlp.Wi": (2 * INNER, HIDDEN),
            f"{layer}.mlp.Wo": (HIDDEN, INNER),
        }
    del layers["layers.0.attn_norm"]  # the embeddings' norm is there
    layers["final_norm"] = (HIDDEN,)
    return shapes | layers_of(layers, lambda name: kind != "modernbert_biased")


def as_hub(
    kind: str, values: dict[str, Any], weights: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns configuration and weights of "nomic_bert" or "new" as the hub's own code has them."""
    values, theta = dict(values), values["rope_parameters"]["rope_theta"]
    del values["rope_parameters"]
    if kind == "new":
        values |= {"model_type": "new", "rope_theta": theta, "rope_scaling": NTK}
        values |= {"position_embedding_type": "rope", "pack_qkv": True, "unpad_inputs": True}
    else:
        values = {_HUB_CONFIG.get(name, name): value for name, value in values.items()}
        values |= {"rotary_emb_base": int(theta), "activation_function": "swiglu", "prenorm": False}
        values |= {"rotary_emb_fraction": 1.0, "use_flash_attn": True}
    packed = dict(weights)
    for number in range(2):
        names = {"self_attn.qkv_proj": [f"self_attn.{name}_proj" for name in "qkv"]}
        if kind == "new":
            names["mlp.up_gate_proj"] = ["mlp.up_proj", "mlp.gate_proj"]
        for whole, parts in names.items():
            for part in ("weight", "bias"):
                keys = [f"layers.{number}.{name}.{part}" for name in parts]
                if keys[0] in packed:
                    arrays = [packed.pop(key) for key in keys]
                    packed[f"layers.{number}.{whole}.{part}"] = np.concatenate(arrays)
    return values, {_hub_name(kind, name): array for name, array in packed.items()}


def _hub_name(kind: str, name: str) -> str:
    for pattern, replacement in _HUB_TENSORS[kind]:
        name = re.sub(pattern, replacement, name)
    return name
