"""The probe: a bundle that is as it was passes, one that gives other vectors does not."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends.probe import compare, probe_outputs, verify
from bert_embed.bundle.bundle import WEIGHTS, load_tensors, read_bundle, write_metadata
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.models import plain_bert
from tests.support.models.folder import change, imported
from tests.support.models.sentence_transformers import dense, write_sentence_transformers
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near


@pytest.fixture
def copied(tiny_bundle, tmp_path):
    return read_bundle(shutil.copytree(tiny_bundle, tmp_path / "copy"))


def kept(bundle):
    with np.load(Path(bundle.path, "probe.npz")) as file:
        return dict(file)


def test_an_untouched_bundle_passes(copied):
    found = verify(copied)
    assert (found.problem, found.damaged, found.same_tokens) == ("", (), True)
    assert found.max_difference < 1e-5
    assert found.least_cosine > 0.99999
    assert found.outputs == ("hidden_states", "last_hidden_state", "pooler_output")


def test_the_probe_holds_what_plain_numpy_gives(tmp_path):
    tensors = write_tiny_huggingface(tmp_path / "source")
    outputs, plain = kept(imported(tmp_path)), plain_bert.PlainBert(tensors, 4, plain_bert.gelu)
    splits = outputs["row_splits"]
    for row, (start, stop) in enumerate(pairwise(splits)):
        ids = outputs["input_ids"][start:stop]
        types = np.zeros_like(ids)
        if list(ids).count(3) == 2:  # a pair: its second text and [SEP] are of the other type
            types[list(ids).index(3) + 1 :] = 1
        states = plain.hidden_states(ids, types)
        for found, state in zip(outputs["hidden_states"][:, row], states, strict=True):
            assert_near(found, state.mean(0))
        assert_near(outputs["last_hidden_state"][start:stop], states[-1])
        pooled = plain.pooled(states[-1])
        assert_near(outputs["pooler_output"][row], pooled)
    pairs = [list(outputs["input_ids"][a:b]).count(3) == 2 for a, b in pairwise(splits)]
    assert sum(pairs) == 1


def test_a_flipped_byte_is_named_and_nothing_is_computed(copied):
    weights = Path(copied.path, WEIGHTS)
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
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


def test_other_weights_under_the_right_sha256_are_found(copied):
    inner = load_tensors(copied)["layers/1/output/kernel"]
    result = verify(doubled(doubled(copied, inner), inner.T, "float32.tflite"))
    assert result.max_difference > 0.01
    assert "have another fingerprint than at the import" in result.problem


def test_an_engine_that_computes_otherwise_is_found(copied):
    # LiteRT's file has the query's weights scaled.
    query = load_tensors(copied)["layers/1/query/kernel"].T * np.float32(1 / np.sqrt(8))
    problem = verify(doubled(copied, query, "float32.tflite")).problem
    assert "differ from those of the import by up to" in problem


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"layer_norm_eps": 0.5}])
def test_another_configuration_is_found(copied, change):
    other = replace(copied, config=replace(copied.config, **change))
    assert "have another fingerprint than at the import" in verify(rewritten(other)).problem


def test_other_weights_of_the_engines_of_gpus_are_found(copied):
    result = verify(doubled(copied, load_tensors(copied)["layers/1/query/kernel"]))
    assert result.max_difference < 1e-5
    assert "have another fingerprint than at the import" in result.problem


@pytest.mark.parametrize("change", [{"lower_case": False}, {"max_word_chars": 5}])
def test_another_tokenizer_is_found(copied, change):
    other = replace(copied, tokenizer_settings={**copied.tokenizer_settings, **change})
    assert "tokenizer gives other ids" in verify(rewritten(other)).problem


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


@pytest.mark.parametrize("model", [{"positions": 3}, {"pooler": False}])
def test_small_models_are_probed_as_far_as_they_go(tmp_path, model):
    write_tiny_huggingface(tmp_path / "source", **model)
    bundle = imported(tmp_path)
    outputs = probe_outputs(bundle, load_tokenizer(bundle))
    assert ("pooler_output" in outputs) is bundle.has_pooler
    assert np.diff(outputs["row_splits"]).max() <= bundle.config.max_position_embeddings


def test_a_model_without_second_texts_is_probed_without_them(tmp_path):
    name = "embeddings.token_type_embeddings.weight"
    one = np.zeros((1, 32), np.float32)
    write_tiny_huggingface(tmp_path / "source", changes={name: one})
    change(tmp_path / "source", {"config.json": {"type_vocab_size": 1}})
    bundle = imported(tmp_path)
    assert verify(bundle).problem == ""
    assert list(kept(bundle)["input_ids"]).count(3) == len(kept(bundle)["row_splits"]) - 1


def test_importing_twice_gives_the_same_fingerprint_and_probe(tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    bundles = [imported(tmp_path, name) for name in ("a", "b")]
    assert bundles[0].files == bundles[1].files
    assert bundles[0].fingerprint == bundles[1].fingerprint
    assert compare(*map(kept, bundles)).max_difference < 1e-6
