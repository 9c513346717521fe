"""Small random encoders as jina-embeddings-v2 has them, and what they compute, in float64.

`jina` is as jina-embeddings-v2-base-en, `jina_qk` as jina-embeddings-v2-base-code with norms of
queries and keys. transformers has neither; this is written from what text-embeddings-inference and
llama.cpp compute, token by token, and shares nothing with our own graph.
"""

from typing import Any

import numpy as np

from tests.support.models.folder import Shapes, drawn, layers_of
from tests.support.models.plain_bert import PlainBert, gelu

JINA = ("jina", "jina_qk")
CODE = {
    "jina": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
    "jina_qk": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"},
}
# Six heads are no power of two.
_WIDTHS, _HEADS, _INNER, _LAYERS = {"jina": 32, "jina_qk": 36}, {"jina": 4, "jina_qk": 6}, 48, 2
_EPSILON = 1e-5
# The slopes of the paper for 4 heads; with 6, two of those for 8 follow.
_SLOPES = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
_MLP = {
    "jina": ("mlp.gated_layers", "mlp.wo", "mlp.layernorm"),
    "jina_qk": ("mlp.up_gated_layer", "mlp.down_layer", "layer_norm_2"),
}


def config(kind: str) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "auto_map": CODE[kind],
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "emb_pooler": "mean",
        "hidden_size": _WIDTHS[kind],
        "intermediate_size": _INNER,
        "num_attention_heads": _HEADS[kind],
        "num_hidden_layers": _LAYERS,
        "max_position_embeddings": 1024,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "hidden_act": "gelu",
        "layer_norm_eps": _EPSILON,
    }


def tensors(kind: str, entries: int) -> dict[str, np.ndarray]:
    width = _WIDTHS[kind]
    tables = {"word_embeddings": entries, "token_type_embeddings": 2}
    shapes = {f"embeddings.{name}.weight": (rows, width) for name, rows in tables.items()}
    denses: Shapes = {}
    norms = ["embeddings.LayerNorm"]
    gated, output, last = _MLP[kind]
    for layer in (f"encoder.layer.{number}" for number in range(_LAYERS)):
        attention = f"{layer}.attention"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            denses[f"{attention}.{name}"] = (width, width)
        denses[f"{layer}.{output}"] = (width, _INNER)
        shapes[f"{layer}.{gated}.weight"] = (2 * _INNER, width)
        norms += [f"{attention}.output.LayerNorm", f"{layer}.{last}"]
        if kind == "jina_qk":
            norms += [f"{attention}.self.layer_norm_q", f"{attention}.self.layer_norm_k"]
            norms.append(f"{layer}.layer_norm_1")
    return drawn(shapes | layers_of(denses | dict.fromkeys(norms, (width,))), 13)


def hidden_states(
    kind: str, weights: dict[str, np.ndarray], ids: np.ndarray, types: np.ndarray
) -> np.ndarray:
    """Returns the embeddings and the output of each layer, float64 `[tokens, layers, hidden]`."""
    return np.stack(_PlainJina(kind, weights).hidden_states(ids, types), axis=1)


class _PlainJina(PlainBert):
    def __init__(self, kind: str, weights: dict[str, np.ndarray]) -> None:
        super().__init__(weights, _HEADS[kind], gelu, _EPSILON)
        self.kind = kind

    def projected(self, name: str, x: np.ndarray) -> list[np.ndarray]:
        query, key, value = super().projected(name, x)
        if self.kind == "jina_qk":
            query = self.norm(f"{name}.layer_norm_q", query)
            key = self.norm(f"{name}.layer_norm_k", key)
        return [query, key, value]

    def added(self, head: int, tokens: int) -> np.ndarray:
        places = np.arange(tokens)
        return -_SLOPES[head] * np.abs(places[:, None] - places)

    def attention(self, layer: str, x: np.ndarray) -> np.ndarray:
        out = super().attention(layer, x)
        return self.norm(f"{layer}.layer_norm_1", out + x) if self.kind == "jina_qk" else out

    def feed_forward(self, layer: str, x: np.ndarray) -> np.ndarray:
        gated, output, last = _MLP[self.kind]
        halves = np.split(self.dense(f"{layer}.{gated}", x), 2, axis=1)
        gate, up = halves if self.kind == "jina" else reversed(halves)
        out = self.dense(f"{layer}.{output}", self.activation(gate) * up)
        return self.norm(f"{layer}.{last}", out + x)
