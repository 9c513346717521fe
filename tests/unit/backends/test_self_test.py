"""The probe: a bundle that is as it was passes, one that gives other vectors does not."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends.probe import compare, verify
from bert_embed.bundle.bundle import WEIGHTS, load_tensors, read_bundle, write_metadata
from tests.support.command import flip
from tests.support.models.folder import imported
from tests.support.models.sentence_transformers import dense, write_sentence_transformers
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near


@pytest.fixture
def copied(tiny_bundle, tmp_path):
    return read_bundle(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def kept(bundle):
    with np.load(Path(bundle.path, "probe.npz")) as file:
        return dict(file)


def test_an_untouched_bundle_passes_and_two_imports_are_the_same(copied, tmp_path):
    found = verify(copied)
    assert (found.problem, found.damaged, found.same_tokens) == ("", (), True)
    assert found.max_difference < 1e-5
    assert found.least_cosine > 0.99999
    assert found.outputs == ("hidden_states", "last_hidden_state", "pooler_output")
    write_tiny_huggingface(tmp_path / "source")
    again = imported(tmp_path)
    assert again.files == copied.files
    assert compare(kept(again), kept(copied)).max_difference < 1e-6


def test_a_flipped_byte_is_named_and_nothing_is_computed(copied):
    flip(Path(copied.path, WEIGHTS), 100)
    found = verify(copied)
    assert found.damaged == (WEIGHTS,)
    assert found.outputs == ()
    assert "weights.safetensors is damaged, its sha256 is not" in found.problem


def rewritten(bundle):
    """The bundle with the sha256 of the files as they lie there now."""
    Path(bundle.path, "bundle.json").unlink()
    write_metadata(bundle.path, bundle)
    return read_bundle(bundle.path)


def doubled(bundle, weights, name=WEIGHTS):
    """The bundle with twice these weights, which one of its files holds once."""
    file = Path(bundle.path, name)
    data, old = file.read_bytes(), np.ascontiguousarray(weights).tobytes()
    assert data.count(old) == 1
    file.write_bytes(data.replace(old, np.ascontiguousarray(weights * 2).tobytes()))
    return rewritten(bundle)


@pytest.mark.parametrize(
    ("files", "differs", "problem"),
    [
        ((WEIGHTS, "float32.tflite"), True, "have another fingerprint than at the import"),
        (("float32.tflite",), True, "differ from those of the import by up to"),
        ((WEIGHTS,), False, "have another fingerprint than at the import"),  # of GPUs' engines
    ],
)
def test_other_weights_under_the_right_sha256_are_found(copied, files, differs, problem):
    inner = load_tensors(copied)["layers/1/output/kernel"]
    for name in files:
        copied = doubled(copied, inner if name == WEIGHTS else inner.T, name)
    result = verify(copied)
    assert (result.max_difference > 0.01) is differs
    assert problem in result.problem


@pytest.mark.parametrize(
    ("config", "tokenizer", "problem"),
    [
        ({"hidden_act": "relu"}, {}, "have another fingerprint than at the import"),
        ({"layer_norm_eps": 0.5}, {}, "have another fingerprint than at the import"),
        ({}, {"lower_case": False}, "tokenizer gives other ids"),
        ({}, {"max_word_chars": 5}, "tokenizer gives other ids"),
    ],
)
def test_another_configuration_or_tokenizer_is_found(copied, config, tokenizer, problem):
    settings = copied.tokenizer_settings | tokenizer
    config = replace(copied.config, **config)
    other = replace(copied, config=config, tokenizer_settings=settings)
    assert problem in verify(rewritten(other)).problem


def test_a_number_that_is_none_is_a_problem(copied):
    outputs = kept(copied)
    broken = outputs | {"last_hidden_state": outputs["last_hidden_state"] * np.nan}
    assert compare(outputs, outputs).problem == ""
    assert "differ" in compare(outputs, broken).problem


def test_a_bundle_without_a_probe_is_refused(copied):
    Path(copied.path, "probe.npz").unlink()
    with pytest.raises(ValueError, match=r"holds no probe\.npz"):
        verify(rewritten(copied))


def test_modules_are_probed_at_their_own_width(tmp_path):
    settings = {"pooling": {"pooling_mode": ["mean", "max"]}, "modules": [dense(64, 6)]}
    _, weights = write_sentence_transformers(tmp_path / "source", **settings)
    bundle = imported(tmp_path)
    outputs = kept(bundle)
    twice = np.tile(outputs["hidden_states"][-1], 2)
    wanted = np.tanh(twice @ weights[0]["linear.weight"].T + weights[0]["linear.bias"])
    assert_near(outputs["dense_output"], wanted)
    assert verify(bundle).outputs[0] == "dense_output"


ONE_TYPE = {"embeddings.token_type_embeddings.weight": np.zeros((1, 32), np.float32)}


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ({"positions": 3}, {}),
        ({"pooler": False}, {}),
        ({"changes": ONE_TYPE}, {"type_vocab_size": 1}),  # and no pair
    ],
)
def test_small_models_are_probed_as_far_as_they_go(tmp_path, model, config):
    write_tiny_huggingface(tmp_path / "source", **model)
    bundle = imported(tmp_path, files={"config.json": config})
    assert verify(bundle).problem == ""
    outputs, rows = kept(bundle), np.diff(kept(bundle)["row_splits"])
    assert ("pooler_output" in outputs) is bundle.has_pooler
    assert rows.max() <= bundle.config.max_position_embeddings
    assert list(outputs["input_ids"]).count(3) == len(rows) + (not config)
