"""Reads the head of a classifier, or of a cross-encoder, which makes scores."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig, activation
from bert_embed.architectures.rotary import GATES
from bert_embed.heads.scores import ScoresHead
from bert_embed.importers.json_files import object_in, refuse_unknown
from bert_embed.importers.weights import check_shapes, read_arrays
from bert_embed.storage.errors import InputError

_ARCHITECTURE = re.compile(r"\w+ForSequenceClassification")
# The product before the logits, its activation, and the logits; "" is the pooler's.
_OF_ROBERTA = ("classifier.dense", "tanh", "classifier.out_proj")
_NAMES = {
    "bert": ("pooler.dense", "tanh", "classifier"),
    "distilbert": ("pre_classifier", "relu", "classifier"),
    "electra": ("classifier.dense", "gelu", "classifier.out_proj"),
    "modernbert": ("head.dense", "", "classifier"),
    **dict.fromkeys(("mpnet", "roberta", "xlm-roberta", "camembert"), _OF_ROBERTA),
}
_MODERN_NORM = "head.norm"
_BY_PROBLEM = {
    "regression": "none",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}
_BY_TORCH = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}
_TORCH = re.compile(r"torch\.nn\.(?:\w+\.)*(\w+)(\(\))?$")


def is_classifier(values: Mapping[str, Any]) -> bool:
    """Returns whether config.json names a head for sequence classification that is supported."""
    names = values.get("architectures")
    named = isinstance(names, list) and any(
        isinstance(name, str) and _ARCHITECTURE.fullmatch(name) for name in names
    )
    return named and values["model_type"] in _NAMES


def read_classifier(
    folder: Path,
    config: EncoderConfig,
    values: Mapping[str, Any],
    activation_name: str | None,
    convert: str,
) -> tuple[ScoresHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; `values` are config.json's.

    `activation_name` is the one that the settings of a CrossEncoder name.
    """
    path = folder / "config.json"
    model_type = values["model_type"]
    if model_type not in _NAMES:
        raise InputError(
            f"{folder}: scores of {config.model_types[model_type]} are not supported, those of "
            f"{', '.join(_NAMES)} are"
        )
    dense, dense_activation, classifier = _NAMES[model_type]
    modern = model_type == "modernbert"
    if modern:
        dense_activation = activation(values, "classifier_activation", GATES)
    arrays = _read(folder, (dense, classifier, *([_MODERN_NORM] if modern else [])), convert)
    if f"{classifier}.weight" not in arrays:
        raise InputError(
            f"{folder}: the weights hold no {classifier}.weight, which makes the scores; if the "
            "model has none, take ForSequenceClassification out of config.json's architectures"
        )
    ours = {
        "heads/scores/dense/kernel": _turned(arrays.get(f"{dense}.weight")),
        "heads/scores/dense/bias": arrays.get(f"{dense}.bias"),
        "heads/scores/norm/gamma": arrays.get(f"{_MODERN_NORM}.weight"),
        "heads/scores/norm/beta": arrays.get(f"{_MODERN_NORM}.bias"),
        "heads/scores/classifier/kernel": _turned(arrays.get(f"{classifier}.weight")),
        "heads/scores/classifier/bias": arrays.get(f"{classifier}.bias"),
    }
    tensors = {name: array for name, array in ours.items() if array is not None}
    kernel = tensors["heads/scores/classifier/kernel"]
    labels = _labels(path, values, kernel.shape[-1])
    head = ScoresHead(
        labels=labels,
        activation=_activation(path, values, len(labels), activation_name),
        pooling=_pooling(path, values) if modern else "cls",
        dense=dense_activation,
        dense_bias="heads/scores/dense/bias" in tensors,
        norm=modern,
        norm_bias="heads/scores/norm/beta" in tensors,
        bias="heads/scores/classifier/bias" in tensors,
    )
    shapes = {name: array.shape for name, array in tensors.items()}
    check_shapes(folder, shapes, head.shapes(config), "a classifier's head")
    return head, tensors


def _turned(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else array.T


def _read(folder: Path, modules: tuple[str, ...], convert: str) -> dict[str, np.ndarray]:
    """Returns the head's tensors; BERT's pooler has the encoder's prefix."""
    wanted = {f"{module}.{part}" for module in modules for part in ("weight", "bias")}

    def plain(key: str) -> str:
        return key.removeprefix("bert.")

    return read_arrays(folder, convert, lambda key: plain(key) in wanted, plain)


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


def _activation(path: Path, values: Mapping[str, Any], labels: int, named: str | None) -> Any:
    """Softmax, sigmoid or none, as transformers' pipeline and CrossEncoder decide."""
    named = named or _cross_encoder_activation(path, values)
    if named is not None:
        match = _TORCH.match(str(named))
        if match is None or match[1] not in _BY_TORCH:
            raise InputError(
                f"{path}: the activation of scores must be torch.nn's {', '.join(_BY_TORCH)}, "
                f"got {named!r}"
            )
        return _BY_TORCH[match[1]]
    problem = values.get("problem_type")
    if problem is None or (labels == 1 and problem == "single_label_classification"):
        return "sigmoid" if labels == 1 else "softmax"
    if problem not in _BY_PROBLEM:
        raise InputError(
            f"{path}: problem_type must be one of {', '.join(_BY_PROBLEM)}, got {problem!r}"
        )
    return _BY_PROBLEM[problem]


def _cross_encoder_activation(path: Path, values: Mapping[str, Any]) -> Any:
    """What config.json says: releases 4 and 5 of sentence-transformers, and those before."""
    ours = object_in(path, values, "sentence_transformers")
    refuse_unknown(path, ours, frozenset(("activation_fn", "version")))
    return ours.get("activation_fn") or values.get("sbert_ce_default_activation_function")


def _pooling(path: Path, values: Mapping[str, Any]) -> Any:
    pooling = values.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise InputError(f"{path}: classifier_pooling must be cls or mean, got {pooling!r}")
    return pooling
