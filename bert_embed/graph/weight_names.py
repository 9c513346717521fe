"""Names the tensors of a model, here and in the formats that are imported, and their shapes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_embed.config import BertConfig, DenseModule

# Our name of each module, and those of google-research and of tf-models-official. Hugging Face has
# google-research's, with points. The first four are tensors themselves.
_NAMES = {
    "embeddings/word": ("embeddings/word_embeddings", "word_embeddings/embeddings"),
    "embeddings/position": ("embeddings/position_embeddings", "position_embedding/embeddings"),
    "embeddings/type": ("embeddings/token_type_embeddings", "type_embeddings/embeddings"),
    "embeddings/relative": ("encoder/relative_attention_bias",),  # of MPNet
    "embeddings/norm": ("embeddings/LayerNorm", "embeddings/layer_norm"),
    "embeddings/project": ("embeddings_project",),  # of ELECTRA
    "pooler": ("pooler/dense", "pooler_transform"),
}
_TENSORS = tuple(_NAMES)[:4]
_LAYER_NAMES = {
    "query": ("attention/self/query", "self_attention/query"),
    "key": ("attention/self/key", "self_attention/key"),
    "value": ("attention/self/value", "self_attention/value"),
    "attention_output": ("attention/output/dense", "self_attention/attention_output"),
    "attention_norm": ("attention/output/LayerNorm", "self_attention_layer_norm"),
    "intermediate": ("intermediate/dense", "intermediate"),
    "output": ("output/dense", "output"),
    "output_norm": ("output/LayerNorm", "output_layer_norm"),
}
_LAYERS = ("encoder/layer_", "transformer/layer_")  # before a layer's number
_GOOGLE, _OFFICIAL = 0, 1
_HUGGINGFACE_PARTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
# Modules of a layer that Hugging Face names differently than in BERT.
_HUGGINGFACE_LAYER_NAMES = {
    "distilbert": {
        "query": "attention/q_lin",
        "key": "attention/k_lin",
        "value": "attention/v_lin",
        "attention_output": "attention/out_lin",
        "attention_norm": "sa_layer_norm",
        "intermediate": "ffn/lin1",
        "output": "ffn/lin2",
        "output_norm": "output_layer_norm",
    },
    "mpnet": {
        "query": "attention/attn/q",
        "key": "attention/attn/k",
        "value": "attention/attn/v",
        "attention_output": "attention/attn/o",
        "attention_norm": "attention/LayerNorm",
    },
}
_FAR = 128  # tokens: MPNet's distances from here on are one group


def google_name(name: str) -> str:
    """Returns google-research's name of our tensor.

    >>> google_name("layers/3/output/kernel"), google_name("embeddings/word")
    ('bert/encoder/layer_3/output/dense/kernel', 'bert/embeddings/word_embeddings')
    """
    return f"bert/{_renamed(name, _GOOGLE)}"


def official_name(name: str) -> str:
    """Returns tf-models-official's name of our tensor.

    >>> official_name("layers/3/query/kernel"), official_name("embeddings/word")
    ('transformer/layer_3/self_attention/query/kernel', 'word_embeddings/embeddings')
    """
    return _renamed(name, _OFFICIAL)


def huggingface_name(name: str, architecture: str = "bert") -> tuple[str, bool]:
    """Returns Hugging Face's name of our tensor, and whether its array is the transpose of ours.

    >>> huggingface_name("layers/3/output/kernel")
    ('encoder.layer.3.output.dense.weight', True)
    >>> huggingface_name("layers/3/output/bias", "distilbert")
    ('transformer.layer.3.ffn.lin2.bias', False)
    """
    plain = _renamed(name, _GOOGLE)
    if name.startswith("layers/"):
        _, number, kind, part = name.split("/")
        module = _LAYER_NAMES[kind][_GOOGLE]
        module = _HUGGINGFACE_LAYER_NAMES.get(architecture, {}).get(kind, module)
        plain = f"{huggingface_layers(architecture)}{number}/{module}/{part}"
    module, _, part = plain.replace("/", ".").rpartition(".")
    if name in _TENSORS:
        return f"{module}.{part}.weight", False
    return f"{module}.{_HUGGINGFACE_PARTS[part]}", part == "kernel"


def huggingface_layers(architecture: str) -> str:
    """Returns what Hugging Face's names have before the number of a layer."""
    return "transformer.layer." if architecture == "distilbert" else "encoder.layer."


def _renamed(name: str, column: int) -> str:
    if name in _TENSORS:
        return _NAMES[name][column]
    module, _, part = name.rpartition("/")
    if not module.startswith("layers/"):
        return f"{_NAMES[module][column]}/{part}"
    _, number, kind = module.split("/")
    return f"{_LAYERS[column]}{number}/{_LAYER_NAMES[kind][column]}/{part}"


def tensor_shapes(
    config: BertConfig, pooler: bool = True, dense: Sequence[DenseModule] = ()
) -> dict[str, tuple[int, ...]]:
    """Returns the name and shape of every tensor of a BERT encoder and its Dense modules.

    A kernel is `[in, out]`, so that `x @ kernel + bias` is the layer.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    width = config.embedding_size or hidden
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word": (config.vocab_size, width),
        "embeddings/position": (config.max_position_embeddings, width),
    }
    if config.type_vocab_size:
        shapes["embeddings/type"] = (config.type_vocab_size, width)
    if config.relative_buckets:
        shapes["embeddings/relative"] = (config.relative_buckets, config.num_attention_heads)
    layers = {"pooler": (hidden, hidden)} if pooler else {}
    if config.embedding_size:
        layers["embeddings/project"] = (width, hidden)
    norms: list[str] = []
    for layer in (f"layers/{number}" for number in range(config.num_hidden_layers)):
        for name in ("query", "key", "value", "attention_output"):
            layers[f"{layer}/{name}"] = (hidden, hidden)
        layers[f"{layer}/intermediate"] = (hidden, inner)
        layers[f"{layer}/output"] = (inner, hidden)
        norms += [f"{layer}/attention_norm", f"{layer}/output_norm"]
    for name, shape in layers.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name, size in {"embeddings/norm": width, **dict.fromkeys(norms, hidden)}.items():
        shapes |= {f"{name}/gamma": (size,), f"{name}/beta": (size,)}
    for number, module in enumerate(dense):
        shapes[f"dense/{number}/kernel"] = (module.in_features, module.out_features)
        if module.bias:
            shapes[f"dense/{number}/bias"] = (module.out_features,)
    return shapes


def parameter_count(
    config: BertConfig, pooler: bool = True, dense: Sequence[DenseModule] = ()
) -> int:
    """Returns how many numbers the tensors hold.

    >>> parameter_count(BertConfig(30522, 768, 12, 12, 3072, 512))
    109482240
    """
    return sum(math.prod(shape) for shape in tensor_shapes(config, pooler, dense).values())


def fused_attention(
    tensors: Mapping[str, np.ndarray], layer: str, head_width: int
) -> dict[str, np.ndarray]:
    """Returns query, key and value side by side, the query divided by sqrt(head width)."""
    scale = np.float32(1 / math.sqrt(head_width))
    fused = {}
    for part in ("kernel", "bias"):
        query, key, value = (
            tensors[f"{layer}/{name}/{part}"] for name in ("query", "key", "value")
        )
        fused[f"qkv/{part}"] = np.concatenate([query * scale, key, value], axis=-1)
    return fused


def relative_scores(tensors: Mapping[str, np.ndarray], positions: int) -> np.ndarray:
    """Returns what MPNet adds to the scores of two tokens by their distance.

    A group holds one distance up to 7, and more the larger they are; from 128 on it is the same.
    Groups of earlier and later tokens differ.

    Args:
        tensors: Those of the model.
        positions: Maximum number of tokens of a row.

    Returns:
        float32 `[heads, 2 * positions - 1]`, for the places of the second token minus the first
        from `1 - positions` to `positions - 1`.
    """
    table = tensors["embeddings/relative"]
    half = len(table) // 2
    exact = half // 2
    places = np.arange(1 - positions, positions)
    distances = np.maximum(np.abs(places), 1).astype(np.float32)
    steps = np.log(distances / np.float32(exact)) / np.float32(math.log(_FAR / exact))
    grouped = exact + (steps * np.float32(half - exact)).astype(np.int64)
    groups = np.where(np.abs(places) < exact, np.abs(places), np.minimum(grouped, half - 1))
    return np.ascontiguousarray(table[groups + half * (places > 0)].T)
