import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import read_bundle
from bert_embed.importers.huggingface import import_huggingface
from tests.support.models import plain_bert
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

pytestmark = pytest.mark.numeric

DATA = Path(__file__).parents[2] / "data"
GOLDEN = json.loads((DATA / "minilm_hidden_states.json").read_text())["examples"]
STATES = np.load(DATA / "minilm_hidden_states.npz")


@pytest.fixture(scope="module")
def compiled(minilm):
    """The packaged model as a graph: int32 arrays in, states and pooler's output out."""
    import tensorflow as tf

    encoder = load_encoder(minilm)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3, autograph=False)
    def run(ids, mask, types):
        states = encoder.hidden_states(ids, mask, types)
        return tf.stack(states, axis=1), encoder.call("pooler", states[-1][:, 0], mask)

    return lambda *arrays: [one.numpy() for one in run(*arrays)]


def padded(examples, length):
    rows = np.zeros((3, len(examples), length), np.int32)
    for at, example in enumerate(examples):
        stop = len(example["input_ids"])
        rows[:, at, :stop] = example["input_ids"], [1] * stop, example["token_type_ids"]
    return rows


def differences(compiled, examples, length):
    states, pooled = compiled(*padded(examples, length))
    for example, found, found_pooled in zip(examples, states, pooled, strict=True):
        number = example["index"]
        wanted = STATES[f"hidden_states_{number}"]
        yield np.abs(found[:, : wanted.shape[1]] - wanted).max()
        yield np.abs(found_pooled - STATES[f"pooler_output_{number}"]).max()


@pytest.mark.parametrize("example", GOLDEN, ids=lambda example: f"example{example['index']}")
@pytest.mark.parametrize("filling", [0, 9])
def test_hidden_states_of_a_row_alone_equal_the_reference(compiled, example, filling):
    length = len(example["input_ids"]) + filling
    assert max(differences(compiled, [example], length)) < 1e-4


def test_hidden_states_in_a_batch_equal_the_reference(compiled):
    assert max(differences(compiled, GOLDEN, 30)) < 1e-4


@cache
def rows():
    random = np.random.default_rng(7)
    ids = random.integers(5, 100, (3, 12)).astype(np.int32)
    mask = (np.arange(12) < np.array([[12], [7], [2]])).astype(np.int32)
    types = (np.arange(12) > np.array([[6], [12], [0]])).astype(np.int32)
    return ids, mask, types


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_each_activation_equals_plain_numpy(tmp_path, activation):
    tensors = write_tiny_huggingface(tmp_path / "source", hidden_act=activation)
    bundle = import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    plain = plain_bert.PlainBert(tensors, 4, getattr(plain_bert, activation))
    encoder = load_encoder(bundle)
    ids, mask, types = rows()
    found = encoder.hidden_states(ids, mask, types)
    pooled = encoder.call("pooler", found[-1][:, 0], mask).numpy()
    for row, length in enumerate(mask.sum(1)):
        wanted = plain.hidden_states(ids[row, :length], types[row, :length])
        for one, other in zip(found, wanted, strict=True):
            assert_near(one[row, :length], other)
        assert_near(pooled[row], plain.pooled(wanted[-1]))


def test_the_three_activations_differ():
    x = np.linspace(-3, 3, 50)
    assert np.abs(plain_bert.gelu(x) - plain_bert.gelu_new(x)).max() > 1e-4
    assert np.abs(plain_bert.gelu(x) - plain_bert.relu(x)).max() > 0.1


def test_no_layer_above_the_highest_asked_for_is_computed(tiny_bundle):
    encoder = load_encoder(read_bundle(tiny_bundle))
    every = encoder.hidden_states(*rows())
    some = encoder.hidden_states(*rows(), highest=1)
    assert (len(every), len(some)) == (3, 2)
    np.testing.assert_array_equal(some[1], every[1])


def test_a_vector_of_a_batch_without_rows_is_empty(tiny_bundle):
    encoder = load_encoder(read_bundle(tiny_bundle))
    empty = np.zeros((0, 4), np.int32)
    assert encoder.hidden_states(empty, empty, empty)[-1].shape == (0, 4, 32)
