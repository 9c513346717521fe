"""Write a bundle: tensors, vocabulary and settings in, a model folder that appears whole out."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.bundle import VOCABULARY, Bundle, read_bundle, write_metadata
from bert.probe import probe_outputs, write_probe


def write_bundle(
    bundle: Bundle,
    tensors: Mapping[str, np.ndarray],
    vocabulary: Sequence[str],
    saved_model: str | os.PathLike[str] | None = None,
) -> Bundle:
    """Writes the bundle to `bundle.path` and returns it with its fingerprint and files.

    The folder is made under another name beside it and renamed at the end. If someone else wrote
    the same bundle there meanwhile, theirs stays.

    Args:
        bundle: The description; fingerprint and files are still empty.
        tensors: float32 arrays in the names and shapes of `bert.model.tensor_shapes`; of kind
            "saved_model" any that tell it from another model.
        vocabulary: The entries of vocab.txt, in order.
        saved_model: The folder that is copied for kind "saved_model".

    Raises:
        ValueError: `bundle.path` holds something else, or the vocabulary lacks what BERT needs.
    """
    from bert.tokenizer import Tokenizer

    tokenizer = Tokenizer(vocabulary, bundle.lower_case, bundle.max_word_chars)
    dest = Path(bundle.path)
    bundle = replace(bundle, fingerprint=fingerprint(bundle, tensors, vocabulary))
    dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent)
    try:
        encoder = _written_encoder(replace(bundle, path=temporary), tensors, saved_model)
        text = "".join(f"{token}\n" for token in vocabulary)
        Path(temporary, VOCABULARY).write_text(text, encoding="utf-8", newline="\n")
        write_probe(temporary, probe_outputs(encoder, tokenizer))
        write_metadata(temporary, bundle)
        os.chmod(temporary, 0o755)  # mkdtemp's own mode shuts out everybody else
        return _publish(temporary, bundle)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _written_encoder(
    bundle: Bundle,
    tensors: Mapping[str, np.ndarray],
    saved_model: str | os.PathLike[str] | None,
) -> Any:
    """Writes the SavedModel into `bundle.path` and returns the encoder, as it can be run."""
    if saved_model is not None:
        shutil.copytree(saved_model, bundle.path, dirs_exist_ok=True)
        return bundle.load_encoder()
    from bert.model import BertEncoder  # imports TensorFlow: 5 s
    from bert.saved_model import save

    encoder = BertEncoder(bundle.config, tensors, bundle.has_pooler, bundle.dense)
    save(encoder, bundle.path)
    return encoder


def _publish(temporary: str, bundle: Bundle) -> Bundle:
    try:
        os.rename(temporary, bundle.path)
    except OSError as error:
        if not os.path.isdir(bundle.path):
            raise
        there = _described_at(bundle.path)
        if there != replace(bundle, files={}):
            raise ValueError(
                f"{bundle.path}: exists and is not empty, name a new folder or remove it"
            ) from error
    return read_bundle(bundle.path)


def _described_at(path: str) -> Bundle | None:
    try:
        return replace(read_bundle(path), files={})
    except ValueError:
        return None


def fingerprint(
    bundle: Bundle, tensors: Mapping[str, np.ndarray], vocabulary: Sequence[str]
) -> str:
    """Returns the hash of what decides the hidden states of a text, as hexadecimal digits.

    Names, shapes and bytes of the tensors, the vocabulary, the configuration, the tokenizer's
    settings and the Dense modules; not the pooling, the length or the prompts, which a run may
    choose.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name], np.dtype("<f4"))
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(array.data)
    settings: dict[str, Any] = {
        "config": bundle.config.to_dict(),
        "lower_case": bundle.lower_case,
        "max_word_chars": bundle.max_word_chars,
        "vocabulary": list(vocabulary),
    }
    if bundle.dense:
        settings["dense"] = [module.to_dict() for module in bundle.dense]
    if bundle.kind != "bert":
        settings["kind"] = bundle.kind
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()
