"""Small random encoders as jina-embeddings-v2 has them, and what they compute, in float64.

`jina` is as jina-embeddings-v2-base-en, `jina_qk` as jina-embeddings-v2-base-code with norms of
queries and keys. transformers has neither; this is written from what text-embeddings-inference and
llama.cpp compute, token by token, and shares nothing with our own graph.
"""

import math
from typing import Any

import numpy as np

from tests.support.models.folder import drawn, layers_of

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
    denses, norms = {}, ["embeddings.LayerNorm"]
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
    shapes |= layers_of(denses, dict.fromkeys(norms, width))
    ones = {f"{name}.weight" for name in norms}
    return drawn(shapes, 13, ones.__contains__)


def hidden_states(
    kind: str, weights: dict[str, np.ndarray], ids: np.ndarray, types: np.ndarray
) -> np.ndarray:
    """Returns the embeddings and the output of each layer, float64 `[tokens, layers, hidden]`."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + _EPSILON)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def attention(x: np.ndarray, layer: str) -> np.ndarray:
        query, key, value = (
            linear(x, f"{layer}.self.{name}") for name in ("query", "key", "value")
        )
        if kind == "jina_qk":
            query = norm(query, f"{layer}.self.layer_norm_q")
            key = norm(key, f"{layer}.self.layer_norm_k")
        tokens, width = np.arange(len(x)), _WIDTHS[kind] // _HEADS[kind]
        distances = np.abs(tokens[:, None] - tokens[None, :])
        mixed = []
        for head in range(_HEADS[kind]):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / math.sqrt(width) - _SLOPES[head] * distances
            shares = np.exp(scores - scores.max(1, keepdims=True))
            mixed.append(shares / shares.sum(1, keepdims=True) @ value[:, part])
        return np.concatenate(mixed, axis=1)

    def feed_forward(x: np.ndarray, layer: str) -> np.ndarray:
        halves = np.split(linear(x, f"{layer}.{_MLP[kind][0]}"), 2, axis=1)
        gate, up = halves if kind == "jina" else reversed(halves)
        gate = gate * 0.5 * (1 + np.vectorize(math.erf)(gate / math.sqrt(2)))
        return linear(gate * up, f"{layer}.{_MLP[kind][1]}")

    x = w["embeddings.word_embeddings.weight"][ids]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][types], "embeddings.LayerNorm")
    states = [x]
    for layer in (f"encoder.layer.{number}" for number in range(_LAYERS)):
        attended = linear(attention(x, f"{layer}.attention"), f"{layer}.attention.output.dense")
        attended = norm(attended + x, f"{layer}.attention.output.LayerNorm")
        if kind == "jina_qk":
            attended = norm(attended + x, f"{layer}.layer_norm_1")
        x = norm(feed_forward(attended, layer) + attended, f"{layer}.{_MLP[kind][2]}")
        states.append(x)
    return np.stack(states, axis=1)
