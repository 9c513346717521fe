"""Names the tensors of a model, here and in the formats that are imported, and their shapes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert.config import BertConfig, DenseModule

# Our name of each module, and those of google-research and of tf-models-official. Hugging Face has
# google-research's, with points. The embeddings are tensors themselves.
_NAMES = {
    "embeddings/word": ("embeddings/word_embeddings", "word_embeddings/embeddings"),
    "embeddings/position": ("embeddings/position_embeddings", "position_embedding/embeddings"),
    "embeddings/type": ("embeddings/token_type_embeddings", "type_embeddings/embeddings"),
    "embeddings/norm": ("embeddings/LayerNorm", "embeddings/layer_norm"),
    "pooler": ("pooler/dense", "pooler_transform"),
}
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


def huggingface_name(name: str) -> tuple[str, bool]:
    """Returns Hugging Face's name of our tensor, and whether its array is the transpose of ours.

    >>> huggingface_name("layers/3/output/kernel")
    ('encoder.layer.3.output.dense.weight', True)
    """
    plain = _renamed(name, _GOOGLE).replace("layer_", "layer/").replace("/", ".")
    module, _, part = plain.rpartition(".")
    if name in _NAMES:
        return f"{plain}.weight", False
    return f"{module}.{_HUGGINGFACE_PARTS[part]}", part == "kernel"


def _renamed(name: str, column: int) -> str:
    if name in _NAMES:
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
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word": (config.vocab_size, hidden),
        "embeddings/position": (config.max_position_embeddings, hidden),
        "embeddings/type": (config.type_vocab_size, hidden),
    }
    layers = {"pooler": (hidden, hidden)} if pooler else {}
    norms = ["embeddings/norm"]
    for layer in (f"layers/{number}" for number in range(config.num_hidden_layers)):
        for name in ("query", "key", "value", "attention_output"):
            layers[f"{layer}/{name}"] = (hidden, hidden)
        layers[f"{layer}/intermediate"] = (hidden, inner)
        layers[f"{layer}/output"] = (inner, hidden)
        norms += [f"{layer}/attention_norm", f"{layer}/output_norm"]
    for name, shape in layers.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name in norms:
        shapes |= {f"{name}/gamma": (hidden,), f"{name}/beta": (hidden,)}
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
