"""Heads of each architecture, as float64 gives their vectors; what holds for all kinds of these."""

import numpy as np
import pytest

from bert_embed.backends.probe import verify
from bert_embed.base.errors import SettingError
from bert_embed.encoder import Encoder
from bert_embed.model import Request
from bert_embed.models.heads.vectors import SparseVector
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.layout import text_rows
from tests.support.engines import ENGINES
from tests.support.models.architectures import GOLDEN, PAIRS, TEXTS
from tests.support.models.folder import tensors_of
from tests.support.models.heads import (
    MLM,
    SCORES,
    SPLADES,
    plain_logits,
    plain_weights,
    write_classifier,
    write_m3,
    write_mlm,
    write_splade,
)
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.plain_bert import softmax
from tests.support.models.tiny import WORDS

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


# Models by the kind that they make.
SPARSE, MULTI = (write_splade,), (write_multi_vectors, "own")
CLASSIFIER = (write_classifier, "distilbert", 3)
MADE = [
    *[("sparse", SPARSE, settings, "float32") for settings in SPLADES.values()],
    ("multi", (write_multi_vectors, "stanford"), {}, "float32"),
    ("multi", (write_multi_vectors, "stanford"), {}, "int8"),
    ("multi", MULTI, {}, "float32"),
    ("multi", MULTI, {}, "int8"),
    ("scores", CLASSIFIER, {}, "float32"),
    ("sparse", (write_m3,), {}, "float32"),
    ("multi", (write_m3,), {}, "float32"),
]


def states(kind, number):
    return STATES[f"{kind}/states/{number}"][:, -1]


def numbers(vector):
    return vector.to_dict() if isinstance(vector, SparseVector) else np.array(vector).tolist()


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
    np.testing.assert_allclose(found.to_scipy().toarray(), expected, atol=CLOSE, rtol=1e-5)


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


@pytest.mark.parametrize(("kind", "model", "settings", "precision"), MADE)
def test_a_text_has_the_same_bits_in_any_batch(model_of, kind, model, settings, precision):
    encoder = Encoder(model_of(*model, **settings), threads=2, precision=precision)
    texts = [*TEXTS, *(" ".join(WORDS[n : n + 5]) for n in range(40)), *TEXTS]
    asked = {"kind": kind, "long_text": "truncate"}

    for encode in (encoder.encode, *([encoder.encode_query] if kind == "multi" else [])):
        together, few = encode(texts, **asked), encode(texts, batch_tokens=20, **asked)
        for text, one, other in zip(texts, together, few, strict=True):
            assert numbers(one) == numbers(other) == numbers(encode(text, **asked))


@pytest.mark.parametrize(
    ("kinds", "model"),
    [(("sparse",), SPARSE), (("sparse", "multi"), (write_m3,)), (("scores",), CLASSIFIER)],
)
def test_all_kinds_come_from_one_pass(model_of, kinds, model):
    """Beside dense vectors of any layer."""
    encoder, texts = Encoder(model_of(*model), threads=1), [text for text in TEXTS if text]
    assert verify(encoder.bundle).problem == ""
    spec = TextSpec(64, vectors=("dense", *kinds))
    _, rows = text_rows(encoder.tokenizer, spec, texts)
    dense = VectorSpec(layers=(1,), pooling="cls", normalize=True)
    done = encoder.embedder.run(Request(spec, rows=rows, spec=dense))
    asked = {"max_seq_length": 64, "long_text": "truncate"}
    wanted = encoder.encode(texts, kind="dense", layers=1, pooling="cls", normalize=True, **asked)
    np.testing.assert_array_equal(done.sentences, wanted)
    assert [*done.heads] == [*kinds]
    for kind in kinds:
        alone = encoder.encode(texts, kind=kind, **asked)
        assert [*map(numbers, done.heads[kind])] == [*map(numbers, alone)]


@pytest.mark.parametrize(
    ("kind", "model"), [("sparse", SPARSE), ("multi", MULTI), ("scores", CLASSIFIER)]
)
def test_a_model_for_other_vectors_names_the_kind_to_give(model_of, kind, model):
    encoder = Encoder(model_of(*model), threads=1)
    for call in (encoder.encode, encoder.encode_query, encoder.encode_document):
        for texts in ("a", ["a", "the bank"], []):
            named = rf"kind must be named, .*\b{kind}\b.*: give kind='{kind}'"
            with pytest.raises(SettingError, match=named):
                call(texts)
    assert encoder.encode(["a"], kind="dense").shape == (1, encoder.dimension)
