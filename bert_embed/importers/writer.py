"""Writes tensors, vocabulary and settings as a bundle, which appears whole."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert_embed.bundle.bundle import Bundle, read_bundle, write_metadata
from bert_embed.fingerprints import model_fingerprint
from bert_embed.graph.litert_model import WORD_SCALES, write_litert
from bert_embed.heads.kinds import heads_to_json
from bert_embed.self_test import probe_outputs, write_probe
from bert_embed.storage.errors import InputError
from bert_embed.tokenization.protocol import TextTokenizer


def write_bundle(
    bundle: Bundle,
    tensors: Mapping[str, np.ndarray],
    tokenizer: TextTokenizer,
) -> Bundle:
    """Writes the bundle to `bundle.path` and returns it with its fingerprint and files.

    The folder is written under another name and renamed at the end. If another process wrote the
    same bundle meanwhile, that one stays; InputError if `bundle.path` holds something else.
    `tensors` are float32, in the names and shapes of `tensor_shapes`.
    """
    dest = Path(bundle.path)
    fingerprint = model_fingerprint(
        tensors,
        tokenizer.vocab,
        bundle.config.to_dict(),
        tokenizer.settings,
        [module.to_dict() for module in bundle.dense],
        heads_to_json(bundle.heads),
    )
    bundle = replace(
        bundle,
        fingerprint=fingerprint,
        tokenizer_settings=tokenizer.settings,
        int8_word_scales=WORD_SCALES,
    )
    dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent)
    try:
        heads, apart = bundle.heads, bundle.heads_apart
        write_litert(temporary, bundle.config, tensors, bundle.dense, heads, apart)
        vocabulary = Path(temporary, bundle.tokenizer_file)
        vocabulary.write_text(tokenizer.file_text, encoding="utf-8", newline="\n")
        write_probe(temporary, probe_outputs(replace(bundle, path=temporary), tokenizer))
        write_metadata(temporary, bundle)
        os.chmod(temporary, 0o755)  # mkdtemp gives access to its user only
        return _publish(temporary, bundle)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: str, bundle: Bundle) -> Bundle:
    try:
        os.rename(temporary, bundle.path)
    except OSError as error:
        if not os.path.isdir(bundle.path):
            raise
        if _described_at(bundle.path) != replace(bundle, files={}):
            raise InputError(
                f"{bundle.path}: exists and is not empty, name a new folder or remove it"
            ) from error
    return read_bundle(bundle.path)


def _described_at(path: str) -> Bundle | None:
    try:
        return replace(read_bundle(path), files={})
    except ValueError:
        return None
