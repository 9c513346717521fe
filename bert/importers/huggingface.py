"""Import a Hugging Face BERT folder, with its sentence-transformers files, into a bundle."""

import re
from pathlib import Path

import numpy as np

from bert.bundle import Bundle
from bert.config import BertConfig
from bert.importers.dense import CONVERT
from bert.importers.json_files import inside, read_json
from bert.importers.sentence_transformers import (
    check_widths,
    is_sentence_transformers,
    read_settings,
)
from bert.importers.tokenizer_files import read_tokenizer
from bert.importers.weights import read_safetensors, weight_files
from bert.importers.writer import write_bundle
from bert.tensors import tensor_shapes

_CONVERT = "AutoModel.from_pretrained(folder).save_pretrained(new_folder) of transformers"
# Heads for training and classifying, and counters that are no weights.
_IGNORED = re.compile(r"cls\.|classifier\.|qa_outputs\.|embeddings\.(position_ids|token_type_ids)$")
_PARTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_NAMES = {
    "embeddings/word": "embeddings.word_embeddings.weight",
    "embeddings/position": "embeddings.position_embeddings.weight",
    "embeddings/type": "embeddings.token_type_embeddings.weight",
    "embeddings/norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
_LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


def import_huggingface(
    source: str, dest: str, name: str | None = None, licence: str | None = None
) -> Bundle:
    """Imports `config.json`, `model.safetensors` and `vocab.txt` into a bundle at `dest`.

    Pooling, Dense modules, normalisation, prompts and length come from the sentence-transformers
    files, if there are any.

    Args:
        source: The folder.
        dest: The bundle's folder, which must not exist or be empty.
        name: What the bundle says of its source; the folder's path if not given.
        licence: What it says of the licence; that of README.md if not given.

    Raises:
        ValueError: Not a BERT this encoder computes, or a file or tensor missing, misshapen,
            damaged or left over; the message names it.
    """
    root = Path(source).absolute()
    if not root.is_dir():
        raise ValueError(f"{source}: no such folder")
    settings = read_settings(root)
    folder = inside(root, settings.encoder)
    config = BertConfig.from_huggingface(read_json(folder / "config.json"))
    check_widths(settings, config, root)
    tokenizer = read_tokenizer(folder, config, settings.do_lower_case)
    tensors = read_tensors(folder, config, CONVERT if is_sentence_transformers(root) else _CONVERT)
    length = settings.max_seq_length or tokenizer.max_length or config.max_position_embeddings
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        lower_case=tokenizer.lower_case,
        max_word_chars=tokenizer.max_word_chars,
        max_seq_length=min(length, config.max_position_embeddings),
        defaults=settings.defaults,
        has_pooler="pooler/kernel" in tensors,
        dense=settings.dense,
        prompts=settings.prompts,
        default_prompt=settings.default_prompt,
        source=name or str(root),
        licence=_card_licence(root) if licence is None else licence,
    )
    return write_bundle(bundle, {**tensors, **settings.tensors}, tokenizer.vocabulary)


def read_tensors(folder: Path, config: BertConfig, way_out: str) -> dict[str, np.ndarray]:
    """Reads the encoder's weights as float32, in the names and shapes of `tensor_shapes`.

    Args:
        folder: The encoder's.
        config: Its sizes.
        way_out: What makes safetensors of other weights, for the message.

    Raises:
        ValueError: Naming the file or the tensor that is wrong.
    """
    arrays: dict[str, np.ndarray] = {}
    for path in weight_files(folder, way_out):
        read = read_safetensors(path, lambda key: not _IGNORED.match(_plain_name(key)))
        arrays.update((_plain_name(key), array) for key, array in read)
    pooler = "pooler.dense.weight" in arrays
    tensors = {}
    for name, shape in tensor_shapes(config, pooler).items():
        theirs, turned = huggingface_name(name)
        array = arrays.pop(theirs, None)
        if array is None:
            raise ValueError(f"{folder}: tensor {theirs} is missing")
        wanted = shape[::-1] if turned else shape
        if array.shape != wanted:
            raise ValueError(
                f"{folder}: tensor {theirs} must be {list(wanted)}, is {list(array.shape)}"
            )
        tensors[name] = array.T if turned else array
    if arrays:
        raise ValueError(f"{folder}: tensor {min(arrays)} is not part of a BERT encoder")
    return tensors


def huggingface_name(name: str) -> tuple[str, bool]:
    """Returns Hugging Face's name of our tensor, and whether its array is the transpose of ours.

    >>> huggingface_name("layers/3/output/kernel")
    ('encoder.layer.3.output.dense.weight', True)
    """
    if name in _NAMES:
        return _NAMES[name], False
    module, _, part = name.rpartition("/")
    if module.startswith("layers/"):
        _, number, kind = module.split("/")
        theirs = f"encoder.layer.{number}.{_LAYER_NAMES[kind]}"
    else:
        theirs = _NAMES[module]
    return f"{theirs}.{_PARTS[part]}", part == "kernel"


def _plain_name(key: str) -> str:
    """The name without "bert." in front, and in the words used since 2019 for layer norms."""
    name = key.removeprefix("bert.")
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _card_licence(root: Path) -> str:
    """The licence that the front matter of README.md names, "" if none."""
    card = root / "README.md"
    text = card.read_text("utf-8", errors="replace") if card.is_file() else ""
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    found = re.search(r"^license:\s*(\S+)\s*$", head[1], re.MULTILINE) if head else None
    return found[1] if found else ""
