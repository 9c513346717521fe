"""Import a Hugging Face BERT folder, with its sentence-transformers files, into a bundle."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from bert.bundle import VOCABULARY, Bundle
from bert.config import BertConfig
from bert.importers.sentence_transformers import Settings, read_json, read_settings
from bert.importers.vocabulary import read_vocabulary
from bert.importers.writer import write_bundle

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index")
_MAX_WORD_CHARS = 100  # of Hugging Face's WordPiece; google-research has 200
# Heads for training and classifying, and counters that are no weights.
_IGNORED = re.compile(r"cls\.|classifier\.|qa_outputs\.|embeddings\.(position_ids|token_type_ids)$")
_DTYPES = ("F32", "F16", "BF16", "F64")
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

    Pooling, normalisation and length come from the sentence-transformers files, if there are any.

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
    folder = root / settings.encoder
    config = BertConfig.from_huggingface(read_json(folder / "config.json"))
    tensors = read_tensors(folder, config)
    vocabulary = read_vocabulary(folder / VOCABULARY, config, "config.json")
    lower_case, max_word_chars, length = _tokenizer_settings(folder, settings, config)
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        lower_case=lower_case,
        max_word_chars=max_word_chars,
        max_seq_length=length,
        defaults=settings.defaults,
        has_pooler="pooler/kernel" in tensors,
        source=name or str(root),
        licence=_card_licence(root) if licence is None else licence,
    )
    return write_bundle(bundle, tensors, vocabulary)


def read_tensors(folder: Path, config: BertConfig) -> dict[str, np.ndarray]:
    """Reads all weights as float32, in the names and shapes of `bert.model.tensor_shapes`.

    Raises:
        ValueError: Naming the file or the tensor that is wrong.
    """
    from bert.model import tensor_shapes  # imports TensorFlow: 5 s

    arrays: dict[str, np.ndarray] = {}
    for path in _weight_files(folder):
        arrays.update(_read_safetensors(path))
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


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if (folder / _INDEX).is_file():
        index = read_json(folder / _INDEX)
        return [folder / name for name in sorted(set(index.get("weight_map", {}).values()))]
    for name in (*_PICKLED, *_OTHERS):
        if (folder / name).is_file():
            why = (
                "pickled weights can run code when read"
                if name in _PICKLED
                else "not readable here"
            )
            raise ValueError(
                f"{folder}: {_WEIGHTS} is missing and {name} is refused ({why}), convert it with "
                "AutoModel.from_pretrained(folder).save_pretrained(new_folder) of transformers"
            )
    raise ValueError(f"{folder}: {_WEIGHTS} is missing")


def _read_safetensors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118 - the file is no dict
                name = _plain_name(key)
                if _IGNORED.match(name):
                    continue
                kind = file.get_slice(key).get_dtype()
                if kind not in _DTYPES:
                    raise ValueError(
                        f"{path}: tensor {key} must be one of {', '.join(_DTYPES)}, is {kind}"
                    )
                yield name, np.asarray(file.get_tensor(key), np.float32)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors, perhaps cut: {error}") from error


def _plain_name(key: str) -> str:
    """The name without "bert." in front, and in the words used since 2019 for layer norms."""
    name = key.removeprefix("bert.")
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _tokenizer_settings(
    folder: Path, settings: Settings, config: BertConfig
) -> tuple[bool, int, int]:
    """Returns lower_case, max_word_chars and max_seq_length; ValueError for other normalising."""
    slow = _optional_json(folder / "tokenizer_config.json")
    fast = _optional_json(folder / "tokenizer.json")
    normalizer = fast.get("normalizer") or {}
    said = (slow.get("do_lower_case"), normalizer.get("lowercase"), settings.do_lower_case)
    lower_case = next((bool(one) for one in said if one is not None), True)
    strip = slow.get("strip_accents", normalizer.get("strip_accents"))
    if strip not in (None, lower_case):
        raise ValueError(f"{folder}: strip_accents must be as do_lower_case, is {strip}")
    if not slow.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)):
        raise ValueError(f"{folder}: tokenize_chinese_chars must be true, is false")
    max_word_chars = (fast.get("model") or {}).get("max_input_chars_per_word", _MAX_WORD_CHARS)
    own = settings.max_seq_length or slow.get("model_max_length") or math.inf
    return lower_case, max_word_chars, int(min(own, config.max_position_embeddings))


def _optional_json(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _card_licence(root: Path) -> str:
    """The licence that the front matter of README.md names, "" if none."""
    card = root / "README.md"
    text = card.read_text("utf-8", errors="replace") if card.is_file() else ""
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    found = re.search(r"^license:\s*(\S+)\s*$", head[1], re.MULTILINE) if head else None
    return found[1] if found else ""
