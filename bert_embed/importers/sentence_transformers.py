"""Reads the settings of a sentence-transformers folder, such as pooling and prompts."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.config import DenseModule
from bert_embed.importers.dense import read_dense
from bert_embed.importers.json_files import (
    check_vector_names,
    inside,
    object_in,
    optional_object,
    read_json,
    read_object,
    refuse_unknown,
)
from bert_embed.specs import VectorSpec
from bert_embed.storage.errors import InputError

_LOG = logging.getLogger(__name__)
_PACKAGE = "sentence_transformers."
_MODULES = "modules.json"
_MODEL = "config_sentence_transformers.json"
_POOLINGS = {
    "cls": "cls",
    "mean": "mean",
    "max": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "lasttoken",
}
# Until release 5 each pooling had its own switch; several are joined in this order.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLING_KNOWN = frozenset(
    (
        *_SWITCHES,
        "pooling_mode",
        "include_prompt",
        "word_embedding_dimension",
        "embedding_dimension",
    )
)
# The Transformer's settings are in one of these files, whatever the model's kind.
_TRANSFORMER = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_AS_USUAL = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
}
# What the modules pass on to transformers, under the names of releases 2 to 5 and of release 6, and
# those of these arguments that change no vector.
_PASSED_ON = (
    *("model_args", "model_kwargs", "config_args", "config_kwargs"),
    *("tokenizer_args", "processor_kwargs"),
)
_HARMLESS = (
    *("add_pooling_layer", "attn_implementation", "trust_remote_code", "use_safetensors"),
    *("unpad_inputs", "use_memory_efficient_attention", "torch_dtype", "dtype"),
)
_TRANSFORMER_KNOWN = frozenset(
    (*_AS_USUAL, *_PASSED_ON, "max_seq_length", "do_lower_case", "unpad_inputs")
)


@dataclass(frozen=True)
class Settings:
    """How a folder's model encodes texts."""

    encoder: str = ""  # folder of config.json and weights, relative to the source
    defaults: VectorSpec = field(default_factory=VectorSpec)
    dense: tuple[DenseModule, ...] = ()  # in order
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)  # float32, of `dense`
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name
    default_prompt: str = ""  # a name; "" for none
    max_seq_length: int | None = None  # most tokens of a row; None where no file says
    do_lower_case: bool = False  # before the tokenizer


def is_sentence_transformers(source: Path) -> bool:
    """Returns whether the folder has modules, and not only an encoder."""
    return (source / _MODULES).is_file()


def read_settings(source: Path) -> Settings:
    """Reads modules.json and the modules; a folder without it has default settings."""
    if not is_sentence_transformers(source):
        return Settings()
    prompts, default_prompt = _read_prompts(source / _MODEL)
    encoder, pooling, normalize = "", VectorSpec(), False
    modules: list[DenseModule] = []
    tensors: dict[str, np.ndarray] = {}
    for kind, path in _ordered_modules(source):
        if kind == "Transformer":
            encoder = path
        elif kind == "Pooling":
            pooling = _read_pooling(inside(source, path) / "config.json")
        elif kind == "Dense":
            module, arrays = read_dense(inside(source, path))
            tensors |= {f"dense/{len(modules)}/{name}": array for name, array in arrays.items()}
            modules.append(module)
        elif kind == "Normalize":
            place = inside(source, path) / "config.json"
            check_vector_names(place, optional_object(place))
            normalize = True
    values = _read_transformer(inside(source, encoder))
    width = modules[-1].out_features if modules else 0
    return Settings(
        encoder=encoder,
        defaults=replace(pooling, dense=width, normalize=normalize),
        dense=tuple(modules),
        tensors=tensors,
        prompts=prompts,
        default_prompt=default_prompt,
        max_seq_length=values.get("max_seq_length"),
        do_lower_case=bool(values.get("do_lower_case")),
    )


def check_widths(settings: Settings, config: EncoderConfig, source: Path) -> None:
    """Checks that widths of Dense modules fit; InputError if not."""
    width = settings.defaults.pooled_width(config)
    for number, module in enumerate(settings.dense):
        if module.in_features != width:
            raise InputError(
                f"{source}: in_features of Dense module {number} must be {width}, the width of its "
                f"input, got {module.in_features}"
            )
        width = module.out_features


# The modules that may follow a module: pooling, then Dense modules, then unit length.
_FOLLOWERS = {
    "": ("Transformer",),
    "Transformer": ("Pooling",),
    "Pooling": ("Dense", "Normalize"),
    "Dense": ("Dense", "Normalize"),
    "Normalize": ("Normalize",),
}


def _ordered_modules(source: Path) -> Iterator[tuple[str, str]]:
    """Yields kind and path of each module that computes something."""
    path = source / _MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InputError(f"{path}: must hold a list of modules")
    before = ""
    for module in modules:
        name = str(module.get("type", ""))
        kind = name.rpartition(".")[2]
        if not name.startswith(_PACKAGE):
            raise InputError(
                f"{path}: module {name} is refused, it is the model's own code; compute it in "
                "sentence-transformers, or take the folder of its encoder alone"
            )
        if kind == "Dropout":  # has an effect in training only
            continue
        if kind not in _FOLLOWERS:
            raise InputError(
                f"{path}: module {kind} is not supported, only Transformer, Pooling, Dense and "
                "Normalize are; take a model without it"
            )
        if kind not in _FOLLOWERS[before]:
            raise InputError(
                f"{path}: module {kind} after {before or 'nothing'} is not supported, the order "
                "must be Transformer, Pooling, Dense, Normalize"
            )
        before = kind
        yield kind, module.get("path", "")
    if before == "":
        raise InputError(f"{path}: names no Transformer module")


def _read_pooling(path: Path) -> VectorSpec:
    """Returns a spec with the pooling only."""
    values = read_object(path)
    refuse_unknown(path, values, _POOLING_KNOWN)
    modes = values.get("pooling_mode") or [
        mode for switch, mode in _SWITCHES.items() if values.get(switch)
    ]
    modes = modes if isinstance(modes, list) else [modes]
    modes = modes or ["mean"]
    for mode in modes:
        if not isinstance(mode, str) or mode not in _POOLINGS:
            raise InputError(
                f"{path}: pooling {mode!r} is not supported, only {', '.join(_POOLINGS)} are"
            )
    with_prompt = values.get("include_prompt", True)
    if "cls" in modes and not with_prompt:
        raise InputError(
            f"{path}: include_prompt false with cls pooling is not supported, releases of "
            "sentence-transformers differ in it; set it to true"
        )
    return VectorSpec(
        pooling=",".join(_POOLINGS[mode] for mode in modes), pool_prompt=bool(with_prompt)
    )


def _read_transformer(folder: Path) -> Mapping[str, Any]:
    path = next((folder / name for name in _TRANSFORMER if (folder / name).is_file()), None)
    if path is None:
        return {}
    values = read_object(path)
    for name, usual in _AS_USUAL.items():
        if values.get(name, usual) not in (None, usual):
            raise InputError(f"{path}: {name} must be {usual!r}, got {values[name]!r}")
    refuse_unknown(path, values, _TRANSFORMER_KNOWN)
    for name in _PASSED_ON:
        refuse_unknown(path, object_in(path, values, name), frozenset(_HARMLESS))
    length = values.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise InputError(f"{path}: max_seq_length must be a positive integer, got {length!r}")
    return values


def _read_prompts(path: Path) -> tuple[dict[str, str], str]:
    """Returns the prompts and the default one's name."""
    values = optional_object(path)
    kind = values.get("model_type") or "SentenceTransformer"
    if kind != "SentenceTransformer":
        raise InputError(f"{path}: model_type must be SentenceTransformer, got {kind}")
    given = values.get("prompts") or {}
    if not isinstance(given, dict):
        raise InputError(f"{path}: prompts must be an object, got a {type(given).__name__}")
    prompts = {name: text or "" for name, text in given.items()}
    similarity = values.get("similarity_fn_name") or "cosine"
    if similarity != "cosine":
        _LOG.warning(
            "%s: similarity_fn_name is %s; the vectors are the model's, and search, dedup, cluster "
            "and Encoder.similarity compare them by their cosine",
            path,
            similarity,
        )
    for name, text in prompts.items():
        if not isinstance(text, str):
            raise InputError(f"{path}: prompt {name} must be a text, got {text!r}")
    default = values.get("default_prompt_name") or ""
    if default and (not isinstance(default, str) or default not in prompts):
        listed = ", ".join(sorted(prompts)) or "none"
        raise InputError(f"{path}: default_prompt_name must be one of {listed}, got {default!r}")
    return prompts, default
