"""Import a BERT encoder of TF Hub, a TensorFlow 2 SavedModel, into a bundle."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.bundle import Bundle
from bert.config import BertConfig
from bert.importers.official_names import encoder_tensors
from bert.importers.saved_models import (
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
from bert.importers.vocabulary import read_entries, read_vocabulary
from bert.importers.writer import write_bundle
from bert.model_files import SAVED_MODEL

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

    Where its variables have the names that tf-models-official gives them, they are taken over into
    our own encoder, if that computes what the SavedModel computes; else the SavedModel is kept and
    used as it is (the bundle's kind is "saved_model").

    Args:
        source: The SavedModel's folder.
        dest: The bundle's folder, which must not exist or be empty.
        lower_case: Whether the model is uncased; None asks the SavedModel.
        trusted: Whether the SavedModel's graph may hold any operation.
        name: What the bundle says of its source; the folder's path if not given.
        licence: What it says of the licence.

    Raises:
        ValueError: A TensorFlow 1 module, no BERT encoder, without a WordPiece vocabulary, damaged,
            or a casing nobody told.
    """
    import tensorflow as tf

    root = Path(source).absolute()
    with tf.device("CPU:0"):  # the comparison is to be exact
        loaded = load_saved_model(root, trusted)
        encoder_outputs(loaded, sample_rows(2), root)  # what it is, before what it lacks
        vocabulary = find_vocabulary(loaded, root)
        named = encoder_tensors(call_variables(loaded))
        entries = _entries(named, vocabulary)
        rows = sample_rows(len(entries))
        outputs = encoder_outputs(loaded, rows, root)
        uncased = find_casing(loaded, root) if lower_case is None else lower_case
        found = _taken_over(named, rows, outputs, root)
        if found is None:
            config, tensors, kept = _as_it_is(loaded, outputs, len(entries), root)
        else:
            (config, tensors), kept = found, None
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


def _entries(named: tuple[BertConfig, dict[str, np.ndarray]] | str, vocabulary: Path) -> list[str]:
    """The vocabulary, held against the weights where those are known."""
    if isinstance(named, str):
        return read_entries(vocabulary)
    return read_vocabulary(vocabulary, named[0], "the SavedModel")


def _taken_over(
    named: tuple[BertConfig, dict[str, np.ndarray]] | str,
    rows: Rows,
    outputs: dict[str, np.ndarray],
    root: Path,
) -> tuple[BertConfig, dict[str, np.ndarray]] | None:
    """The weights in our names, if our encoder gives with them what the SavedModel gave."""
    if isinstance(named, str):
        _LOG.info("%s: used as it is, %s", root, named)
        return None
    config, tensors = named
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
    """The greatest difference of any number that the SavedModel gave."""
    from bert.model import BertEncoder

    encoder = BertEncoder(config, tensors, pooler="pooler/kernel" in tensors)
    if encoder.has_pooler != ("pooler" in outputs):
        return float("inf")
    states = encoder.hidden_states(*rows)
    ours = np.stack([state.numpy()[rows[1] > 0] for state in states[1:]])
    theirs = outputs["layers"]
    if len(theirs) not in (1, len(ours)):  # 1: it gives the last layer alone
        return float("inf")
    worst = [np.abs(ours[-len(theirs) :] - theirs).max()]
    if encoder.has_pooler:
        worst.append(np.abs(encoder.pooled(states[-1]).numpy() - outputs["pooler"]).max())
    return float(np.max(worst))


def _as_it_is(
    loaded: Any, outputs: dict[str, np.ndarray], vocab_size: int, root: Path
) -> tuple[BertConfig, dict[str, np.ndarray], Path]:
    """What is known of a SavedModel whose variables say nothing; its graph is hashed with them."""
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
