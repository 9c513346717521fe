"""The default engine's hidden states are those of the reference BERT, without TensorFlow."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends.litert.engine import LiteRTEngine
from bert_embed.settings import OutputSpec, VectorSpec
from tests.support.engines import run_equal

pytestmark = pytest.mark.numeric

DATA = Path(__file__).parents[2] / "data"
GOLDEN = json.loads((DATA / "minilm_hidden_states.json").read_text("utf-8"))["examples"]
STATES = np.load(DATA / "minilm_hidden_states.npz")
EVERY_LAYER = VectorSpec(layers=tuple(range(7)), layer_combine="concat")


@pytest.fixture(scope="module")
def engine(minilm):
    """The packaged model as `embed` computes it on a processor."""
    return LiteRTEngine(minilm, (101, 102), "float32")


@pytest.mark.parametrize("example", GOLDEN, ids=lambda example: f"example{example['index']}")
@pytest.mark.parametrize("copies", [1, 5])
def test_hidden_states_of_every_layer_equal_the_reference(engine, example, copies):
    ids = np.array([example["input_ids"]] * copies, np.int32)
    types = np.array([example["token_type_ids"]] * copies, np.int32)
    graph = engine.graph(EVERY_LAYER, OutputSpec(sentences=False, tokens=True), 0)
    tokens = run_equal(graph, ids, types)["tokens"]
    found = np.stack(np.split(tokens, 7, axis=-1))
    wanted = STATES[f"hidden_states_{example['index']}"]
    assert np.abs(found - wanted[:, None]).max() < 1e-4
    np.testing.assert_array_equal(found, np.repeat(found[:, :1], copies, axis=1))
