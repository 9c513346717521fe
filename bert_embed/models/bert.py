"""BERT, DistilBERT, ELECTRA, MPNet, RoBERTa, XLM-RoBERTa and CamemBERT."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import (
    HUGGINGFACE_PARTS,
    SIZES,
    Classifier,
    EncoderConfig,
    MaskedLM,
    Ops,
    Source,
    activation,
    norm_shapes,
    product_shapes,
    required,
)

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


ROBERTAS = ("roberta", "xlm-roberta", "camembert")  # one encoder, with different tokenizers
_DISTILBERT_FIELDS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
# Of one architecture alone; positions that were computed are among the weights, too.
_SETTINGS = {
    "distilbert": (*_DISTILBERT_FIELDS.values(), "sinusoidal_pos_embds"),
    "electra": ("embedding_size",),
    "mpnet": ("relative_attention_num_buckets",),
}
_PADDING = 1  # where config.json names no pad_token_id
_MPNET_BUCKETS = 32
_FAR = 128  # tokens: MPNet's distances from here on are one group
_RELATIVE = "relative_scores"


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """An encoder of BERT's family: position embeddings, and norms after what they belong to."""

    seldom: ClassVar[tuple[str, ...]] = ("embedding_size", "relative_buckets")
    model_types: ClassVar[Mapping[str, str]] = {
        "bert": "a BERT encoder",
        "distilbert": "a DistilBERT encoder",
        "electra": "an ELECTRA encoder",
        "mpnet": "an MPNet encoder",
        "roberta": "a RoBERTa encoder",
        "xlm-roberta": "an XLM-RoBERTa encoder",
        "camembert": "a CamemBERT encoder",
    }
    in_tables: ClassVar[tuple[str, ...]] = ("embeddings/relative",)
    prefixes: ClassVar[tuple[str, ...]] = ("bert.", "distilbert.", "electra.", "mpnet.", "roberta.")
    ignored: ClassVar[tuple[str, ...]] = (
        *EncoderConfig.ignored,
        *(r"pre_classifier\.", r"vocab_(transform|layer_norm|projector)\."),
        *(
            r"(discriminator|generator)_predictions\.",
            r"generator_lm_head\.",
            r"sequence_summary\.",
        ),
    )
    masked_lms: ClassVar[Mapping[str, MaskedLM]] = {
        "bert": MaskedLM(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
            activation="hidden_act",
        ),
        "distilbert": MaskedLM(
            *("vocab_transform", "vocab_layer_norm", "vocab_projector"), activation="activation"
        ),
        "electra": MaskedLM(
            *("generator_predictions.dense", "generator_predictions.LayerNorm"), "generator_lm_head"
        ),
        **dict.fromkeys(
            ("mpnet", *ROBERTAS),
            MaskedLM("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        ),
    }
    classifiers: ClassVar[Mapping[str, Classifier]] = {
        "bert": Classifier("pooler.dense", "classifier"),
        "distilbert": Classifier("pre_classifier", "classifier", "relu"),
        "electra": Classifier("classifier.dense", "classifier.out_proj", "gelu"),
        **dict.fromkeys(
            ("mpnet", *ROBERTAS), Classifier("classifier.dense", "classifier.out_proj")
        ),
    }
    renamed: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    )
    settings: ClassVar[tuple[str, ...]] = (
        *("hidden_act", "type_vocab_size", "layer_norm_eps", "position_embedding_type"),
    )
    embedding_size: int = 0  # where not `hidden_size`, to which a product then brings it; else 0
    relative_buckets: int = 0  # groups of distances, each adds to the scores of each head

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive(*self.seldom, prefix="config: ", least=0)
        if self.relative_buckets not in (0, _MPNET_BUCKETS):
            raise InputError(
                f"config: relative_buckets must be {_MPNET_BUCKETS}, got {self.relative_buckets}"
            )

    @classmethod
    def from_huggingface(cls, values: Mapping[str, Any]) -> "BertConfig":
        model_type = values["model_type"]
        positions = values.get("position_embedding_type", "absolute")
        if positions not in ("absolute", None):
            raise InputError(
                f"config.json: position_embedding_type must be 'absolute', got {positions!r}"
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise InputError("config.json: is_decoder must be false, decoders are not supported")
        theirs = _DISTILBERT_FIELDS if model_type == "distilbert" else {}
        required(values, [theirs.get(name, name) for name in SIZES])
        sizes = {name: values[theirs.get(name, name)] for name in SIZES}
        return cls(
            **{
                **sizes,
                "hidden_act": activation(values, theirs.get("hidden_act", "hidden_act")),
                "type_vocab_size": values.get("type_vocab_size", 2),
                "layer_norm_eps": values.get("layer_norm_eps", 1e-12),
                **_peculiarities(model_type, sizes, values),
            }
        )

    @classmethod
    def unknown_settings(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        unknown = super().unknown_settings(values)
        known = _SETTINGS.get(values["model_type"], ())
        return {name: value for name, value in unknown.items() if name not in known}

    def huggingface_tensor(self, name: str, values: Mapping[str, Any]) -> Source:
        theirs, turned = huggingface_name(name, values["model_type"])
        # The first positions of MPNet and RoBERTa are never a text's.
        unused = values["max_position_embeddings"] - self.max_position_embeddings
        return Source(theirs, turned, skipped=unused if name == "embeddings/position" else 0)

    def huggingface_layers(self, values: Mapping[str, Any]) -> str:
        return huggingface_layers(values["model_type"])

    def shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        width = self.embedding_size or hidden
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings/word": (self.vocab_size, width),
            "embeddings/position": (self.max_position_embeddings, width),
        }
        if self.type_vocab_size:
            shapes["embeddings/type"] = (self.type_vocab_size, width)
        if self.relative_buckets:
            shapes["embeddings/relative"] = (self.relative_buckets, self.num_attention_heads)
        kernels = {"embeddings/project": (width, hidden)} if self.embedding_size else {}
        norms = {"embeddings/norm": width}
        for layer in self.layer_names:
            for name in ("query", "key", "value", "attention_output"):
                kernels[f"{layer}/{name}"] = (hidden, hidden)
            kernels[f"{layer}/intermediate"] = (hidden, inner)
            kernels[f"{layer}/output"] = (inner, hidden)
            norms |= dict.fromkeys((f"{layer}/attention_norm", f"{layer}/output_norm"), hidden)
        return shapes | product_shapes(kernels) | norm_shapes(norms)

    def tables(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self.relative_buckets:
            return {}
        relative = tensors["embeddings/relative"]
        return {_RELATIVE: relative_scores(relative, self.max_position_embeddings)}

    def hidden_states(self, ops: Ops, ids: Any, types: Any) -> Iterator[Any]:
        x = ops.gather("embeddings/word", ids)
        if self.type_vocab_size:
            x = ops.add(x, ops.gather("embeddings/type", types))
        x = ops.flat(ops.add(x, ops.first_rows("embeddings/position")))
        x = ops.norm(x, "embeddings/norm")
        if self.embedding_size:
            x = ops.product(x, "embeddings/project")
        yield x
        added = ops.by_distance(_RELATIVE) if self.relative_buckets else None
        for layer in self.layer_names:
            attended = ops.product(ops.attention(x, layer, added), f"{layer}/attention_output")
            x = ops.norm(ops.add(attended, x), f"{layer}/attention_norm")
            inner = ops.activated(ops.product(x, f"{layer}/intermediate"), self.hidden_act)
            x = ops.norm(ops.add(ops.product(inner, f"{layer}/output"), x), f"{layer}/output_norm")
            yield x


def _peculiarities(
    model_type: str, sizes: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields in which an architecture differs from BERT."""
    if model_type == "distilbert":
        return {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
    if model_type == "electra":
        width = values.get("embedding_size", 128)  # transformers' default
        return {"embedding_size": 0 if width == sizes["hidden_size"] else width}
    if model_type not in ("mpnet", *ROBERTAS):
        return {}
    positions, padding = sizes["max_position_embeddings"], padding_of(values)
    if isinstance(positions, int):
        positions -= padding + 1  # those before a text's first token are never used
    if model_type != "mpnet":
        return {"max_position_embeddings": positions}
    buckets = values.get("relative_attention_num_buckets", _MPNET_BUCKETS)
    return {
        "max_position_embeddings": positions,
        "type_vocab_size": 0,
        "relative_buckets": buckets,
    }


def padding_of(values: Mapping[str, Any]) -> int:
    """Returns the position, and the id, of padding, behind which those of texts begin."""
    padding = values.get("pad_token_id", _PADDING)
    if values["model_type"] == "mpnet":
        return _PADDING  # whatever its config.json says
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise InputError(
            f"config.json: pad_token_id must be a whole number, from which positions of "
            f"{values['model_type']} are counted, got {padding!r}"
        )
    return padding


def relative_scores(table: np.ndarray, positions: int) -> np.ndarray:
    """Returns what MPNet adds to the scores of two tokens, float32 `[heads, 2 * positions - 1]`.

    `table` is float32 `[groups, heads]`. A group holds one distance up to 7, and more the larger
    they are; from 128 on it is the same. Groups of earlier and later tokens differ.
    """
    half = len(table) // 2
    exact = half // 2
    places = np.arange(1 - positions, positions)
    distances = np.maximum(np.abs(places), 1).astype(np.float32)
    steps = np.log(distances / np.float32(exact)) / np.float32(math.log(_FAR / exact))
    grouped = exact + (steps * np.float32(half - exact)).astype(np.int64)
    groups = np.where(np.abs(places) < exact, np.abs(places), np.minimum(grouped, half - 1))
    return np.ascontiguousarray(table[groups + half * (places > 0)].T)
