"""Imports a Hugging Face folder, or a static model's, with its modules, into a bundle."""

import re
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import Bundle, refuse_adapter
from bert_embed.importers.heads import (
    is_classifier,
    is_masked_lm,
    read_classifier,
    read_mlm_head,
    read_query_weights,
)
from bert_embed.importers.multi_vectors import PROJECTION, HeadRead, read_m3, read_multi_vectors
from bert_embed.importers.sentence_transformers import (
    CONVERT,
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
    EncoderFiles,
    check_layer_count,
    check_shapes,
    inside,
    new_bundle,
    optional_object,
    read_arrays,
    read_json,
    read_object,
    refuse_unknown,
    write_bundle,
)
from bert_embed.models.bert import ROBERTAS, padding_of
from bert_embed.models.encoder import EncoderConfig, tensor_shapes
from bert_embed.models.families import config_from_huggingface
from bert_embed.models.static import (
    NO_LIMIT,
    WORDS,
    StaticConfig,
    is_static,
    most_tokens,
    unit_length,
)
from bert_embed.text.documents import TextTokenizer

_CONVERT = "AutoModel.from_pretrained(folder).save_pretrained(new_folder) of transformers"
# Longest rows of a model whose sentence-transformers files name no length: without a fused
# attention, processors hold the scores of all pairs of tokens, 200 MB a row for 12 heads.
_MOST_TOKENS = 2048


def import_huggingface(
    source: str, dest: str, name: str | None = None, licence: str | None = None
) -> Bundle:
    """Imports a folder of the format, with its sentence-transformers files if any, to `dest`."""
    root = Path(source).absolute()
    if not root.is_dir():
        raise InputError(
            f"{source}: no such folder; a name of Hugging Face is hf://ORG/NAME, and minilm needs "
            "no import"
        )
    refuse_adapter(root)
    multi = read_multi_vectors(root)
    settings = read_settings(root) if multi is None else multi.settings
    folder = inside(root, settings.encoder)
    refuse_adapter(folder)
    card_licence = _card_licence(root) if licence is None else licence
    origin = {"source": name or str(root), "licence": card_licence}
    if settings.is_static or is_static(optional_object(root / "config.json")):
        return _import_static(root, folder, dest, settings, origin)
    values = read_json(folder / "config.json")
    config = config_from_huggingface(values)
    refuse_unknown(folder / "config.json", config.unknown_settings(values), frozenset())
    settings = _fitting(settings, config, root)
    markers = multi.markers if multi is not None else ()
    tokenizer, max_length = read_tokenizer(folder, config, settings.do_lower_case, markers)
    _check_padding(folder, values, tokenizer)
    convert = CONVERT if is_sentence_transformers(root) else _CONVERT
    files = EncoderFiles(folder, values, config, convert)
    tensors = _read_tensors(files, () if multi is None else (PROJECTION,))
    if config.type_vocab_size and not tokenizer.has_segments:
        config = replace(config, type_vocab_size=1)  # no token has the other types
        tensors["embeddings/type"] = tensors["embeddings/type"][:1]
        files = replace(files, config=config)
    heads: dict[str, HeadRead] = {}
    usual = min(max_length or config.max_position_embeddings, _MOST_TOKENS)
    if multi is not None:
        head, prompts = multi.head(config, tokenizer, folder, usual)
        heads["multi"], settings = (head, multi.tensors), replace(settings, prompts=prompts)
    check_prompts(root / MODEL, settings.prompts, tokenizer)
    words = tensors["embeddings/word"]
    default_vectors = _read_heads(root, files, settings, tokenizer, words, usual, heads)
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


_STATIC_CONVERT = "save_pretrained of the library that wrote it"


def _import_static(
    root: Path,
    folder: Path,
    dest: str,
    settings: FolderSettings,
    origin: Mapping[str, str],
) -> Bundle:
    """Imports a table as the library computes with it that wrote it, which its names say.

    sentence-transformers' counts every token. model2vec's has "embeddings", and may have a row for
    several tokens, and a weight for each; its unknown token does not count.
    """
    tokenizer, most = read_bare_tokenizer(folder)
    arrays = read_arrays(folder, _STATIC_CONVERT, also=INTEGERS)
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
        refuse_unknown(path, StaticConfig.unknown_settings(values), frozenset())
        most = most_tokens(values)
        defaults = replace(defaults, normalize=unit_length(values) or defaults.normalize)
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
    files: EncoderFiles,
    settings: FolderSettings,
    tokenizer: TextTokenizer,
    words: np.ndarray,
    max_length: int,
    heads: dict[str, HeadRead],
) -> tuple[str, ...]:
    """Adds the heads of a model whose table of embeddings is `words`; returns what it is for."""
    config, is_bare = files.config, not is_sentence_transformers(root)
    if settings.splade is not None:
        head, tensors = read_mlm_head(files, words, settings.splade)
        if settings.query_weights is not None:
            head = replace(head, query_weights=True)
            place = inside(root, settings.query_weights)
            longest = min(settings.max_seq_length or max_length, config.max_position_embeddings)
            check_query_tokenizer(place, files.folder, config, tokenizer, longest)
            tensors |= read_query_weights(place, root, config, tokenizer.vocab)
        heads["sparse"] = head, tensors
    if settings.has_scores or (is_bare and is_classifier(config, files.values)):
        saved = settings.scores_activation, settings.has_scores
        heads["scores"] = read_classifier(files, *saved)
    default_vectors = tuple(heads) or ("dense",)
    # Beside dense vectors; without modules as SparseEncoder takes such a model.
    if is_bare and is_masked_lm(files.values):
        with suppress(InputError):  # it is for dense vectors, whatever else its weights hold
            heads["sparse"] = read_mlm_head(files, words, {})
    heads |= read_m3(root, config, tokenizer)
    return default_vectors


def _read_tensors(files: EncoderFiles, apart: Container[str]) -> dict[str, np.ndarray]:
    """Reads the encoder's weights as float32, in the names and shapes of `tensor_shapes`.

    `apart` are tensors that are no part of the encoder.
    """
    folder, config, values = files.folder, files.config, files.values
    ignored = re.compile("|".join(config.ignored))
    read = read_arrays(
        folder,
        files.convert,
        lambda key: key not in apart and not ignored.match(config.plain_name(key)),
        config.plain_name,
    )
    arrays: dict[str, np.ndarray] = {}
    for plain, array in read.items():
        arrays |= _unpacked(plain, array, config)
    layers = config.huggingface_layers(values)
    check_layer_count(folder / "config.json", config, layers, arrays)
    shapes = tensor_shapes(config, "pooler.dense.weight" in arrays)
    sources = {name: config.huggingface_tensor(name, values) for name in shapes}
    expected = {source.name: source.shape(shapes[name]) for name, source in sources.items()}
    check_shapes(folder, arrays, expected, config.model_types[values["model_type"]])
    return {name: source.read(arrays[source.name]) for name, source in sources.items()}


def _unpacked(name: str, array: np.ndarray, config: EncoderConfig) -> dict[str, np.ndarray]:
    """Returns a tensor, or the parts of one that holds several."""
    for whole, parts in config.packed.items():
        if f".{whole}." in name:
            names = [name.replace(whole, part) for part in parts]
            return dict(zip(names, np.array_split(array, len(parts)), strict=True))
    return {name: array}


def _card_licence(root: Path) -> str:
    """Returns the licence in the front matter of README.md, "" if there is none."""
    card = root / "README.md"
    text = card.read_text("utf-8", errors="replace") if card.is_file() else ""
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    match = re.search(r"^license:\s*(\S+)\s*$", head[1], re.MULTILINE) if head else None
    return match[1] if match else ""
