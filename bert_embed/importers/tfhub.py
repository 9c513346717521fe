"""Imports a BERT encoder of TF Hub, a TensorFlow 2 SavedModel, into a bundle."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import SAVED_MODEL
from bert_embed.config import BertConfig
from bert_embed.importers.official_names import encoder_tensors
from bert_embed.importers.saved_models import (
    CLOSE,
    Rows,
    call_variables,
    encoder_outputs,
    find_casing,
    find_vocabulary,
    load_saved_model,
    longest_row,
    sample_rows,
)
from bert_embed.importers.tokenizer_files import read_entries, read_vocabulary
from bert_embed.importers.writer import write_bundle
from bert_embed.storage.errors import InputError
from bert_embed.storage.packages import requires

_LOG = logging.getLogger(__name__)
_MAX_WORD_CHARS = 200  # of the FullTokenizer that these encoders were trained with
_ACTIVATIONS = ("gelu_new", "gelu", "relu")  # the exporter's own "gelu" is the tanh form


def import_tfhub(
    source: str,
    dest: str,
    *,
    lower_case: bool | None = None,
    trusted: bool = False,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports a SavedModel with TF Hub's interface for BERT encoders into a bundle at `dest`.

    Where its variables have the names of tf-models-official, and our own encoder computes the same
    with them, the bundle holds our encoder. Otherwise the SavedModel is copied and used as it is
    (the bundle's kind is "saved_model").

    Args:
        source: The SavedModel's folder.
        dest: The bundle's folder, which must not exist or be empty.
        lower_case: Whether the model is uncased; None takes it from the SavedModel.
        trusted: Whether the SavedModel's graph may hold any operation.
        name: The source that the bundle names; None for the folder's path.
        licence: The licence that the bundle names.

    Raises:
        InputError: A TensorFlow 1 module, not a BERT encoder, without a WordPiece vocabulary,
            damaged, or nothing says whether it is uncased.
    """
    root = Path(source).absolute()
    with requires(f"the SavedModel {root}", "tensorflow"):
        import tensorflow as tf
    with tf.device("CPU:0"):  # for an exact comparison
        loaded = load_saved_model(root, trusted)
        encoder_outputs(loaded, sample_rows(2), root)  # first whether it is an encoder at all
        vocabulary = find_vocabulary(loaded, root)
        named = _named_weights(loaded, root)
        entries = _entries(vocabulary, named and named[0])
        rows = sample_rows(len(entries))
        outputs = encoder_outputs(loaded, rows, root)
        uncased = find_casing(loaded, root) if lower_case is None else lower_case
        ours = None if named is None else _same_encoder(*named, rows, outputs, root)
        if ours is None:
            config, tensors, kept = _as_it_is(loaded, outputs, len(entries), root)
        else:
            (config, tensors), kept = ours, None
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        lower_case=uncased,
        max_word_chars=_MAX_WORD_CHARS,
        max_seq_length=config.max_position_embeddings,
        has_pooler="pooler" in outputs if kept else "pooler/kernel" in tensors,
        kind="saved_model" if kept else "bert",
        trusted=trusted,
        source=name or str(root),
        licence=licence or "",
    )
    return write_bundle(bundle, tensors, entries, saved_model=kept)


def _named_weights(loaded: Any, root: Path) -> tuple[BertConfig, dict[str, np.ndarray]] | None:
    """Returns sizes and weights; None where the variables are not those of tf-models-official."""
    try:
        return encoder_tensors(call_variables(loaded))
    except InputError as error:
        _LOG.info("%s: used as it is, %s", root, error)
        return None


def _entries(vocabulary: Path, config: BertConfig | None) -> list[str]:
    """Reads the vocabulary, and checks its size where the sizes are known."""
    if config is None:
        return read_entries(vocabulary)
    return read_vocabulary(vocabulary, config, "the SavedModel")


def _same_encoder(
    config: BertConfig,
    tensors: dict[str, np.ndarray],
    rows: Rows,
    outputs: dict[str, np.ndarray],
    root: Path,
) -> tuple[BertConfig, dict[str, np.ndarray]] | None:
    """Returns sizes and weights if our encoder computes with them what the SavedModel computed."""
    choices = [replace(config, hidden_act=activation) for activation in _ACTIVATIONS]
    differences = [_difference(choice, tensors, rows, outputs) for choice in choices]
    least = int(np.argmin(differences))
    if not differences[least] < CLOSE:
        _LOG.info("%s: used as it is, another computation of the same names", root)
        return None
    return choices[least], tensors


def _difference(
    config: BertConfig,
    tensors: dict[str, np.ndarray],
    rows: Rows,
    outputs: dict[str, np.ndarray],
) -> float:
    """Returns the largest difference from any number that the SavedModel computed."""
    from bert_embed.graph.model import BertEncoder

    encoder = BertEncoder(config, tensors, pooler="pooler/kernel" in tensors)
    if encoder.has_pooler != ("pooler" in outputs):
        return float("inf")
    states = encoder.hidden_states(*rows)
    ours = np.stack([state.numpy()[rows[1] > 0] for state in states[1:]])
    theirs = outputs["layers"]
    if len(theirs) not in (1, len(ours)):  # 1: it returns only the last layer
        return float("inf")
    worst = [np.abs(ours[-len(theirs) :] - theirs).max()]
    if encoder.has_pooler:
        worst.append(np.abs(encoder.pooled(states[-1]).numpy() - outputs["pooler"]).max())
    return float(np.max(worst))


def _as_it_is(
    loaded: Any, outputs: dict[str, np.ndarray], vocab_size: int, root: Path
) -> tuple[BertConfig, dict[str, np.ndarray], Path]:
    """Returns sizes and variables of a SavedModel with other names, and a hash of its graph."""
    layers, _, hidden = outputs["layers"].shape
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=longest_row(loaded),
    )
    graph = hashlib.sha256((root / SAVED_MODEL).read_bytes()).digest()
    tensors = call_variables(loaded) | {SAVED_MODEL: np.frombuffer(graph, np.uint8)}
    return config, tensors, root
