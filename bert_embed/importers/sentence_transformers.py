"""Reads the settings of a sentence-transformers folder, such as pooling, Dense and prompts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.arrays import SIMILARITIES
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import MODULES
from bert_embed.importers.weights import (
    FileSettings,
    check_shapes,
    inside,
    optional_object,
    read_arrays,
    read_json,
    read_object,
)
from bert_embed.models.modules import OF_TOKENS, POOLED, DenseModule, LayerNormModule, Module
from bert_embed.settings import VectorSpec

_OF_DENSE = {"kernel": "linear.weight", "bias": "linear.bias", "residual/kernel": "residual.weight"}
_OF_NORM = {"gamma": "norm.weight", "beta": "norm.bias"}
_ACTIVATIONS = {
    "Identity": "identity",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
}
_NAMES = ("module_input_name", "module_output_name")
_KNOWN = {"in_features", "out_features", "bias", "activation_function", "use_residual", *_NAMES}


def read_dense(
    folder: Path, takes: tuple[str, ...] = ("sentence_embedding",)
) -> tuple[DenseModule, dict[str, np.ndarray]]:
    """Returns sizes and float32 weights, "kernel" `[in, out]` and perhaps others.

    `takes` are the names that what it takes and returns may have.
    """
    values = read_object(folder / "config.json")
    values.refuse_unknown(_KNOWN)
    values.check_vector_names(takes)
    name = values.get("activation_function", "torch.nn.Tanh")
    name = "torch.nn.Identity" if name is None else name
    activation = values.torch_activation("activation_function", name, _ACTIVATIONS)
    sizes = values.get("in_features", 0), values.get("out_features", 0)
    try:
        module = DenseModule(
            *sizes, activation, values.get("bias", True), values.get("use_residual", False)
        )
    except ValueError as error:
        raise values.error(str(error)) from error
    return module, _read_parts(folder, module, "a Dense module", _OF_DENSE)


def read_layer_norm(folder: Path) -> tuple[LayerNormModule, dict[str, np.ndarray]]:
    """Returns the size and float32 weights of a LayerNorm module."""
    values = read_object(folder / "config.json")
    values.refuse_unknown({"dimension"})
    try:
        module = LayerNormModule(values.get("dimension", 0))
    except InputError as error:
        raise values.error(f"dimension: {error}") from error
    return module, _read_parts(folder, module, "a LayerNorm module", _OF_NORM)


def _read_parts(
    folder: Path, module: Module, what: str, parts: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Returns the float32 tensors of a module, by the names of its `parts`, as it has them."""
    shapes = {name[1:]: shape for name, shape in module.shapes("").items()}
    arrays = read_arrays(folder)
    check_shapes(folder, arrays, {parts[name]: shape[::-1] for name, shape in shapes.items()}, what)
    return {name: arrays[parts[name]].T for name in shapes}


# Our names of settings, theirs, and their values; the first is that of files without it.
_SPLADE = (
    ("pooling", "pooling_strategy", ("max", "sum")),
    ("activation", "activation_function", ("relu", "log1p_relu")),
)


def _splade_pooling(path: Path) -> Mapping[str, str]:
    values = read_object(path)
    values.refuse_unknown({"chunk_size", *_WIDTHS, *(theirs for _, theirs, _ in _SPLADE)})
    settings = {}
    for name, theirs, allowed in _SPLADE:
        settings[name] = value = values.get(theirs, allowed[0])
        if value not in allowed:
            raise values.error(f"{name} must be {' or '.join(allowed)}, got {value!r}")
    return settings


def _weighted_layers(folder: Path, encoder: Path) -> dict[str, Any]:
    """Returns what a WeightedLayerPooling says of a VectorSpec: layers and their weights."""
    values = read_object(folder / "config.json")
    values.refuse_unknown({"layer_start", "num_hidden_layers", *_WIDTHS})
    if optional_object(encoder / "config.json").get("output_hidden_states") is not True:
        raise values.error(
            "module WeightedLayerPooling does nothing in sentence-transformers, because "
            f"output_hidden_states of {encoder / 'config.json'} is not true; set it, or remove the "
            "module from modules.json"
        )
    first, last = values.get("layer_start", 4), values.get("num_hidden_layers", 12)
    if not type(first) is type(last) is int or not 0 <= first <= last:
        raise values.error(
            "layer_start and num_hidden_layers must be whole numbers, the first not larger, got "
            f"{first!r} and {last!r}"
        )
    arrays = read_arrays(folder)
    expected = {"layer_weights": (last + 1 - first,)}
    check_shapes(folder, arrays, expected, "a WeightedLayerPooling module")
    weights = tuple(arrays["layer_weights"].tolist())
    layers = tuple(range(first, last + 1))
    return {"layers": layers, "layer_combine": "mean", "layer_weights": weights}


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


_PACKAGE = "sentence_transformers."
_PYLATE_DENSE = "pylate.models.Dense.Dense"  # the same as the package's own
MODEL = "config_sentence_transformers.json"
# What config_sentence_transformers.json says of the vectors, and of who wrote it. Of the last ones,
# the former are versions of packages, and the latter are float32 here as all are.
MODEL_KNOWN = {
    *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
    *("truncate_dim", "max_active_dims", "activation_fn", "requirements", "keep_in_fp32_modules"),
}
_POOLINGS = {
    name: name.removesuffix("_tokens")
    for name in ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
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
_WIDTHS = ("word_embedding_dimension", "embedding_dimension")
_POOLING_KNOWN = {*_SWITCHES, "pooling_mode", "include_prompt", *_WIDTHS}
# The Transformer's settings are in one of these files, whatever the model's kind.
_TRANSFORMER = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# What models are for: their class, and their outputs as the module and transformers call them.
_TASKS = {
    "feature-extraction": ("SentenceTransformer", "token_embeddings", "last_hidden_state"),
    "fill-mask": ("SparseEncoder", "token_embeddings", "logits"),
    "sequence-classification": ("CrossEncoder", "scores", "logits"),
}
_AS_USUAL = ("transformer_task", "module_output_name", "modality_config")
# What the modules pass on to transformers, under the names of releases 2 to 5 and of release 6, and
# which of these arguments change no vector.
_PASSED_ON = (
    *("model_args", "model_kwargs", "config_args", "config_kwargs"),
    *("tokenizer_args", "processor_kwargs"),
)
_HARMLESS = (
    *("add_pooling_layer", "attn_implementation", "trust_remote_code", "use_safetensors"),
    *("unpad_inputs", "use_memory_efficient_attention", "torch_dtype", "dtype"),
)
_MODULE_KNOWN = {"idx", "name", "path", "type", "kwargs"}  # in modules.json
_TRANSFORMER_KNOWN = {*_AS_USUAL, *_PASSED_ON, "max_seq_length", "do_lower_case", "unpad_inputs"}


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
        names = ("defaults", "dense", "token_dense", "similarity", "top_k", "prompts")
        return {name: getattr(self, name) for name in (*names, "default_prompt", "names_pooling")}


def is_sentence_transformers(source: Path) -> bool:
    """Returns whether the folder has modules, and not only an encoder."""
    return (source / MODULES).is_file()


_TOKEN_DENSE = "Dense on token_embeddings"
_Reader = Callable[[Path], tuple[Module, dict[str, np.ndarray]]]
_LAYERS: Mapping[str, tuple[_Reader, str]] = {
    "Dense": (read_dense, POOLED),
    "LayerNorm": (read_layer_norm, POOLED),
    _TOKEN_DENSE: (partial(read_dense, takes=("token_embeddings",)), OF_TOKENS),
}


def read_settings(source: Path) -> FolderSettings:
    """Reads modules.json and the modules; a folder without it has default settings."""
    if not is_sentence_transformers(source):
        return FolderSettings(names_pooling=False)
    listed, query_weights = listed_modules(source), None
    if [kind for kind, _ in listed] == ["Router"]:
        listed, query_weights = _routes(source, listed[0][1])
    encoder, is_static, splade = "", False, None
    spec: dict[str, Any] = {}  # how vectors are computed
    layered: dict[str, list[Module]] = {POOLED: [], OF_TOKENS: []}
    tensors: dict[str, np.ndarray] = {}
    for kind, path in _ordered(source, listed):
        folder = inside(source, path)
        if kind in _FOLLOWERS[""]:
            encoder, is_static = path, kind == "StaticEmbedding"
        elif kind == "Pooling":
            spec |= _read_pooling(folder / "config.json")
        elif kind == "SpladePooling":
            splade = _splade_pooling(folder / "config.json")
        elif kind == "WeightedLayerPooling":
            spec |= _weighted_layers(folder, inside(source, encoder))
        elif kind == "Normalize":
            values = optional_object(folder / "config.json")
            values.refuse_unknown(_NAMES)
            values.check_vector_names()
            spec["normalize"] = True
        else:
            read, prefix = _LAYERS[kind]
            module, arrays = read(folder)
            at = f"{prefix}/{len(layered[prefix])}"
            tensors |= {f"{at}/{name}": array for name, array in arrays.items()}
            layered[prefix].append(module)
            spec[prefix] = module.out_features
    named = optional_object(source / MODEL)
    task = _task(source, listed, "feature-extraction" if splade is None else "fill-mask", named)
    prompts, default = read_prompts(named), named.get("default_prompt_name") or ""
    if default and (not isinstance(default, str) or default not in prompts):
        listing = ", ".join(sorted(prompts)) or "none"
        raise named.error(f"default_prompt_name must be one of {listing}, got {default!r}")
    named.refuse_unknown(MODEL_KNOWN)
    cut = named.number("truncate_dim")
    if cut is not None and task == "feature-extraction":
        # Behind the modules, also where the last one gives unit length
        spec |= {"dim": cut, "dim_last": spec.get("normalize", False)}
    place = inside(source, encoder)
    transformer = FileSettings(place, {}) if is_static else read_transformer(place, task)
    # MLMTransformer always makes logits.
    if splade is not None and listed[0][0] == "Transformer" and not transformer.get(_AS_USUAL[0]):
        raise transformer.error(f"{_AS_USUAL[0]} must be {task!r} for SpladePooling, is missing")
    return FolderSettings(
        encoder=encoder,
        is_static=is_static,
        defaults=VectorSpec(**spec),
        dense=tuple(layered[POOLED]),
        token_dense=tuple(layered[OF_TOKENS]),
        tensors=tensors,
        prompts=prompts,
        default_prompt=default,
        similarity=_read_similarity(named, task),
        top_k=None if splade is None else named.number("max_active_dims"),
        max_seq_length=transformer.get("max_seq_length"),
        do_lower_case=bool(transformer.get("do_lower_case")),
        splade=splade,
        query_weights=query_weights,
        has_scores=task == "sequence-classification",
        scores_activation=named.get("activation_fn"),
    )


def _task(source: Path, listed: list[tuple[str, str]], task: str, named: FileSettings) -> str:
    """What the model is for, one of `_TASKS`, by what its pooling and its folder say."""
    usual = _TASKS[task][0]
    model = named.get("model_type", usual)
    if model == _TASKS["sequence-classification"][0]:
        if [kind for kind, _ in listed] != ["Transformer"]:
            raise InputError(
                f"{source / MODULES}: only a Transformer module is supported in a CrossEncoder"
            )
        return "sequence-classification"
    if model != usual:
        raise named.error(f"model_type must be {usual}, got {model}")
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
        FileSettings(path, module).refuse_unknown(_MODULE_KNOWN)
    return [(_kind(path, module.get("type", "")), module.get("path", "")) for module in modules]


def _kind(path: Path, name: Any) -> str:
    if name == _PYLATE_DENSE:
        return "Dense"
    if not str(name).startswith(_PACKAGE):
        raise InputError(
            f"{path}: module {name} is refused, it is the model's own code; compute it in "
            "sentence-transformers, or take the folder of its encoder alone"
        )
    return str(name).rpartition(".")[2]


def _routes(source: Path, place: str) -> tuple[list[tuple[str, str]], str]:
    folder = inside(source, place)
    names = ("router_config.json", "config.json")  # the latter until release 5
    path = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    values = optional_object(path)
    types, routes, parameters = map(values.object, ("types", "structure", "parameters"))
    values.refuse_unknown({"types", "structure", "parameters"})
    parameters.refuse_unknown({"default_route", "allow_empty_key"})
    if (usual := parameters.get("default_route")) not in (None, "document"):
        raise values.error(f"default_route must be document, as it is here, got {usual!r}")
    kinds = {name: _kind(path, kind) for name, kind in types.items()}
    query, documents = (routes.get(route) for route in ("query", "document"))
    if (
        set(routes) != {"query", "document"}
        or not isinstance(documents, list)
        or not isinstance(query, list)
        or not all(name in [*kinds] for name in (*query, *documents))  # names of any type
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


def _read_pooling(path: Path) -> dict[str, Any]:
    values = read_object(path)
    values.refuse_unknown(_POOLING_KNOWN)
    switched = [mode for switch, mode in _SWITCHES.items() if values.get(switch)]
    modes = values.get("pooling_mode") or switched or ["mean"]
    modes = modes if isinstance(modes, list) else [modes]
    for mode in modes:
        if not isinstance(mode, str) or mode not in _POOLINGS:
            known = ", ".join(_POOLINGS)
            raise values.error(f"pooling {mode!r} is not supported, only {known} are")
    with_prompt = values.get("include_prompt", True)
    if "cls" in modes and not with_prompt:
        raise values.error(
            "include_prompt false with cls pooling is not supported, releases of "
            "sentence-transformers differ in it; set it to true"
        )
    pooling = ",".join(_POOLINGS[mode] for mode in modes)
    return {"pooling": pooling, "pool_prompt": bool(with_prompt)}


def read_transformer(
    folder: Path, task: str = "feature-extraction", known: Set[str] = frozenset()
) -> FileSettings:
    """Returns the settings of a Transformer module, of which `known` are read by the caller."""
    held = (optional_object(folder / name) for name in _TRANSFORMER)
    values = next(filter(None, held), FileSettings(folder, {}))  # an empty one is none
    named = optional_object(folder / "tokenizer_config.json").get("chat_template")
    has_template = named or (folder / "chat_template.jinja").is_file()
    if has_template and values.get("modality_config") is None:
        raise InputError(
            f"{folder}: chat_template of tokenizer_config.json, or chat_template.jinja, is not "
            "supported: sentence-transformers puts each text into it; remove it if the model was "
            "trained without it"
        )
    _, output, method_output = _TASKS[task]
    text = {"text": {"method": "forward", "method_output_name": method_output}}
    for name, usual in zip(_AS_USUAL, (task, output, text), strict=True):
        if values.get(name, usual) not in (None, usual):
            raise values.error(f"{name} must be {usual!r}, got {values[name]!r}")
    values.refuse_unknown(_TRANSFORMER_KNOWN | known)
    for name in _PASSED_ON:
        # Of these a setting that is off changes vectors, too, such as do_lower_case.
        for setting, value in values.object(name).items():
            if setting not in _HARMLESS and value is not None:
                raise values.unknown(f"{setting} of {name}", value)
    values.number("max_seq_length")
    return values


def read_prompts(values: FileSettings) -> dict[str, str]:
    """Returns the prompts of config_sentence_transformers.json by their names."""
    prompts = {name: text or "" for name, text in values.object("prompts").items()}
    for name, text in prompts.items():
        if not isinstance(text, str):
            raise values.error(f"prompt {name} must be a text, got {text!r}")
    return prompts


def _read_similarity(values: FileSettings, task: str) -> str:
    """Returns how dense vectors are compared; sparse ones always by their dot product."""
    known = ("dot",) if task == "fill-mask" else SIMILARITIES
    similarity = values.get("similarity_fn_name") or known[0]
    if similarity not in known:
        raise values.error(f"similarity_fn_name must be {' or '.join(known)}, got {similarity!r}")
    return str(similarity) if task == "feature-extraction" else "cosine"
