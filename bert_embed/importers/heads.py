"""Reads what models have behind the encoder: masked language models, classifiers."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.importers.weights import (
    EncoderFiles,
    architectures,
    check_shapes,
    object_in,
    optional_object,
    read_arrays,
    read_object,
    read_safetensors,
    refuse_unknown,
    torch_activation,
)
from bert_embed.models.encoder import Classifier, EncoderConfig, MaskedLM, activation
from bert_embed.models.families import FAMILIES
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.sparse import QUERY_WEIGHTS, SparseHead

_SPLADE_KNOWN = frozenset(
    (
        *("pooling_strategy", "activation_function", "chunk_size"),
        *("embedding_dimension", "word_embedding_dimension"),
    )
)
_STATIC_KNOWN = frozenset(("path", "frozen"))  # of SparseStaticEmbedding


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
    return any(name.endswith("ForMaskedLM") for name in architectures(values))


def read_mlm_head(
    files: EncoderFiles, words: np.ndarray, settings: Mapping[str, Any]
) -> tuple[SparseHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; `words` is the table of the embeddings."""
    folder, config, values = files.folder, files.config, files.values
    names: MaskedLM = _modules_of(files, "masked_lms", "sparse vectors")
    modules = names.transform, names.norm, names.decoder
    arrays = _read_modules(files, modules, names.bias)
    own_bias = f"{names.decoder}.bias"
    bias = arrays.get(own_bias, arrays.get(names.bias))
    decoder = arrays.get(f"{names.decoder}.weight")
    if values.get("tie_word_embeddings") is False:
        if decoder is None:
            raise InputError(
                f"{folder}: the weights hold no {names.decoder}.weight, and tie_word_embeddings of "
                "config.json is false, so that they lack the head of the masked language model"
            )
        if own_bias not in arrays and names.bias in arrays:
            raise InputError(
                f"{folder}: the weights hold no {own_bias}, for which transformers 4 takes "
                f"{names.bias}, and 5 nothing where tie_word_embeddings of config.json is false; "
                "set that to true if the decoder has this bias"
            )
    transform = "gelu"
    if names.activation:
        transform = activation(values, names.activation, config.activations)
    tensors = _tensors("heads/sparse/transform", arrays, names.transform)
    tensors |= _tensors("heads/sparse/norm", arrays, names.norm, ("gamma", "beta"))
    if decoder is not None and np.array_equal(decoder, words):
        decoder = None  # tied
    others = {"heads/sparse/decoder": decoder, "heads/sparse/decoder_bias": bias}
    tensors |= {name: array for name, array in others.items() if array is not None}
    head = SparseHead(
        **dict(settings),
        transform=transform,
        transform_bias="heads/sparse/transform/bias" in tensors,
        norm_bias="heads/sparse/norm/beta" in tensors,
        decoder="tied" if decoder is None else "own",
        decoder_bias=bias is not None,
    )
    if "heads/sparse/transform/kernel" not in tensors:
        raise InputError(
            f"{folder}: the weights hold no {names.transform}.weight: they lack the head of the "
            "masked language model, which makes sparse vectors"
        )
    check_shapes(folder, tensors, head.shapes(config), "the head of a masked language model")
    return head, tensors


def _modules_of(files: EncoderFiles, table: str, what: str) -> Any:
    """Returns where a head is, by a table of the family's configuration."""
    model_type = files.values["model_type"]
    names = getattr(files.config, table).get(model_type)
    if names is None:
        known = ", ".join(name for family in FAMILIES for name in getattr(family, table))
        raise InputError(
            f"{files.folder}: {what} of {files.config.model_types[model_type]} are not supported, "
            f"those of {known} are"
        )
    return names


def _read_modules(
    files: EncoderFiles, modules: Iterable[str], also: str = ""
) -> dict[str, np.ndarray]:
    """Returns weights and biases of modules behind the encoder, and a tensor by its name."""
    wanted, plain = {also}, files.config.plain_name
    for module in modules:
        setting, usual = files.config.head_biases.get(module, ("", True))
        wanted |= {f"{module}.weight"}
        wanted |= {f"{module}.bias"} if files.values.get(setting, usual) else set()
    return read_arrays(files.folder, files.convert, lambda key: plain(key) in wanted, plain)


def _tensors(
    ours: str,
    arrays: Mapping[str, np.ndarray],
    theirs: str,
    parts: tuple[str, str] = ("kernel", "bias"),
) -> dict[str, np.ndarray]:
    """Returns the weights and biases of their module that are there, as ours has them."""
    tensors = {}
    for part, name in zip(parts, (f"{theirs}.weight", f"{theirs}.bias"), strict=True):
        if name in arrays:
            tensors[f"{ours}/{part}"] = arrays[name].T if part == "kernel" else arrays[name]
    return tensors


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


_ARCHITECTURE = re.compile(r"\w+ForSequenceClassification")
_BY_PROBLEM = {
    "regression": "none",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
_BY_TORCH = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}


def is_classifier(config: EncoderConfig, values: Mapping[str, Any]) -> bool:
    """Returns whether config.json names a head for sequence classification that is supported."""
    named = any(map(_ARCHITECTURE.fullmatch, architectures(values)))
    return named and values["model_type"] in config.classifiers


def read_classifier(
    files: EncoderFiles, activation_name: str | None, of_cross_encoder: bool
) -> tuple[ScoresHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; the name is that of a CrossEncoder's settings."""
    folder, config, values = files.folder, files.config, files.values
    path = folder / "config.json"
    names: Classifier = _modules_of(files, "classifiers", "scores")
    dense, classifier, dense_activation = names.dense, names.logits, names.activation
    if names.setting:
        dense_activation = activation(values, names.setting, config.activations)
    arrays = _read_modules(files, (dense, classifier, names.norm))
    if f"{classifier}.weight" not in arrays:
        raise InputError(
            f"{folder}: the weights hold no {classifier}.weight, which makes the scores; if the "
            "model has none, take ForSequenceClassification out of config.json's architectures"
        )
    tensors = _tensors("heads/scores/dense", arrays, dense)
    tensors |= _tensors("heads/scores/norm", arrays, names.norm, ("gamma", "beta"))
    tensors |= _tensors("heads/scores/classifier", arrays, classifier)
    kernel = tensors["heads/scores/classifier/kernel"]
    labels = _labels(path, values, kernel.shape[-1])
    head = ScoresHead(
        labels=labels,
        activation=_activation(path, values, len(labels), activation_name, of_cross_encoder),
        pooling=_pooling(path, values, names.pooling),
        dense=dense_activation,
        dense_bias="heads/scores/dense/bias" in tensors,
        norm=bool(names.norm),
        norm_bias="heads/scores/norm/beta" in tensors,
        bias="heads/scores/classifier/bias" in tensors,
    )
    check_shapes(folder, tensors, head.shapes(config), "a classifier's head")
    return head, tensors


def _labels(path: Path, values: Mapping[str, Any], count: int) -> tuple[str, ...]:
    named = values.get("id2label")
    if named is None:
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(named, dict) or set(named) != {str(number) for number in range(count)}:
        raise InputError(f"{path}: id2label must name each of the {count} labels of the weights")
    labels = tuple(str(named[str(number)]) for number in range(count))
    if len(set(labels)) < count:
        raise InputError(f"{path}: id2label must name each label once")
    return labels


def _activation(
    path: Path,
    values: Mapping[str, Any],
    labels: int,
    named: str | None,
    of_cross_encoder: bool,
) -> Any:
    """Softmax, sigmoid or none, as transformers' pipeline and CrossEncoder decide."""
    if not named:  # releases 4 and 5 of sentence-transformers have it here, as those before
        ours = object_in(path, values, "sentence_transformers")
        of_cross_encoder |= bool(ours)
        refuse_unknown(path, ours, frozenset(("activation_fn", "version")))
        named = ours.get("activation_fn", values.get("sbert_ce_default_activation_function"))
    if named is not None:
        return torch_activation(path, "the activation of scores", named, _BY_TORCH)
    if of_cross_encoder:
        return "sigmoid" if labels == 1 else "none"
    problem = values.get("problem_type")
    if problem is None or (labels == 1 and problem == "single_label_classification"):
        return "sigmoid" if labels == 1 else "softmax"
    if problem not in _BY_PROBLEM:
        raise InputError(
            f"{path}: problem_type must be one of {', '.join(_BY_PROBLEM)}, got {problem!r}"
        )
    return _BY_PROBLEM[problem]


def _pooling(path: Path, values: Mapping[str, Any], setting: str) -> Any:
    pooling = values.get(setting, "cls") if setting else "cls"
    if pooling not in ("cls", "mean"):
        raise InputError(f"{path}: {setting} must be cls or mean, got {pooling!r}")
    return pooling
