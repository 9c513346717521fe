"""Reads the settings of a sentence-transformers folder, such as pooling, Dense and prompts."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.arrays import SIMILARITIES
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import MODULES
from bert_embed.importers.heads import read_splade_pooling
from bert_embed.importers.weights import (
    check_shapes,
    check_vector_names,
    inside,
    number_in,
    object_in,
    optional_object,
    read_arrays,
    read_json,
    read_object,
    refuse_unknown,
    torch_activation,
    unknown_setting,
)
from bert_embed.models.modules import OF_TOKENS, POOLED, DenseModule, LayerNormModule, Module
from bert_embed.settings import VectorSpec

CONVERT = "SentenceTransformer(folder).save_pretrained(new_folder) of sentence-transformers"
_ACTIVATIONS = {
    "Identity": "identity",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
}
_KNOWN = frozenset(
    (
        *("in_features", "out_features", "bias", "activation_function", "use_residual"),
        *("module_input_name", "module_output_name"),
    )
)


def read_dense(
    folder: Path, takes: tuple[str, ...] = ("sentence_embedding",)
) -> tuple[DenseModule, dict[str, np.ndarray]]:
    """Returns sizes and float32 weights, "kernel" `[in, out]` and perhaps others.

    `takes` are the names that what it takes and returns may have.
    """
    module = _read_config(folder / "config.json", takes)
    arrays = read_arrays(folder, CONVERT)
    expected: dict[str, tuple[int, ...]] = {
        "linear.weight": (module.out_features, module.in_features)
    }
    if module.bias:
        expected["linear.bias"] = (module.out_features,)
    own_residual = module.residual and module.in_features != module.out_features
    if own_residual:
        expected["residual.weight"] = expected["linear.weight"]
    check_shapes(folder, arrays, expected, "a Dense module")
    weights = {"kernel": arrays["linear.weight"].T}
    weights |= {"bias": arrays["linear.bias"]} if module.bias else {}
    weights |= {"residual/kernel": arrays["residual.weight"].T} if own_residual else {}
    return module, weights


def read_layer_norm(folder: Path) -> tuple[LayerNormModule, dict[str, np.ndarray]]:
    """Returns the size and float32 weights of a LayerNorm module."""
    path = folder / "config.json"
    values = read_object(path)
    refuse_unknown(path, values, frozenset(("dimension",)))
    try:
        module = LayerNormModule(values.get("dimension", 0))
    except InputError as error:
        raise InputError(f"{path}: dimension: {error}") from error
    arrays = read_arrays(folder, CONVERT)
    parts = {"gamma": "norm.weight", "beta": "norm.bias"}
    expected = dict.fromkeys(parts.values(), (module.in_features,))
    check_shapes(folder, arrays, expected, "a LayerNorm module")
    return module, {ours: arrays[theirs] for ours, theirs in parts.items()}


def _weighted_layers(folder: Path, encoder: Path) -> VectorSpec:
    """Returns a spec with the layers of a WeightedLayerPooling and their weights alone."""
    path = folder / "config.json"
    values = read_object(path)
    refuse_unknown(path, values, _WEIGHTED_KNOWN)
    if optional_object(encoder / "config.json").get("output_hidden_states") is not True:
        raise InputError(
            f"{path}: module WeightedLayerPooling does nothing in sentence-transformers, because "
            f"output_hidden_states of {encoder / 'config.json'} is not true; set it, or remove the "
            "module from modules.json"
        )
    first, last = values.get("layer_start", 4), values.get("num_hidden_layers", 12)
    if not type(first) is type(last) is int or not 0 <= first <= last:
        raise InputError(
            f"{path}: layer_start and num_hidden_layers must be whole numbers, the first not larger"
            f", got {first!r} and {last!r}"
        )
    arrays = read_arrays(folder, CONVERT)
    expected = {"layer_weights": (last + 1 - first,)}
    check_shapes(folder, arrays, expected, "a WeightedLayerPooling module")
    weights = tuple(arrays["layer_weights"].tolist())
    layers = tuple(range(first, last + 1))
    return VectorSpec(layers=layers, layer_combine="mean", layer_weights=weights)


def check_widths(modules: Iterable[Module], width: int, source: Path) -> int:
    """Checks that modules, in order, take what comes before; returns the width of the last one."""
    for number, module in enumerate(modules):
        if module.in_features != width:
            raise InputError(
                f"{source}: in_features of Dense module {number} must be {width}, the width of its "
                f"input, got {module.in_features}"
            )
        width = module.out_features
    return width


def _read_config(path: Path, takes: tuple[str, ...]) -> DenseModule:
    values = read_object(path)
    refuse_unknown(path, values, _KNOWN)
    check_vector_names(path, values, takes)
    name = values.get("activation_function", "torch.nn.Tanh")
    if name is None:
        name = "torch.nn.Identity"
    activation = torch_activation(path, "activation_function", name, _ACTIVATIONS)
    try:
        return DenseModule(
            in_features=values.get("in_features", 0),
            out_features=values.get("out_features", 0),
            activation=activation,
            bias=values.get("bias", True),
            residual=values.get("use_residual", False),
        )
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


_LOG = logging.getLogger(__name__)
_PACKAGE = "sentence_transformers."
_PYLATE_DENSE = "pylate.models.Dense.Dense"  # the same as the package's own
MODEL = "config_sentence_transformers.json"
# What config_sentence_transformers.json says of the vectors, and of who wrote it.
MODEL_KNOWN = frozenset(
    (
        *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
        *("truncate_dim", "max_active_dims", "activation_fn"),
        "requirements",  # versions of packages that sentence-transformers needs for it
        "keep_in_fp32_modules",  # as all are here
    )
)
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
        *(*_SWITCHES, "pooling_mode", "include_prompt"),
        *("word_embedding_dimension", "embedding_dimension"),
    )
)
# The Transformer's settings are in one of these files, whatever the model's kind.
_TRANSFORMER = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_OUTPUTS = {  # of the model by its task: the module's, and transformers'
    "feature-extraction": ("token_embeddings", "last_hidden_state"),
    "fill-mask": ("token_embeddings", "logits"),
    "sequence-classification": ("scores", "logits"),
}
_MODELS = {
    "feature-extraction": "SentenceTransformer",
    "fill-mask": "SparseEncoder",
    "sequence-classification": "CrossEncoder",
}
_AS_USUAL = ("transformer_task", "module_output_name", "modality_config")
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
_MODULE_KNOWN = frozenset(("idx", "name", "path", "type", "kwargs"))  # in modules.json
_WEIGHTED_KNOWN = frozenset(
    (
        *("embedding_dimension", "word_embedding_dimension"),
        *("layer_start", "num_hidden_layers"),
    )
)
_NORMALIZE_KNOWN = frozenset(("module_input_name", "module_output_name"))
_ROUTER_KNOWN = frozenset(("types", "structure", "parameters"))
_ROUTES_KNOWN = frozenset(("default_route", "allow_empty_key"))  # among its parameters
_TRANSFORMER_KNOWN = frozenset(
    (*_AS_USUAL, *_PASSED_ON, "max_seq_length", "do_lower_case", "unpad_inputs")
)


_BUNDLED = (
    *("defaults", "dense", "token_dense", "similarity", "top_k", "prompts", "default_prompt"),
    "names_pooling",
)


@dataclass(frozen=True)
class FolderSettings:
    """How a folder's model encodes texts."""

    encoder: str = ""  # folder of config.json and weights, relative to the source
    names_pooling: bool = True
    is_static: bool = False  # a StaticEmbedding, of which tokenizer and table are there
    defaults: VectorSpec = field(default_factory=VectorSpec)
    dense: tuple[Module, ...] = ()  # behind the pooling, in order
    token_dense: tuple[Module, ...] = ()  # before it, on tokens
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)  # float32, of both
    prompts: Mapping[str, str] = field(default_factory=dict)  # by name
    default_prompt: str = ""  # a name; "" for none
    similarity: str = "cosine"  # of dense vectors
    top_k: int | None = None  # most weights of a sparse vector
    max_seq_length: int | None = None  # most tokens of a row; None where no file says
    do_lower_case: bool = False  # before the tokenizer
    splade: Mapping[str, str] | None = None  # settings of the pooling of sparse vectors
    query_weights: str | None = None  # folder of the weights of queries' tokens, relative
    has_scores: bool = False  # of a CrossEncoder
    scores_activation: str | None = None  # its class in PyTorch

    @property
    def bundled(self) -> dict[str, Any]:
        """Those that the model's bundle keeps as they are."""
        return {name: getattr(self, name) for name in _BUNDLED}


def is_sentence_transformers(source: Path) -> bool:
    """Returns whether the folder has modules, and not only an encoder."""
    return (source / MODULES).is_file()


@dataclass
class _Modules:
    """What the modules of a folder say, one after the other."""

    source: Path
    listed: list[tuple[str, str]]  # kind and path of each
    encoder: str = ""  # as in `FolderSettings`, and the next
    is_static: bool = False
    layers: VectorSpec = field(default_factory=VectorSpec)  # these alone, and their weights
    pooling: VectorSpec = field(default_factory=VectorSpec)
    splade: Mapping[str, str] | None = None
    normalizes: bool = False
    layered: dict[str, list[Module]] = field(default_factory=lambda: {POOLED: [], OF_TOKENS: []})
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def read_encoder(self, path: str, is_static: bool = False) -> None:
        self.encoder, self.is_static = path, is_static

    def read_pooling(self, path: str) -> None:
        self.pooling = _read_pooling(inside(self.source, path) / "config.json")

    def read_splade(self, path: str) -> None:
        self.splade = read_splade_pooling(inside(self.source, path) / "config.json")
        _check_task(inside(self.source, self.encoder), self.listed[0][0])

    def read_layers(self, path: str) -> None:
        self.layers = _weighted_layers(inside(self.source, path), inside(self.source, self.encoder))

    def read_normalize(self, path: str) -> None:
        place = inside(self.source, path) / "config.json"
        values = optional_object(place)
        refuse_unknown(place, values, _NORMALIZE_KNOWN)
        check_vector_names(place, values)
        self.normalizes = True

    def read_module(self, path: str, prefix: str, read: "_Reader") -> None:
        module, arrays = read(inside(self.source, path))
        at = f"{prefix}/{len(self.layered[prefix])}"
        self.tensors |= {f"{at}/{name}": array for name, array in arrays.items()}
        self.layered[prefix].append(module)

    def spec(self, cut: int | None) -> VectorSpec:
        """How vectors are computed; `cut` is how many of their first numbers are kept."""
        widths = {name: some[-1].out_features if some else 0 for name, some in self.layered.items()}
        spec = self.pooling
        if cut is not None:  # behind the modules, also where the last one gives unit length
            spec = replace(spec, dim=cut, dim_last=self.normalizes)
        return replace(
            spec,
            layers=self.layers.layers,
            layer_combine=self.layers.layer_combine,
            layer_weights=self.layers.layer_weights,
            token_dense=widths[OF_TOKENS],
            dense=widths[POOLED],
            normalize=self.normalizes,
        )


_TOKEN_DENSE = "Dense on token_embeddings"
_Reader = Callable[[Path], tuple[Module, dict[str, np.ndarray]]]
_DENSE_OF_TOKENS = partial(read_dense, takes=("token_embeddings",))
_READERS: Mapping[str, Callable[[_Modules, str], None]] = {
    "Transformer": _Modules.read_encoder,
    "MLMTransformer": _Modules.read_encoder,
    "StaticEmbedding": partial(_Modules.read_encoder, is_static=True),
    "Pooling": _Modules.read_pooling,
    "SpladePooling": _Modules.read_splade,
    "WeightedLayerPooling": _Modules.read_layers,
    "Dense": partial(_Modules.read_module, prefix=POOLED, read=read_dense),
    "LayerNorm": partial(_Modules.read_module, prefix=POOLED, read=read_layer_norm),
    _TOKEN_DENSE: partial(_Modules.read_module, prefix=OF_TOKENS, read=_DENSE_OF_TOKENS),
    "Normalize": _Modules.read_normalize,
}


def read_settings(source: Path) -> FolderSettings:
    """Reads modules.json and the modules; a folder without it has default settings."""
    if not is_sentence_transformers(source):
        return FolderSettings(names_pooling=False)
    listed, query_weights = listed_modules(source), None
    if [kind for kind, _ in listed] == ["Router"]:
        listed, query_weights = _routes(source, listed[0][1])
    modules = _Modules(source, listed)
    for kind, path in _ordered(source, listed):
        _READERS[kind](modules, path)
    place = source / MODEL
    named = optional_object(place)
    task = _task(modules, named)
    prompts = read_prompts(place, named)
    default_prompt = _default_prompt(place, named, prompts)
    refuse_unknown(place, named, MODEL_KNOWN)
    cut = number_in(place, named, "truncate_dim")
    values = {} if modules.is_static else read_transformer(inside(source, modules.encoder), task)
    is_sparse = modules.splade is not None
    return FolderSettings(
        encoder=modules.encoder,
        is_static=modules.is_static,
        defaults=modules.spec(cut if task == "feature-extraction" else None),
        dense=tuple(modules.layered[POOLED]),
        token_dense=tuple(modules.layered[OF_TOKENS]),
        tensors=modules.tensors,
        prompts=prompts,
        default_prompt=default_prompt,
        similarity=_read_similarity(place, named, task),
        top_k=number_in(place, named, "max_active_dims") if is_sparse else None,
        max_seq_length=values.get("max_seq_length"),
        do_lower_case=bool(values.get("do_lower_case")),
        splade=modules.splade,
        query_weights=query_weights,
        has_scores=task == "sequence-classification",
        scores_activation=named.get("activation_fn"),
    )


def _task(modules: _Modules, named: Mapping[str, Any]) -> str:
    """What the model is for, one of `_MODELS`, by its modules and what the folder calls it."""
    task = "feature-extraction" if modules.splade is None else "fill-mask"
    model = named.get("model_type", _MODELS[task])
    if model == _MODELS["sequence-classification"]:
        if [kind for kind, _ in modules.listed] != ["Transformer"]:
            raise InputError(
                f"{modules.source / MODULES}: only a Transformer module is supported in a "
                "CrossEncoder"
            )
        return "sequence-classification"
    if model != _MODELS[task]:
        place = modules.source / MODEL
        raise InputError(f"{place}: model_type must be {_MODELS[task]}, got {model}")
    return task


_ON_VECTORS = ("Dense", "LayerNorm", "Normalize")
# The modules that may follow a module: pooling, then Dense modules, then unit length.
_FOLLOWERS = {
    "": ("Transformer", "MLMTransformer", "StaticEmbedding"),
    "StaticEmbedding": _ON_VECTORS,
    "Transformer": ("Pooling", "SpladePooling", "WeightedLayerPooling", _TOKEN_DENSE),
    "WeightedLayerPooling": ("Pooling", _TOKEN_DENSE),
    _TOKEN_DENSE: ("Pooling", _TOKEN_DENSE),
    "MLMTransformer": ("SpladePooling",),
    "SpladePooling": (),
    "Pooling": _ON_VECTORS,
    "Dense": _ON_VECTORS,
    "LayerNorm": _ON_VECTORS,
    "Normalize": ("Normalize",),
}


def listed_modules(source: Path) -> list[tuple[str, str]]:
    """Returns kind and path of each module."""
    path = source / MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InputError(f"{path}: must hold a list of modules")
    for module in modules:
        refuse_unknown(path, module, _MODULE_KNOWN)
    return [(_kind(path, module.get("type", "")), module.get("path", "")) for module in modules]


def _kind(path: Path, name: Any) -> str:
    """Returns the name of a module's class; InputError if it is not sentence-transformers' own."""
    if name == _PYLATE_DENSE:
        return "Dense"
    if not str(name).startswith(_PACKAGE):
        raise InputError(
            f"{path}: module {name} is refused, it is the model's own code; compute it in "
            "sentence-transformers, or take the folder of its encoder alone"
        )
    return str(name).rpartition(".")[2]


def _routes(source: Path, place: str) -> tuple[list[tuple[str, str]], str]:
    """Returns the modules of the route of documents, and the folder of that of queries."""
    folder = inside(source, place)
    names = ("router_config.json", "config.json")  # the latter until release 5
    path = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    values = optional_object(path)
    types, routes = object_in(path, values, "types"), object_in(path, values, "structure")
    refuse_unknown(path, values, _ROUTER_KNOWN)
    parameters = object_in(path, values, "parameters")
    refuse_unknown(path, parameters, _ROUTES_KNOWN)
    if (usual := parameters.get("default_route")) not in (None, "document"):
        raise InputError(f"{path}: default_route must be document, as it is here, got {usual!r}")
    kinds = {name: _kind(path, kind) for name, kind in types.items()}
    query, documents = (routes.get(route) for route in ("query", "document"))
    if (
        set(routes) != {"query", "document"}
        or not isinstance(documents, list)
        or not isinstance(query, list)
        or not all(name in kinds for name in (*query, *documents))
        or [kinds[name] for name in query] != ["SparseStaticEmbedding"]
    ):
        raise InputError(
            f"{source / MODULES}: module Router is not supported, only one whose route document "
            f"is a model, and route query a SparseStaticEmbedding, in {path.name}, is"
        )
    return [(kinds[name], name) for name in documents], query[0]


def _ordered(source: Path, modules: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields kind and path of each module that computes something."""
    path, before = source / MODULES, ""
    for kind, place in modules:
        if kind == "Dropout":  # has an effect in training only
            continue
        if kind == "Dense" and _TOKEN_DENSE in _FOLLOWERS[before]:
            values = optional_object(inside(source, place) / "config.json")
            if values.get("module_input_name") == "token_embeddings":
                kind = _TOKEN_DENSE
        if kind not in _FOLLOWERS:
            raise InputError(
                f"{path}: module {kind} is not supported, only "
                f"{', '.join(filter(None, _FOLLOWERS))} are; take a model without it"
            )
        if kind not in _FOLLOWERS[before]:
            raise InputError(
                f"{path}: module {kind} after {before or 'nothing'} is not supported, the order "
                "must be Transformer, Pooling, Dense or LayerNorm, Normalize"
            )
        before = kind
        yield kind, place
    if before == "":
        raise InputError(f"{path}: names no Transformer module, nor a StaticEmbedding")


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


def read_transformer(
    folder: Path, task: str = "feature-extraction", known: frozenset[str] = frozenset()
) -> Mapping[str, Any]:
    """Returns the settings of a Transformer module, of which `known` are read by the caller."""
    paths = (folder / name for name in _TRANSFORMER)
    path = next((path for path in paths if optional_object(path)), None)  # an empty one is no file
    if path is None:
        return {}
    values = read_object(path)
    output, method_output = _OUTPUTS[task]
    text = {"text": {"method": "forward", "method_output_name": method_output}}
    for name, usual in zip(_AS_USUAL, (task, output, text), strict=True):
        if values.get(name, usual) not in (None, usual):
            raise InputError(f"{path}: {name} must be {usual!r}, got {values[name]!r}")
    refuse_unknown(path, values, _TRANSFORMER_KNOWN | known)
    for name in _PASSED_ON:
        # Of these a setting that is off changes vectors, too, such as do_lower_case.
        for setting, value in object_in(path, values, name).items():
            if setting not in _HARMLESS and value is not None:
                raise unknown_setting(path, f"{setting} of {name}", value)
    number_in(path, values, "max_seq_length")
    return values


def _check_task(folder: Path, kind: str) -> None:
    """Checks that what is before a SpladePooling makes logits, as MLMTransformer always does."""
    task = "fill-mask"
    if kind == "Transformer" and not read_transformer(folder, task).get("transformer_task"):
        raise InputError(
            f"{folder / _TRANSFORMER[0]}: transformer_task must be {task!r} for SpladePooling, is "
            "missing"
        )


def read_prompts(path: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the prompts of config_sentence_transformers.json by their names."""
    prompts = {name: text or "" for name, text in object_in(path, values, "prompts").items()}
    for name, text in prompts.items():
        if not isinstance(text, str):
            raise InputError(f"{path}: prompt {name} must be a text, got {text!r}")
    return prompts


def _default_prompt(path: Path, values: Mapping[str, Any], prompts: Mapping[str, str]) -> str:
    default = values.get("default_prompt_name") or ""
    if default and (not isinstance(default, str) or default not in prompts):
        listed = ", ".join(sorted(prompts)) or "none"
        raise InputError(f"{path}: default_prompt_name must be one of {listed}, got {default!r}")
    return default


def _read_similarity(path: Path, values: Mapping[str, Any], task: str) -> str:
    """Returns how dense vectors are compared; warns where sparse ones would be so."""
    usual = "dot" if task == "fill-mask" else "cosine"
    similarity = values.get("similarity_fn_name") or usual
    if similarity not in SIMILARITIES:
        raise InputError(
            f"{path}: similarity_fn_name must be one of {', '.join(SIMILARITIES)}, got "
            f"{similarity!r}"
        )
    if task == "feature-extraction":
        return str(similarity)
    if task == "fill-mask" and similarity != usual:
        _LOG.warning(
            "%s: similarity_fn_name is %s, but sparse vectors are compared by their dot product",
            path,
            similarity,
        )
    return "cosine"
