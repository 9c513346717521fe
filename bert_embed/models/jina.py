"""Jina embeddings v2: BERT with ALiBi instead of position embeddings, and gated layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.models.encoder import EncoderConfig, Ops, norm_shapes, sizes_of
from bert_embed.models.rotary import embedded, gated, post_norm_shapes, refuse_unless

_USUAL: dict[str, tuple[Any, ...]] = {
    "feed_forward_type": ("geglu",),
    "hidden_act": ("gelu",),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "emb_pooler": ("mean", None),
}
_DISTANCES = "distance_scores"
_QK_NORM = "qk-post-norm"  # in the name of the code that has these norms


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
        "embeddings/word": "embeddings.word_embeddings",
        "embeddings/type": "embeddings.token_type_embeddings",
        "embeddings/norm": "embeddings.LayerNorm",
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "query_norm": "attention.self.layer_norm_q",
        "key_norm": "attention.self.layer_norm_k",
        "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "second_norm": "layer_norm_1",
        "gate": "mlp.gate",
        "up": "mlp.up",
        "output": "mlp.wo",
        "output_norm": "mlp.layernorm",
        "pooler": "pooler.dense",
    }
    settings: ClassVar[tuple[str, ...]] = (
        *("position_embedding_type", "type_vocab_size", "layer_norm_eps", *_USUAL),
    )
    qk_norm: bool = False  # queries and keys have norms, attention a second one

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "JinaConfig":
        sizes = sizes_of(values)
        refuse_unless({"feed_forward_type": "original", **values}, _USUAL)
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
