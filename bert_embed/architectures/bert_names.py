"""Names the tensors of BERT's family in the formats that are imported."""

from bert_embed.architectures.encoder import HUGGINGFACE_PARTS

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


def google_name(name: str) -> str:
    """Returns google-research's name of our tensor.

    >>> google_name("layers/3/output/kernel"), google_name("embeddings/word")
    ('bert/encoder/layer_3/output/dense/kernel', 'bert/embeddings/word_embeddings')
    """
    return f"bert/{_renamed(name, _GOOGLE)}"


def official_name(name: str) -> str:
    """Returns tf-models-official's name of our tensor, such as "word_embeddings/embeddings"."""
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
    return f"{module}.{HUGGINGFACE_PARTS[part]}", part == "kernel"


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
