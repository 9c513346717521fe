"""BERT, DistilBERT, ELECTRA, MPNet, RoBERTa, XLM-RoBERTa and CamemBERT."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.models.encoder import (
    Classifier,
    EncoderConfig,
    MaskedLM,
    Ops,
    TensorSource,
    activation,
    norm_shapes,
    product_shapes,
    sizes_of,
)

# Hugging Face's names of our modules; the first four are tensors themselves. Google-research has
# the same, with slashes.
MODULES = {
    "embeddings/word": "embeddings.word_embeddings",
    "embeddings/position": "embeddings.position_embeddings",
    "embeddings/type": "embeddings.token_type_embeddings",
    "embeddings/relative": "encoder.relative_attention_bias",  # of MPNet
    "embeddings/norm": "embeddings.LayerNorm",
    "embeddings/project": "embeddings_project",  # of ELECTRA
    "pooler": "pooler.dense",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
# Those that differ.
_MODULES_OF = {
    "distilbert": {
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attention_output": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "intermediate": "ffn.lin1",
        "output": "ffn.lin2",
        "output_norm": "output_layer_norm",
    },
    "mpnet": {
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "attention_output": "attention.attn.o",
        "attention_norm": "attention.LayerNorm",
    },
}
_GOOGLE = {ours: theirs.replace(".", "/") for ours, theirs in MODULES.items()}
_OFFICIAL = {
    "embeddings/word": "word_embeddings/embeddings",
    "embeddings/position": "position_embedding/embeddings",
    "embeddings/type": "type_embeddings/embeddings",
    "embeddings/norm": "embeddings/layer_norm",
    "pooler": "pooler_transform",
    "query": "self_attention/query",
    "key": "self_attention/key",
    "value": "self_attention/value",
    "attention_output": "self_attention/attention_output",
    "attention_norm": "self_attention_layer_norm",
    "intermediate": "intermediate",
    "output": "output",
    "output_norm": "output_layer_norm",
}


def google_name(name: str) -> str:
    """Returns google-research's name of our tensor.

    >>> google_name("layers/3/output/kernel"), google_name("embeddings/word")
    ('bert/encoder/layer_3/output/dense/kernel', 'bert/embeddings/word_embeddings')
    """
    return f"bert/{_renamed(name, _GOOGLE, 'encoder/layer_')}"


def official_name(name: str) -> str:
    """Returns tf-models-official's name of our tensor, such as "word_embeddings/embeddings"."""
    return _renamed(name, _OFFICIAL, "transformer/layer_")


def _renamed(name: str, modules: Mapping[str, str], layers: str) -> str:
    if name in modules:
        return modules[name]
    module, _, part = name.rpartition("/")
    if not module.startswith("layers/"):
        return f"{modules[module]}/{part}"
    _, number, kind = module.split("/")
    return f"{layers}{number}/{modules[kind]}/{part}"


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
    from_zero: ClassVar[tuple[str, ...]] = (*EncoderConfig.from_zero, *seldom)
    known_sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {"relative_buckets": (0, _MPNET_BUCKETS)}
    model_types: ClassVar[Mapping[str, str]] = {
        "bert": "a BERT encoder",
        "distilbert": "a DistilBERT encoder",
        "electra": "an ELECTRA encoder",
        "mpnet": "an MPNet encoder",
        "roberta": "a RoBERTa encoder",
        "xlm-roberta": "an XLM-RoBERTa encoder",
        "camembert": "a CamemBERT encoder",
    }
    modules: ClassVar[Mapping[str, str]] = MODULES
    in_tables: ClassVar[tuple[str, ...]] = ("embeddings/relative",)
    prefixes: ClassVar[tuple[str, ...]] = ("bert.", "distilbert.", "electra.", "mpnet.", "roberta.")
    ignored: ClassVar[tuple[str, ...]] = (
        *EncoderConfig.ignored,
        *(r"pre_classifier\.", r"vocab_(transform|layer_norm|projector)\."),
        *(r"(discriminator|generator)_predictions\.", r"generator_lm_head\."),
        r"sequence_summary\.",
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
        sizes = sizes_of(values, theirs)
        usual = {"type_vocab_size": 2, "layer_norm_eps": 1e-12}
        fields = sizes | {name: values.get(name, value) for name, value in usual.items()}
        fields["hidden_act"] = activation(values, theirs.get("hidden_act", "hidden_act"))
        return cls(**fields | _peculiarities(model_type, sizes, values))

    @classmethod
    def unknown_settings(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        unknown = super().unknown_settings(values)
        known = _SETTINGS.get(values["model_type"], ())
        return {name: value for name, value in unknown.items() if name not in known}

    def huggingface_modules(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        return {**self.modules, **_MODULES_OF.get(values["model_type"], {})}

    def huggingface_tensor(self, name: str, values: Mapping[str, Any]) -> TensorSource:
        source = super().huggingface_tensor(name, values)
        if name != "embeddings/position":
            return source
        # The first positions of MPNet and RoBERTa are never a text's.
        unused = values["max_position_embeddings"] - self.max_position_embeddings
        return source._replace(skipped=unused)

    def huggingface_layers(self, values: Mapping[str, Any]) -> str:
        return "transformer.layer." if values["model_type"] == "distilbert" else "encoder.layer."

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
        kernels |= self.in_layers(intermediate=(hidden, inner), output=(inner, hidden))
        for layer in self.layer_names:
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
    fields = {"type_vocab_size": 0, "relative_buckets": buckets}
    return {"max_position_embeddings": positions, **fields}


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
