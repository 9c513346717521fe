"""Reads the head of a masked language model, which makes sparse vectors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.architectures.encoder import ACTIVATIONS, EncoderConfig, activation
from bert_embed.architectures.jina import JinaConfig
from bert_embed.architectures.rotary import GATES
from bert_embed.heads.sparse import QUERY_WEIGHTS, SparseHead
from bert_embed.importers.json_files import optional_object, read_object, refuse_unknown
from bert_embed.importers.weights import check_shapes, read_arrays, read_safetensors
from bert_embed.storage.errors import InputError

_SPLADE_KNOWN = frozenset(
    (
        *("pooling_strategy", "activation_function", "chunk_size"),
        *("embedding_dimension", "word_embedding_dimension"),
    )
)
_STATIC_KNOWN = frozenset(("path", "frozen"))  # of SparseStaticEmbedding


@dataclass(frozen=True)
class _Names:
    """The modules of a family's head, and the activation of its first product."""

    transform: str
    norm: str
    decoder: str
    bias: str  # of the decoder, where it is not the decoder's own
    activation: str = ""  # the name of its setting in config.json; "" is always "gelu"


_OF_BERT = _Names(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.decoder",
    "cls.predictions.bias",
    "hidden_act",
)
_OF_ROBERTA = _Names("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")
_NAMES = {
    "bert": _OF_BERT,
    "distilbert": _Names(
        *("vocab_transform", "vocab_layer_norm", "vocab_projector", ""), "activation"
    ),
    "electra": _Names(
        *("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"), ""
    ),
    "modernbert": _Names("head.dense", "head.norm", "decoder", "", "classifier_activation"),
    **dict.fromkeys(("mpnet", "roberta", "xlm-roberta", "camembert"), _OF_ROBERTA),
}


def read_splade_pooling(path: Path) -> Mapping[str, str]:
    """Returns the settings of a SpladePooling module, for `SparseHead`."""
    values = read_object(path)
    refuse_unknown(path, values, _SPLADE_KNOWN)
    settings = {
        "pooling": values.get("pooling_strategy", "max"),
        "activation": values.get("activation_function", "relu"),
    }
    for name, allowed in (("pooling", ("max", "sum")), ("activation", ("relu", "log1p_relu"))):
        if settings[name] not in allowed:
            raise InputError(
                f"{path}: {name} must be {' or '.join(allowed)}, got {settings[name]!r}"
            )
    return settings


def is_masked_lm(values: Mapping[str, Any]) -> bool:
    """Returns whether config.json names what SparseEncoder takes without modules."""
    names = values.get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForMaskedLM") for name in names)


def read_mlm_head(
    folder: Path,
    config: EncoderConfig,
    values: Mapping[str, Any],
    words: np.ndarray,
    settings: Mapping[str, Any],
    convert: str,
) -> tuple[SparseHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; `values` are config.json's, `words` the table."""
    names = _NAMES.get(values["model_type"])
    if names is None or isinstance(config, JinaConfig):
        raise InputError(
            f"{folder}: sparse vectors of {config.model_types[values['model_type']]} are not "
            f"supported, those of {', '.join(_NAMES)} are"
        )
    arrays = _read(folder, config, names, convert)
    bias = arrays.pop(f"{names.decoder}.bias", None)
    other = arrays.pop(names.bias, None) if names.bias else None
    bias = other if bias is None else bias
    decoder = arrays.pop(f"{names.decoder}.weight", None)
    if decoder is None and values.get("tie_word_embeddings") is False:
        raise InputError(
            f"{folder}: the weights hold no {names.decoder}.weight, and tie_word_embeddings of "
            "config.json is false, so that they lack the head of the masked language model"
        )
    own = decoder is not None and not np.array_equal(decoder, words)
    known = GATES if values["model_type"] == "modernbert" else ACTIVATIONS
    transform = activation(values, names.activation, known) if names.activation else "gelu"
    head = SparseHead(
        **dict(settings),
        transform=transform,
        transform_bias=f"{names.transform}.bias" in arrays,
        norm_bias=f"{names.norm}.bias" in arrays,
        decoder="own" if own else "tied",
        decoder_bias=bias is not None,
    )
    ours = {
        "heads/sparse/transform/kernel": arrays.pop(f"{names.transform}.weight", None),
        "heads/sparse/transform/bias": arrays.pop(f"{names.transform}.bias", None),
        "heads/sparse/norm/gamma": arrays.pop(f"{names.norm}.weight", None),
        "heads/sparse/norm/beta": arrays.pop(f"{names.norm}.bias", None),
        "heads/sparse/decoder": decoder if own else None,
        "heads/sparse/decoder_bias": bias,
    }
    tensors = {name: array for name, array in ours.items() if array is not None}
    kernel = tensors.get("heads/sparse/transform/kernel")
    if kernel is None:
        raise InputError(
            f"{folder}: the weights hold no {names.transform}.weight: they lack the head of the "
            "masked language model, which makes sparse vectors"
        )
    tensors["heads/sparse/transform/kernel"] = kernel.T
    shapes = {name: array.shape for name, array in tensors.items()}
    check_shapes(folder, shapes, head.shapes(config), "the head of a masked language model")
    return head, tensors


def _read(folder: Path, config: EncoderConfig, names: _Names, convert: str) -> dict[str, Any]:
    modules = (names.transform, names.norm, names.decoder)
    wanted = {f"{module}.{part}" for module in modules for part in ("weight", "bias")}
    wanted |= {names.bias} - {""}

    def plain(key: str) -> str:
        return key.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        )

    return read_arrays(folder, convert, lambda key: plain(key) in wanted, plain)


def read_query_weights(
    folder: Path, root: Path, config: EncoderConfig, vocabulary: Sequence[str]
) -> dict[str, np.ndarray]:
    """Returns the weights of a SparseStaticEmbedding, float32 `[vocab_size]`."""
    weights = np.zeros(config.vocab_size, np.float32)
    values = optional_object(folder / "config.json")
    refuse_unknown(folder / "config.json", values, _STATIC_KNOWN)
    named = values.get("path")
    if isinstance(named, str) and named.endswith(".json"):
        places = [place / Path(named).name for place in (folder, root)]
        path = next((place for place in places if place.is_file()), places[0])
        numbers = {token: number for number, token in enumerate(vocabulary)}
        for token, weight in read_object(path).items():
            if token not in numbers or type(weight) not in (int, float):
                raise InputError(
                    f"{path}: must hold a number for tokens of the model, got "
                    f"{json.dumps(token)}: {json.dumps(weight)}"
                )
            weights[numbers[token]] = weight
    else:
        path = folder / "model.safetensors"
        arrays = dict(read_safetensors(path))
        array = arrays.get("weight")
        if array is None or array.ndim != 1 or len(array) > config.vocab_size:
            raise InputError(f"{path}: must hold a weight for each of {config.vocab_size} tokens")
        weights[: len(array)] = array
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InputError(f"{path}: weights of tokens must be numbers of at least 0")
    return {QUERY_WEIGHTS: weights}
