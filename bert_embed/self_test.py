"""Compares what a model gives for fixed sentences with what its bundle keeps (the probe)."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import LITERT, file_sha256
from bert_embed.engines.batches import pad_rows
from bert_embed.engines.litert import LiteRTModel
from bert_embed.fingerprints import model_fingerprint
from bert_embed.graph.load import load_tensors, load_tokenizer
from bert_embed.rows.build import build_rows
from bert_embed.storage.errors import InputError

if TYPE_CHECKING:
    from bert_embed.tokenization.tokenizer import Tokenizer

PROBE = "probe.npz"
# Rounding on other processors changes a hidden state by about 1e-5; another activation, layer or
# tokenizer changes it by more than 1e-2.
MOST_DIFFERENCE = 1e-3
LEAST_COSINE = 0.9999
_MOST_TOKENS = 64
# A pair, accents, capitals, CJK, numbers, a word that is in no vocabulary, and an empty text.
_SENTENCES = (
    ("The robber left the bank of the river with the money of the bank vault.", ""),
    ("Who counted the boats?", "Nobody did, and by 1987 all 243 of them had gone!"),
    ("Où est l'été, señor Núñez? Straße, ΣΟΦΟΣ", ""),
    ("北京 is a city… 東京 too", ""),
    ("qwxzkvjtbbq" * 12, ""),
    ("", ""),
)


@dataclass(frozen=True)
class Verification:
    """How a bundle compares with the values that were kept at its import.

    Attributes:
        damaged: Files whose sha256 differs.
        same_tokens: Whether the sentences have the same token ids.
        same_model: Whether weights, vocabulary and settings give the fingerprint of the import.
        max_difference: Largest absolute difference of any number.
        least_cosine: Smallest cosine of a vector with the kept one.
        outputs: Names of the outputs that were compared; empty where none were computed.
    """

    damaged: tuple[str, ...] = ()
    same_tokens: bool = True
    same_model: bool = True
    max_difference: float = 0.0
    least_cosine: float = 1.0
    outputs: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """The problem as one sentence; "" if there is none."""
        if self.damaged:
            return f"{', '.join(self.damaged)} is damaged, its sha256 is not that of bundle.json"
        if not self.same_tokens:
            return "the tokenizer gives other ids for the fixed sentences than at the import"
        if not self.same_model:
            return (
                "its weights, vocabulary and settings have another fingerprint than at the import"
            )
        # `not … <=` rather than `>`, so that a difference of NaN does not pass.
        if not self.max_difference <= MOST_DIFFERENCE or not self.least_cosine >= LEAST_COSINE:
            return (
                f"the vectors of the fixed sentences differ from those of the import by up to "
                f"{self.max_difference:.2g} (allowed: {MOST_DIFFERENCE:g}), cosine "
                f"{self.least_cosine:.6f} (at least {LEAST_COSINE:g})"
            )
        return ""


def probed_encoder(bundle: Bundle) -> Any:
    """Returns what computes a bundle's vectors on processors, for `probe_outputs`.

    Raises:
        InputError: The weights cannot be loaded.
    """
    return _LiteRTEncoder(bundle)


class _LiteRTEncoder:
    """The float32 file of a bundle in LiteRT, which takes rows without padding."""

    def __init__(self, bundle: Bundle) -> None:
        self.config, self.has_pooler = bundle.config, bundle.has_pooler
        self.dense_width = bundle.dense[0].in_features if bundle.dense else 0
        self._model = LiteRTModel(Path(bundle.path, LITERT["float32"]), None)

    def hidden_states(
        self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray
    ) -> list[np.ndarray]:
        """Returns float32 `[batch, length, hidden]` of each layer, 0 for padding."""
        layers = range(self.config.num_hidden_layers + 1)
        states = np.zeros((len(layers), *ids.shape, self.config.hidden_size), np.float32)
        for row, length in enumerate(mask.sum(1)):
            one = ids[row : row + 1, :length], types[row : row + 1, :length]
            found = self._model.states(*one, set(layers))
            for layer in layers:
                states[layer, row, :length] = found[layer][0]
        return list(states)

    def pooled(self, states: np.ndarray) -> np.ndarray:
        """Returns the pooler's output, float32 `[batch, hidden]`."""
        return self._model.call("pooler", states[:, 0])

    def dense(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the Dense modules' output, float32 `[batch, out_features]`."""
        return self._model.call("dense", vectors)


def probe_outputs(encoder: Any, tokenizer: "Tokenizer") -> dict[str, np.ndarray]:
    """Runs the fixed sentences.

    Args:
        encoder: What `probed_encoder` returns.
        tokenizer: The model's.

    Returns:
        `input_ids` int32 `[tokens]` and `row_splits` int64 `[rows + 1]`; `hidden_states` float32
        `[layers, rows, hidden]`, each the mean over a row's tokens, and `last_hidden_state`
        float32 `[tokens, hidden]`; of models that have them also `pooler_output` float32
        `[rows, hidden]` and `dense_output` float32 `[rows, out_features]`, computed from the row's
        last mean, repeated up to the width of the first module.
    """
    ids, types, mask = _probe_rows(encoder.config, tokenizer)
    states = encoder.hidden_states(ids, mask, types)
    arrays = [np.asarray(state, np.float32) for state in states]
    weights = (mask / mask.sum(1, keepdims=True)).astype(np.float32)
    means = np.stack([np.einsum("rth,rt->rh", array, weights) for array in arrays])
    outputs = {
        "input_ids": ids[mask > 0],
        "row_splits": np.concatenate([[0], np.cumsum(mask.sum(1))]).astype(np.int64),
        "hidden_states": means,
        "last_hidden_state": arrays[-1][mask > 0],
    }
    if encoder.has_pooler:
        outputs["pooler_output"] = np.asarray(encoder.pooled(states[-1]), np.float32)
    if width := getattr(encoder, "dense_width", 0):
        vectors = np.tile(means[-1], math.ceil(width / means.shape[2]))[:, :width]
        outputs["dense_output"] = np.asarray(encoder.dense(vectors), np.float32)
    return outputs


def _probe_rows(config: Any, tokenizer: "Tokenizer") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids, types and mask, int32 `[rows, length]` each."""
    first, second = ([pair[place] for pair in _SENTENCES] for place in (0, 1))
    if config.segments < 2:
        second = [""] * len(second)
    length = min(_MOST_TOKENS, config.max_position_embeddings)
    rows = build_rows(
        *tokenizer.encode_flat(first),
        length,
        tokenizer.cls_id,
        tokenizer.sep_id,
        *tokenizer.encode_flat(second),
        tokenizer.separators,
    )
    assert rows.token_type_ids is not None
    every = np.arange(len(first))
    ids, mask = pad_rows(rows.input_ids, rows.row_splits, every)
    return ids, pad_rows(rows.token_type_ids, rows.row_splits, every)[0], mask


def write_probe(folder: str, outputs: Mapping[str, np.ndarray]) -> None:
    """Writes `probe.npz` into a bundle's folder."""
    arrays: dict[str, Any] = dict(outputs)
    np.savez(os.path.join(folder, PROBE), **arrays)


def verify(bundle: Bundle) -> Verification:
    """Compares a bundle's files with their sha256, and its outputs with those of its import.

    Raises:
        InputError: The bundle has no probe, or its weights cannot be loaded.
    """
    if PROBE not in bundle.files:
        raise InputError(f"{bundle.path}: holds no {PROBE} to compare with")
    damaged = tuple(
        name
        for name, sha256 in bundle.files.items()
        if file_sha256(os.path.join(bundle.path, name)) != sha256
    )
    if damaged:
        return Verification(damaged=damaged)
    with np.load(os.path.join(bundle.path, PROBE)) as file:
        kept = {name: file[name] for name in file.files}
    tokenizer = load_tokenizer(bundle)
    found = compare(kept, probe_outputs(probed_encoder(bundle), tokenizer))
    if not found.same_tokens:
        return found
    # The engines of GPUs and TPUs compute with these weights and settings.
    return replace(found, same_model=_fingerprint(bundle, tokenizer.vocab) == bundle.fingerprint)


def _fingerprint(bundle: Bundle, vocabulary: Sequence[str]) -> str:
    modules = [module.to_dict() for module in bundle.dense]
    settings = bundle.config.to_dict(), bundle.tokenizer_settings, modules
    return model_fingerprint(load_tensors(bundle), vocabulary, *settings)


def compare(kept: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> Verification:
    """Compares the outputs of `probe_outputs` at the import with those of now."""
    shapes = [{name: array.shape for name, array in each.items()} for each in (kept, found)]
    same = shapes[0] == shapes[1] and all(
        np.array_equal(kept[name], found[name]) for name in ("input_ids", "row_splits")
    )
    if not same:
        return Verification(same_tokens=False)
    outputs = tuple(sorted(set(kept) - {"input_ids", "row_splits"}))
    pairs = [(kept[name], found[name]) for name in outputs]
    return Verification(
        max_difference=float(np.max([np.abs(one - other).max() for one, other in pairs])),
        least_cosine=float(np.min([_cosines(one, other).min() for one, other in pairs])),
        outputs=outputs,
    )


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(np.float64), other.astype(np.float64)
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    # A vector of zeros (after a relu, say) has no direction; only its difference counts.
    return np.where(norms > 0, (one * other).sum(-1) / np.where(norms > 0, norms, 1), 1.0)
