"""Scores: what documents get of those of rows, and the folders of cross-encoders."""

import json

import numpy as np
import pytest

from bert_embed.base.errors import InputError, SettingError
from bert_embed.encoder import Encoder
from tests.support.models.folder import change, imported
from tests.support.models.heads import as_cross_encoder, run_texts, write_classifier
from tests.support.models.plain_bert import softmax
from tests.support.models.tiny import WORDS

TEXTS = ["the bank of the river", "a", "money in the vault of people", "two"]
LONG = " ".join(np.random.default_rng(3).choice(WORDS, 50))
SIGMOID = {"sbert_ce_default_activation_function": "torch.nn.Sigmoid"}


def classifier(folder, labels=3, **config):
    write_classifier(folder / "source", "distilbert", labels, **config)
    return imported(folder)


def cross_encoder(folder, *activation, labels=1, files=None, **config):
    write_classifier(folder / "source", "roberta", labels, **config)
    as_cross_encoder(folder / "source", *activation)
    return imported(folder, files=files)


@pytest.fixture(scope="module")
def encoder(model_of):
    return Encoder(model_of(write_classifier, "distilbert", 3), threads=2)


def test_the_logits_of_windows_are_averaged_by_their_tokens(encoder):
    windows = {"long_text": "window", "max_seq_length": 16, "overlap": 4}
    _, apart = run_texts(encoder, "scores", [LONG], **windows | {"long_text": "windows"})
    logits = apart.rows.heads["scores"].astype(float)
    expected = softmax(np.average(logits, axis=0, weights=[14, 14, 14, 14, 10]))
    found = encoder.encode([TEXTS[0], LONG], **windows, kind="scores")
    np.testing.assert_allclose(found[1], expected, atol=1e-6)
    np.testing.assert_allclose(apart.heads["scores"], softmax(logits), atol=1e-6)
    np.testing.assert_allclose(found[0], encoder.encode(TEXTS[0], kind="scores"), atol=1e-6)


@pytest.mark.parametrize(("labels", "activation"), [(1, "sigmoid"), (3, "none")])
def test_a_cross_encoder_that_names_none_has_the_usual_activation(tmp_path, labels, activation):
    """That of CrossEncoder, which asks for no problem_type."""
    said = {"config_sentence_transformers.json": json.dumps({"model_type": "CrossEncoder"})}
    bundle = cross_encoder(tmp_path, labels=labels, files=said, problem_type="regression")
    assert bundle.heads["scores"].activation == activation


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, "none"),
        (SIGMOID, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": None}} | SIGMOID, "none"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        ({}, "softmax"),
    ],
)
def test_config_json_names_the_activation(tmp_path, config, activation):
    assert classifier(tmp_path, **config).heads["scores"].activation == activation


@pytest.mark.numeric
def test_biases_that_config_json_does_not_turn_on_are_no_part_of_a_head(tmp_path):
    """As in transformers, which leaves the tensors of ModernBERT out."""
    found = []
    write_classifier(tmp_path / "source", "modernbert_biased", 2)
    change(tmp_path / "source", {"config.json": {"classifier_bias": False}})
    for dropped in ({}, {"head.dense.bias": None}):
        bundle = imported(tmp_path, str(len(dropped)), {"model.safetensors": dropped})
        found.append(Encoder(bundle, threads=1).encode(TEXTS, kind="scores"))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"id2label": {"0": "a"}}, "id2label must name each of the 3 labels"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label must name each label once"),
        ({"sentence_transformers": {"temperature": 2}}, "temperature is not supported, got 2"),
        ({"problem_type": "ranking"}, "problem_type must be one of regression"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}, "torch.nn's Identity, Sig"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, config, said):
    with pytest.raises(InputError, match=said):
        classifier(tmp_path, **config)


@pytest.mark.slow
def test_a_cross_encoder_scores_pairs_and_ranks_documents(tmp_path, encoder):
    bundle = cross_encoder(tmp_path, "torch.nn.modules.linear.Identity")
    assert (bundle.heads["scores"].activation, bundle.default_vectors) == ("none", ("scores",))
    one_label = Encoder(bundle, threads=1)
    wanted = one_label.encode(["who"] * len(TEXTS), list(TEXTS), kind="scores")[:, 0]
    pairs = [("who", text) for text in TEXTS]
    np.testing.assert_array_equal(one_label.score(pairs), wanted)
    names, who = [np.str_(text) for text in TEXTS], np.str_("who")
    np.testing.assert_array_equal(one_label.score((who, one) for one in names), wanted)
    for one in (one_label.score((who, names[1])), one_label.score(("who", TEXTS[1]))):
        assert (type(one), one) == (float, wanted[1])
    assert one_label.score([]).shape == (0,)
    ranked = one_label.rank(who, names, k=2)
    assert ranked == one_label.rank("who", TEXTS, k=2)
    assert [hit.number for hit in ranked] == np.argsort(-wanted, kind="stable")[:2].tolist()
    assert [hit.score for hit in ranked] == sorted(wanted.tolist(), reverse=True)[:2]
    assert len(encoder.labels) == 3
    for call, said in (
        (lambda: one_label.score([("who",)]), r"pairs\[0\] must be two texts"),
        (lambda: one_label.score([("who", 1)]), r"pairs\[0\] must be two texts"),
        (lambda: encoder.encode(["a"], ["two"]), "kind must be named"),
        (lambda: encoder.encode_query("a", kind="scores"), "are of texts and of pairs: call enc"),
        (lambda: one_label.score(pairs, kind="scores"), "kind is not a setting"),
        (lambda: one_label.score(pairs, texts_b="scores"), "texts_b is not a setting"),
        (lambda: one_label.rank("who", TEXTS, prompt="a"), "prompt is of queries or of documents"),
        (lambda: encoder.score(pairs), "must have one label or two, it has 3 labels"),
    ):
        with pytest.raises(SettingError, match=said):
            call()
