"""Heads of each architecture: sparse vectors and scores, as float64 gives them."""

import numpy as np
import pytest

from bert_embed.encoder import Encoder
from tests.support.engines import ENGINES
from tests.support.models.architectures import GOLDEN, PAIRS, TEXTS
from tests.support.models.folder import tensors_of
from tests.support.models.heads import (
    MLM,
    SCORES,
    plain_logits,
    plain_weights,
    write_classifier,
    write_masked_lm,
    write_mlm,
)
from tests.support.models.plain_bert import softmax

pytestmark = [pytest.mark.slow, pytest.mark.numeric]

STATES = np.load(GOLDEN)  # of transformers
CLOSE = 1e-4
# Each of the ways of a head, by the kinds that have it.
OWN_DECODER = ("xlm-roberta", "modernbert_biased")
SUM = ("camembert", "electra")
MEAN = ("modernbert_biased",)
PROBLEMS = {
    "distilbert": (1, "regression"),
    "electra": (4, "multi_label_classification"),
    "mpnet": (1, None),
}


def states(kind, number):
    return STATES[f"{kind}/states/{number}"][:, -1]


def whole(vectors, width):
    """float64 `[rows, width]` of sparse vectors."""
    matrix = np.zeros((len(vectors), width))
    for row, vector in zip(matrix, vectors, strict=True):
        row[vector.indices] = vector.values
    return matrix


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", MLM)
def test_sparse_vectors(model_of, kind, engine):
    pooling = "sum" if kind in SUM else "max"
    settings = {"own_decoder": kind in OWN_DECODER, "pooling_strategy": pooling}
    bundle = model_of(write_mlm, kind, **settings)
    tensors = tensors_of(bundle)
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    found = encoder.encode(list(TEXTS), kind="sparse")
    rows = [plain_weights(kind, tensors, states(kind, number)) for number in range(len(TEXTS))]
    expected = [row.sum(0) if pooling == "sum" else row.max(0) for row in rows]
    np.testing.assert_allclose(whole(found, len(expected[0])), expected, atol=CLOSE, rtol=1e-5)


@pytest.mark.parametrize("kind", MLM)
def test_sparse_vectors_of_a_masked_language_model(model_of, kind):
    bundle = model_of(write_masked_lm, kind, own_decoder=kind in OWN_DECODER)
    tensors = tensors_of(bundle)
    assert (bundle.default_vectors, [*bundle.heads]) == (("dense",), ["sparse"])
    encoder, texts = Encoder(bundle, threads=1), list(TEXTS)
    every = [states(kind, number) for number in range(len(TEXTS))]
    expected = [plain_weights(kind, tensors, one).max(0) for one in every]
    found = whole(encoder.encode(texts, kind="sparse"), len(expected[0]))
    np.testing.assert_allclose(found, expected, atol=CLOSE, rtol=1e-5)
    means = [one.mean(0) for one in every]
    np.testing.assert_allclose(encoder.encode(texts), means, atol=CLOSE, rtol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", SCORES)
def test_scores(model_of, kind, engine):
    labels, problem = PROBLEMS.get(kind, (3, None))
    mean = kind in MEAN
    pooling = {"classifier_pooling": "mean"} if mean else {}
    bundle = model_of(write_classifier, kind, labels=labels, problem_type=problem, **pooling)
    tensors = tensors_of(bundle)
    assert bundle.default_vectors == ("scores",)
    assert bundle.heads["scores"].labels == tuple(f"label {number}" for number in range(labels))
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    of_texts = encoder.encode(list(TEXTS), kind="scores")
    of_pairs = encoder.encode(*map(list, zip(*PAIRS, strict=True)), kind="scores")
    assert of_texts.dtype == np.float32
    for number, found in enumerate([*of_texts, *of_pairs]):
        logits = plain_logits(kind, tensors, states(kind, number), mean)
        if problem == "regression":
            expected = logits
        elif labels == 1 or problem is not None:
            expected = 1 / (1 + np.exp(-logits))
        else:
            expected = softmax(logits)
        np.testing.assert_allclose(found, expected, atol=CLOSE)
    alone = encoder.encode(TEXTS[0], kind="scores")
    relative = 1e-6 if problem == "regression" else 1e-7  # its logits may be above 1
    np.testing.assert_allclose(alone, of_texts[0], atol=1e-6, rtol=relative)
