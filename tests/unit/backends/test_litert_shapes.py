"""LiteRT's hidden states are those of plain NumPy, for every shape that batches have."""

import numpy as np
import pytest

from bert_embed.backends.litert.engine import LiteRTEngine
from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.settings import OutputSpec, VectorSpec
from tests.support.engines import run_equal
from tests.support.models import plain_bert
from tests.support.models.folder import imported
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import MINILM, assert_near

pytestmark = pytest.mark.numeric

LAYERS = VectorSpec(layers=(0, 1, 2), layer_combine="stack")


def hidden_states(engine, spec, ids, types):
    """float32 `[layers, batch, length, hidden]`."""
    graph = engine.graph(spec, OutputSpec(sentences=False, tokens=True), 0)
    tokens = run_equal(graph, ids, types)["tokens"]
    return np.stack(np.split(tokens, len(spec.layers), axis=-1))


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_every_length_and_batch_equals_plain_numpy(tmp_path, activation):
    tensors = write_tiny_huggingface(tmp_path / "source", hidden_act=activation)
    engine = LiteRTEngine(imported(tmp_path), (2, 3), "float32")
    plain = plain_bert.PlainBert(tensors, 4, getattr(plain_bert, activation))
    random = np.random.default_rng(3)
    for length in range(1, 65):
        ids = random.integers(5, 100, (512 // length, length)).astype(np.int32)
        types = random.integers(0, 2, ids.shape).astype(np.int32)
        found = hidden_states(engine, LAYERS, ids, types)
        for row in {0, len(ids) // 2, len(ids) - 1}:
            assert_near(found[:, row], np.stack(plain.hidden_states(ids[row], types[row])))
        for rows in (1, 2, 3, 5, 7):  # other kernels, and what is left over of the last one
            fewer = hidden_states(engine, LAYERS, ids[:rows], types[:rows])
            assert_near(fewer, found[:, :rows])


@pytest.mark.slow
def test_lengths_of_the_default_model_equal_tensorflow(minilm):
    spec = VectorSpec(layers=(0, 3, 6), layer_combine="stack")
    engine = LiteRTEngine(minilm, (101, 102), "float32")
    reference = load_encoder(minilm)
    random = np.random.default_rng(4)
    for length in [*range(1, 10), 15, 16, 17, 31, 32, 33, 47, 64, 65, 129, 300, 511, 512]:
        shape = min(max(256 // length, 1), 24), length
        ids = random.integers(1000, 30000, shape).astype(np.int32)
        states = reference.hidden_states(ids, np.ones_like(ids), ids * 0)
        wanted = np.stack([states[layer].numpy() for layer in spec.layers])
        assert_near(hidden_states(engine, spec, ids, ids * 0), wanted, MINILM)


def test_a_model_that_ends_early_gives_the_same_states(tiny_bundle):
    texts = ["the bank of the river", "money", "a robber out of the vault . now"]
    whole, part = (
        Encoder(read_bundle(tiny_bundle), VectorSpec(layers=layers, layer_combine="concat"))
        for layers in ((1, 2), (1,))
    )
    np.testing.assert_array_equal(whole.encode(texts)[:, :32], part.encode(texts))
