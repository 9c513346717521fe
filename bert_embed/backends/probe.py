"""Compares what a model gives for fixed sentences with what its bundle keeps (the probe)."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bert_embed.backends.choose import load_engine
from bert_embed.backends.runner import padded_rows
from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import PROBE, Bundle, file_sha256, load_tensors
from bert_embed.models.encoder import EncoderConfig
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.storage.local import opened
from bert_embed.text.documents import TextTokenizer, TokenRows, build_pairs
from bert_embed.text.tokenizer import load_tokenizer

# Rounding on other processors changes a hidden state by about 1e-5; another activation, layer or
# tokenizer changes it by more than 1e-2.
MOST_DIFFERENCE = 1e-3
LEAST_COSINE = 0.9999
_MOST_TOKENS = 64
_MOST_WIDTH = 4096  # of a head's output, which may be as wide as a vocabulary
# A pair, accents, capitals, CJK, numbers, a word that is in no vocabulary, and an empty text.
_SENTENCES = (
    ("The robber left the bank of the river with the money of the bank vault.", ""),
    ("Who counted the boats?", "Nobody did, and by 1987 all 243 of them had gone!"),
    ("Où est l'été, señor Núñez? Straße, ΣΟΦΟΣ", ""),
    ("北京 is a city… 東京 too", ""),
    ("qwxzkvjtbbq" * 12, ""),
    ("", ""),
)
_PLAIN = 2  # the first ones, ordinary English, on which no model fails that is not broken


@dataclass(frozen=True)
class Verification:
    """How a bundle compares with the values that were kept at its import."""

    damaged: tuple[str, ...] = ()  # files whose sha256 differs
    same_tokens: bool = True  # whether the sentences have the same token ids
    same_model: bool = True  # whether the model has the fingerprint of the import
    max_difference: float = 0.0
    least_cosine: float = 1.0
    outputs: tuple[str, ...] = ()  # names of those compared; empty if none were computed

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


def probe_outputs(bundle: Bundle, tokenizer: TextTokenizer) -> dict[str, np.ndarray]:
    """Runs the fixed sentences in float32 on the processor.

    Gives `input_ids` int32 `[tokens]`, `row_splits` int64 `[rows + 1]`, `hidden_states` float32
    `[layers, rows, hidden]`, means over a row's tokens, `last_hidden_state` float32 `[tokens,
    hidden]`, and where the model has them `pooler_output` and `dense_output`, float32 `[rows, …]`,
    and `sparse_output` or those of other heads, `[rows or tokens, …]`.
    """
    config, special = bundle.config, (tokenizer.cls_id, tokenizer.sep_id)
    engine = load_engine(bundle, special, "float32", "cpu")
    every = VectorSpec(layers=tuple(range(config.num_hidden_layers + 1)), layer_combine="stack")
    states = engine.graph(every, OutputSpec(tokens=True, heads=tuple(bundle.heads)), 0)
    probe = probe_rows(config, tokenizer, len(_SENTENCES))
    rows = [padded_rows(probe, np.array([row])) for row in range(len(probe))]
    computed = [states(row, row.mask.shape) for row in rows]
    means = np.stack([row["sentences"].reshape(-1, config.hidden_size) for row in computed], axis=1)
    outputs = {
        "input_ids": probe.input_ids,
        "row_splits": probe.row_splits.astype(np.int64),
        "hidden_states": means,
        "last_hidden_state": np.concatenate(
            [row["tokens"][0, :, -config.hidden_size :] for row in computed]
        ),
    }
    if bundle.has_pooler:
        pooler = engine.graph(replace(every, pooling="pooler"), OutputSpec(), 0)
        outputs["pooler_output"] = np.concatenate(
            [pooler(row, row.mask.shape)["sentences"] for row in rows]
        )
    if bundle.dense:
        width = bundle.dense[0].in_features
        vectors = np.tile(means[-1], math.ceil(width / means.shape[2]))[:, :width]
        outputs["dense_output"] = engine.modules(vectors)
    for kind in bundle.heads:
        of_rows = [row[kind].reshape(-1, row[kind].shape[-1]) for row in computed]
        outputs[f"{kind}_output"] = np.concatenate(of_rows)[:, :_MOST_WIDTH]
    return outputs


def probe_rows(
    config: EncoderConfig, tokenizer: TextTokenizer, sentences: int = _PLAIN
) -> TokenRows:
    """Returns rows of the first of the fixed sentences: those that any model embeds, or more."""
    first, second = ([pair[place] for pair in _SENTENCES[:sentences]] for place in (0, 1))
    if config.segments < 2:
        second = [""] * len(second)
    return build_pairs(
        tokenizer.encode_flat(first),
        tokenizer.encode_flat(second),
        min(_MOST_TOKENS, config.max_position_embeddings),
        tokenizer,
    )


def verify(bundle: Bundle) -> Verification:
    """Compares a bundle's files with their sha256, and its outputs with those of its import."""
    if PROBE not in bundle.files:
        raise InputError(f"{bundle.path}: holds no {PROBE} to compare with")
    damaged = tuple(
        name
        for name, sha256 in bundle.files.items()
        if file_sha256(os.path.join(bundle.path, name)) != sha256
    )
    if damaged:
        return Verification(damaged=damaged)
    with opened(os.path.join(bundle.path, PROBE)) as probe, np.load(probe) as file:
        stored = {name: file[name] for name in file.files}
    tokenizer = load_tokenizer(bundle)
    result = compare(stored, probe_outputs(bundle, tokenizer))
    if not result.same_tokens:
        return result
    # The engines of GPUs and TPUs compute with these weights and settings.
    fingerprint = bundle.fingerprint_of(load_tensors(bundle), tokenizer.vocab)
    return replace(result, same_model=fingerprint == bundle.fingerprint)


def compare(stored: Mapping[str, np.ndarray], computed: Mapping[str, np.ndarray]) -> Verification:
    """Compares the outputs of `probe_outputs` at the import with those of now."""
    shapes = [{name: outputs[name].shape for name in outputs} for outputs in (stored, computed)]
    if shapes[0] != shapes[1] or not all(
        np.array_equal(stored[name], computed[name]) for name in ("input_ids", "row_splits")
    ):
        return Verification(same_tokens=False)
    outputs = tuple(sorted(set(stored) - {"input_ids", "row_splits"}))
    pairs = [(stored[name], computed[name]) for name in outputs]
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
