"""Hidden states and pooler are those of the reference BERT and of plain NumPy, by every engine.

LiteRT's shapes are in `test_litert`, what XLA compiles in `test_xla`.
"""

import json
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends.protocol import PaddedRows
from bert_embed.importers import import_model
from bert_embed.settings import OutputSpec, VectorSpec
from tests.support.engines import ENGINES
from tests.support.models import plain_bert
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near, distance, relative_error

pytestmark = pytest.mark.numeric

DATA = Path(__file__).parents[2] / "data"
GOLDEN = json.loads((DATA / "minilm_hidden_states.json").read_text("utf-8"))["examples"]
STATES = np.load(DATA / "minilm_hidden_states.npz")
EXACT = [engine for engine in ("litert", "openvino") if engine in ENGINES]  # rows as they are
PADDING = [engine for engine in ENGINES if engine not in EXACT]


def load_graph(bundle, special_ids, engine):
    """A function of PaddedRows: all states `[layers, rows, length, hidden]`, and the pooler's."""
    layers = range(bundle.config.num_hidden_layers + 1)
    spec = VectorSpec(layers=tuple(layers), layer_combine="concat", pooling="pooler")
    loaded = ENGINES[engine](bundle, special_ids, "float32", "cpu", 1)
    graph = loaded.graph(spec, OutputSpec(sentences=True, tokens=True), 0)

    def run(rows):
        outputs = graph(rows, rows.mask.shape)
        return np.stack(np.split(outputs["tokens"], len(layers), axis=-1)), outputs["sentences"]

    return run


@pytest.fixture(scope="module")
def graph_of(minilm):
    return cache(lambda engine: load_graph(minilm, (101, 102), engine))


def padded(examples, length):
    ids, mask, types = np.zeros((3, len(examples), length), np.int32)
    for row, example in enumerate(examples):
        stop = len(example["input_ids"])
        ids[row, :stop], mask[row, :stop] = example["input_ids"], 1
        types[row, :stop] = example["token_type_ids"]
    return PaddedRows(ids, mask, types, mask)


def assert_reference(graph, examples, length):
    states, pooled = graph(padded(examples, length))
    for row, example in enumerate(examples):
        wanted = STATES[f"hidden_states_{example['index']}"]
        assert np.abs(states[:, row, : wanted.shape[1]] - wanted).max() < 1e-4
        assert np.abs(pooled[row] - STATES[f"pooler_output_{example['index']}"]).max() < 1e-4
    return states


@pytest.mark.parametrize("example", GOLDEN, ids=lambda example: f"example{example['index']}")
@pytest.mark.parametrize(
    ("engine", "copies", "filling"),
    [*product(EXACT, (1, 5), (0,)), ("tensorflow", 1, 0), ("tensorflow", 1, 9)],
)
def test_a_row_is_the_references(graph_of, engine, example, copies, filling):
    length = len(example["input_ids"]) + filling
    states = assert_reference(graph_of(engine), [example] * copies, length)
    np.testing.assert_array_equal(states, np.repeat(states[:, :1], copies, axis=1))


@pytest.mark.parametrize("engine", PADDING)
def test_rows_of_a_batch_are_the_references(graph_of, engine):
    assert_reference(graph_of(engine), GOLDEN, 30)


@pytest.mark.parametrize("engine", PADDING)
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_each_activation_equals_plain_numpy(tmp_path, activation, engine):
    tensors = write_tiny_huggingface(tmp_path / "source", hidden_act=activation)
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    plain = plain_bert.PlainBert(tensors, 4, getattr(plain_bert, activation))
    ids = np.random.default_rng(7).integers(5, 100, (3, 12)).astype(np.int32)
    mask = (np.arange(12) < np.array([[12], [7], [2]])).astype(np.int32)
    types = (np.arange(12) > np.array([[6], [12], [0]])).astype(np.int32)
    found, pooled = load_graph(bundle, (2, 3), engine)(PaddedRows(ids, mask, types, mask))
    for row, length in enumerate(mask.sum(1)):
        wanted = plain.hidden_states(ids[row, :length], types[row, :length])
        for one, other in zip(found, wanted, strict=True):
            assert_near(one[row, :length], other)
        assert_near(pooled[row], plain.pooled(wanted[-1]))
    plain.activation = plain_bert.gelu_new if activation == "gelu" else plain_bert.gelu
    wrong = plain.hidden_states(ids[0], types[0])[-1]
    assert distance(found[-1, 0], wrong) > 10 * relative_error(), "the bound would hide a fault"
