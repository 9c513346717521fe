"""Imports a Hugging Face folder, or a static model's, with its modules and heads, into a bundle."""

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import Bundle, refuse_adapter
from bert_embed.importers.multi_vectors import PROJECTION, HeadRead, read_m3, read_multi_vectors
from bert_embed.importers.sentence_transformers import (
    MODEL,
    FolderSettings,
    check_widths,
    is_sentence_transformers,
    read_settings,
)
from bert_embed.importers.tokenizer_files import (
    check_prompts,
    check_query_tokenizer,
    never_in_texts,
    read_bare_tokenizer,
    read_tokenizer,
)
from bert_embed.importers.weights import (
    INTEGERS,
    FileSettings,
    architectures,
    check_layer_count,
    check_shapes,
    inside,
    new_bundle,
    optional_object,
    read_arrays,
    read_object,
    read_safetensors,
    write_bundle,
)
from bert_embed.models.bert import ROBERTAS, padding_of
from bert_embed.models.encoder import (
    Classifier,
    EncoderConfig,
    MaskedLM,
    activation,
    tensor_shapes,
)
from bert_embed.models.families import FAMILIES, config_from_huggingface
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.sparse import QUERY_WEIGHTS, SparseHead
from bert_embed.models.static import NO_LIMIT, WORDS, StaticConfig
from bert_embed.text.documents import TextTokenizer

# Longest rows of a model of which no file of sentence-transformers names a length: without a fused
# attention, processors hold the scores of all pairs of tokens, 200 MB a row for 12 heads.
_MOST_TOKENS = 2048
_MOST_STATIC_TOKENS = 512  # where model2vec's config.json does not say it


def import_huggingface(root: Path, dest: str, origin: Mapping[str, str]) -> Bundle:
    """Imports a folder of the format, with its sentence-transformers files if any, to `dest`."""
    if not root.is_dir():
        raise InputError(
            f"{root}: no such folder; a name of Hugging Face is hf://ORG/NAME, and minilm needs "
            "no import"
        )
    refuse_adapter(root)
    multi = read_multi_vectors(root)
    settings = read_settings(root) if multi is None else multi.settings
    folder = inside(root, settings.encoder)
    refuse_adapter(folder)
    kind = optional_object(root / "config.json").get("model_type")
    if settings.is_static or kind in [*StaticConfig.model_types]:  # which may be of any type
        return _import_static(root, folder, dest, settings, origin)
    values = read_object(folder / "config.json")
    config = config_from_huggingface(values)
    FileSettings(values.path, config.unknown_settings(values)).refuse_unknown(())
    settings = _fitting(settings, config, root)
    markers = multi.markers if multi is not None else ()
    tokenizer, max_length = read_tokenizer(folder, config, settings.do_lower_case, markers)
    _check_padding(folder, values, tokenizer)
    tensors = _read_tensors(values, config, () if multi is None else (PROJECTION,))
    if config.type_vocab_size and not tokenizer.has_segments:
        config = replace(config, type_vocab_size=1)  # no token has the other types
        tensors["embeddings/type"] = tensors["embeddings/type"][:1]
    heads: dict[str, HeadRead] = {}
    usual = max_length  # where release 6 of sentence-transformers writes it
    if usual is None or not is_sentence_transformers(root):
        usual = min(usual or config.max_position_embeddings, _MOST_TOKENS)
    if multi is not None:
        head, prompts = multi.head(config, tokenizer, folder, usual)
        heads["multi"], settings = (head, multi.tensors), replace(settings, prompts=prompts)
    check_prompts(root / MODEL, settings.prompts, tokenizer)
    words = tensors["embeddings/word"]
    default_vectors = _read_heads(root, values, config, settings, tokenizer, words, usual, heads)
    for _, of_head in heads.values():
        tensors |= of_head
    length = settings.max_seq_length or usual
    bundle = new_bundle(
        dest,
        config,
        max_seq_length=min(length, config.max_position_embeddings),
        heads={kind: head for kind, (head, _) in heads.items()},
        default_vectors=default_vectors,
        **settings.bundled,
        **origin,
    )
    return write_bundle(bundle, {**tensors, **settings.tensors}, tokenizer)


def _fitting(settings: FolderSettings, config: EncoderConfig, root: Path) -> FolderSettings:
    """Checks the modules' widths; returns the settings without a `dim` that cuts nothing."""
    weighted = settings.defaults.layer_weights
    if weighted and settings.defaults.layers[-1] != config.num_hidden_layers:
        raise InputError(
            f"{root}: num_hidden_layers of module WeightedLayerPooling must be "
            f"{config.num_hidden_layers}, as the model has, got {settings.defaults.layers[-1]}"
        )
    check_widths(settings.token_dense, config.hidden_size, root)
    width = check_widths(settings.dense, settings.defaults.pooled_width(config), root)
    if (settings.defaults.dim or 0) <= width:
        return settings
    return replace(settings, defaults=replace(settings.defaults, dim=None))


def _import_static(
    root: Path, folder: Path, dest: str, settings: FolderSettings, origin: Mapping[str, str]
) -> Bundle:
    """Imports a table as the library computes with it that wrote it, which its names say.

    sentence-transformers' counts every token. model2vec's has "embeddings", and may have a row for
    several tokens, and a weight for each; its unknown token does not count.
    """
    tokenizer, most = read_bare_tokenizer(folder)
    arrays = read_arrays(folder, also=INTEGERS)
    path = folder / "config.json"
    of_model2vec = "embeddings" in arrays and path.is_file()
    name = "embeddings" if "embeddings" in arrays else "embedding.weight"
    parts = ("mapping", "weights") if name == "embeddings" else ()
    per_token = {part: (len(tokenizer),) for part in parts if part in arrays}
    rows, width = (*arrays[name].shape, 0, 0)[:2] if name in arrays else (0, 0)
    if "mapping" not in per_token:
        rows = max(rows, len(tokenizer))
    check_shapes(folder, arrays, {name: (rows, width), **per_token}, "a static model")
    table = arrays[name]
    if "mapping" in per_token:
        numbers = arrays["mapping"].astype(np.int64)
        if not ((numbers >= 0) & (numbers < rows)).all():
            raise InputError(f"{folder}: mapping must name rows of the {rows} of {name}")
        table = table[numbers]
    if "weights" in per_token:
        table = table[: len(tokenizer)] * arrays["weights"][:, None]
    unknown, defaults = -1, settings.defaults
    if of_model2vec:
        values = read_object(path)
        FileSettings(path, StaticConfig.unknown_settings(values)).refuse_unknown(())
        most = values.number("max_length") if "max_length" in values else _MOST_STATIC_TOKENS
        if not isinstance(normalize := values.get("normalize", False), bool):
            raise values.error(f"normalize must be true or false, got {normalize!r}")
        defaults = replace(defaults, normalize=normalize or defaults.normalize)
        if tokenizer.unk_id is not None:
            # All zeros, so that a text of unknown tokens alone has the vector of an empty one.
            unknown, defaults = tokenizer.unk_id, replace(defaults, pool_special_tokens=False)
            table = np.where(np.arange(len(table))[:, None] == unknown, np.float32(0), table)
    config = StaticConfig(len(table), width, unknown_id=unknown)
    settings = _fitting(replace(settings, defaults=defaults), config, root)
    check_prompts(root / MODEL, settings.prompts, tokenizer)
    length = most or NO_LIMIT
    said = {**settings.bundled, "names_pooling": True}  # a mean, as of all such models
    bundle = new_bundle(dest, config, max_seq_length=length, **said, **origin)
    tensors = {WORDS: np.ascontiguousarray(table), **settings.tensors}
    return write_bundle(bundle, tensors, tokenizer)


def _check_padding(folder: Path, values: Mapping[str, Any], tokenizer: TextTokenizer) -> None:
    """Checks that no token of a row has the id that transformers counts no position for."""
    if values["model_type"] not in ("mpnet", *ROBERTAS):
        return
    padding = padding_of(values)
    used = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id}
    if padding in used or padding not in never_in_texts(tokenizer):
        entry = tokenizer.vocab[padding] if padding < len(tokenizer) else None
        raise InputError(
            f"{folder / 'config.json'}: pad_token_id must be that of a token that no row has, got "
            f"{padding}, {entry!r}; its positions are not supported"
        )


def _read_heads(
    root: Path,
    values: FileSettings,
    config: EncoderConfig,
    settings: FolderSettings,
    tokenizer: TextTokenizer,
    words: np.ndarray,
    max_length: int,
    heads: dict[str, HeadRead],
) -> tuple[str, ...]:
    """Adds the heads of a model whose table of embeddings is `words`; returns what it is for."""
    is_bare = not is_sentence_transformers(root)
    if settings.splade is not None:
        head, tensors = read_mlm_head(values, config, words, settings.splade)
        if settings.query_weights is not None:
            head = replace(head, query_weights=True)
            place = inside(root, settings.query_weights)
            longest = min(settings.max_seq_length or max_length, config.max_position_embeddings)
            check_query_tokenizer(place, values.path.parent, config, tokenizer, longest)
            tensors |= read_query_weights(place, root, config, tokenizer.vocab)
        heads["sparse"] = head, tensors
    names, is_known = architectures(values), values["model_type"] in config.classifiers
    is_classifier = is_known and any(map(_ARCHITECTURE.fullmatch, names))
    if settings.has_scores or (is_bare and is_classifier):
        said = settings.scores_activation, settings.has_scores
        heads["scores"] = read_classifier(values, config, *said)
    default_vectors = tuple(heads) or ("dense",)
    # Beside dense vectors; without modules as SparseEncoder takes such a model.
    if is_bare and any(name.endswith("ForMaskedLM") for name in names):
        with suppress(InputError):  # it is for dense vectors, whatever else its weights hold
            heads["sparse"] = read_mlm_head(values, config, words, {})
    heads |= read_m3(root, config, tokenizer)
    return default_vectors


def _read_tensors(
    values: FileSettings, config: EncoderConfig, apart: Container[str]
) -> dict[str, np.ndarray]:
    """Reads the encoder's weights as float32, in the names and shapes of `tensor_shapes`.

    `apart` are tensors that are no part of the encoder.
    """
    folder = values.path.parent
    ignored = re.compile("|".join(config.ignored))
    read = read_arrays(
        folder,
        lambda key: key not in apart and not ignored.match(config.plain_name(key)),
        config.plain_name,
    )
    arrays: dict[str, np.ndarray] = {}
    for plain, array in read.items():
        whole = next((whole for whole in config.packed if f".{whole}." in plain), None)
        if whole is None:
            arrays[plain] = array
            continue
        names = [plain.replace(whole, part) for part in config.packed[whole]]
        arrays |= zip(names, np.array_split(array, len(names)), strict=True)
    layers = config.huggingface_layers(values)
    check_layer_count(folder / "config.json", config, layers, arrays)
    shapes = tensor_shapes(config, "pooler.dense.weight" in arrays)
    sources = {name: config.huggingface_tensor(name, values) for name in shapes}
    expected = {source.name: source.shape(shapes[name]) for name, source in sources.items()}
    check_shapes(folder, arrays, expected, config.model_types[values["model_type"]])
    return {name: source.read(arrays[source.name]) for name, source in sources.items()}


def read_mlm_head(
    values: FileSettings, config: EncoderConfig, words: np.ndarray, settings: Mapping[str, Any]
) -> tuple[SparseHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; `words` is the table of the embeddings."""
    folder = values.path.parent
    names: MaskedLM = _modules_of(values, config, "masked_lms", "sparse vectors")
    modules = names.transform, names.norm, names.decoder
    arrays = _read_modules(values, config, modules, names.bias)
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


def _modules_of(values: FileSettings, config: EncoderConfig, table: str, what: str) -> Any:
    model_type = values["model_type"]
    names = getattr(config, table).get(model_type)
    if names is None:
        known = ", ".join(name for family in FAMILIES for name in getattr(family, table))
        raise InputError(
            f"{values.path.parent}: {what} of {config.model_types[model_type]} are not supported, "
            f"those of {known} are"
        )
    return names


def _read_modules(
    values: FileSettings, config: EncoderConfig, modules: Iterable[str], also: str = ""
) -> dict[str, np.ndarray]:
    """Returns weights and biases of modules behind the encoder, and a tensor by its name."""
    wanted, plain = {also}, config.plain_name
    for module in modules:
        setting, usual = config.head_biases.get(module, ("", True))
        wanted |= {f"{module}.weight"}
        wanted |= {f"{module}.bias"} if values.get(setting, usual) else set()
    return read_arrays(values.path.parent, lambda key: plain(key) in wanted, plain)


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
    values.refuse_unknown({"path", "frozen"})
    named = values.get("path")
    if isinstance(named, str) and named.endswith(".json"):
        places = [place / Path(named).name for place in (folder, root)]
        path = next((place for place in places if place.is_file()), places[0])
        numbers = {token: number for number, token in enumerate(vocabulary)}
        for token, weight in (held := read_object(path)).items():
            if token not in numbers or type(weight) not in (int, float):
                one = f"{json.dumps(token)}: {json.dumps(weight)}"
                raise held.error(f"must hold a number for tokens of the model, got {one}")
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


def read_classifier(
    values: FileSettings, config: EncoderConfig, activation_name: str | None, of_cross_encoder: bool
) -> tuple[ScoresHead, dict[str, np.ndarray]]:
    """Returns the head and its tensors, float32; the name is that of a CrossEncoder's settings."""
    folder = values.path.parent
    names: Classifier = _modules_of(values, config, "classifiers", "scores")
    dense, classifier, dense_activation = names.dense, names.logits, names.activation
    if names.setting:
        dense_activation = activation(values, names.setting, config.activations)
    arrays = _read_modules(values, config, (dense, classifier, names.norm))
    if f"{classifier}.weight" not in arrays:
        raise InputError(
            f"{folder}: the weights hold no {classifier}.weight, which makes the scores; if the "
            "model has none, take ForSequenceClassification out of config.json's architectures"
        )
    tensors = _tensors("heads/scores/dense", arrays, dense)
    tensors |= _tensors("heads/scores/norm", arrays, names.norm, ("gamma", "beta"))
    tensors |= _tensors("heads/scores/classifier", arrays, classifier)
    kernel = tensors["heads/scores/classifier/kernel"]
    labels = _labels(values, kernel.shape[-1])
    pooling: Any = values.get(names.pooling, "cls") if names.pooling else "cls"
    if pooling not in ("cls", "mean"):
        raise values.error(f"{names.pooling} must be cls or mean, got {pooling!r}")
    head = ScoresHead(
        labels=labels,
        activation=_activation(values, len(labels), activation_name, of_cross_encoder),
        pooling=pooling,
        dense=dense_activation,
        dense_bias="heads/scores/dense/bias" in tensors,
        norm=bool(names.norm),
        norm_bias="heads/scores/norm/beta" in tensors,
        bias="heads/scores/classifier/bias" in tensors,
    )
    check_shapes(folder, tensors, head.shapes(config), "a classifier's head")
    return head, tensors


def _labels(values: FileSettings, count: int) -> tuple[str, ...]:
    numbers = [str(number) for number in range(count)]
    if (named := values.get("id2label")) is None:
        named = {number: f"LABEL_{number}" for number in numbers}
    if not isinstance(named, dict) or set(named) != {*numbers}:
        raise values.error(f"id2label must name each of the {count} labels of the weights")
    labels = tuple(str(named[number]) for number in numbers)
    if len(set(labels)) < count:
        raise values.error("id2label must name each label once")
    return labels


def _activation(
    values: FileSettings, labels: int, named: str | None, of_cross_encoder: bool
) -> Any:
    """Softmax, sigmoid or none, as transformers' pipeline and CrossEncoder decide."""
    if not named:  # releases 4 and 5 of sentence-transformers have it here, as those before
        ours = values.object("sentence_transformers")
        of_cross_encoder |= bool(ours)
        ours.refuse_unknown({"activation_fn", "version"})
        named = ours.get("activation_fn", values.get("sbert_ce_default_activation_function"))
    if named is not None:
        return values.torch_activation("the activation of scores", named, _BY_TORCH)
    if of_cross_encoder:
        return "sigmoid" if labels == 1 else "none"
    problem = values.get("problem_type")
    if problem is None or (labels == 1 and problem == "single_label_classification"):
        return "sigmoid" if labels == 1 else "softmax"
    if problem not in _BY_PROBLEM:
        known = ", ".join(_BY_PROBLEM)
        raise values.error(f"problem_type must be one of {known}, got {problem!r}")
    return _BY_PROBLEM[problem]
