import numpy as np
import pytest

from bert.encoder import Encoder
from bert.engine import Wanted
from bert.tensorflow_engine import TensorFlowEngine
from tests.models import WORDS


@pytest.fixture(scope="module")
def sentences():
    """Fifty, of 3 to 26 words."""
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, 3 + row % 24)) for row in range(50)]


def test_vectors_point_where_those_of_float32_do(minilm, sentences):
    """The engine by itself, for people are refused it where it would be slow."""
    encoder = Encoder(minilm, device="cpu")
    special = encoder.tokenizer.cls_id, encoder.tokenizer.sep_id
    graph = TensorFlowEngine(minilm, special, "bfloat16").graph(encoder.spec, Wanted(), 0)
    rows = [
        np.array([[special[0], *ids, special[1]]], np.int32)
        for ids in encoder.tokenizer.encode(sentences)
    ]
    found = np.concatenate([graph(ids, ids * 0 + 1, ids * 0)["sentences"] for ids in rows])
    wanted = encoder.encode(sentences)
    assert found.dtype == np.float32
    assert (wanted * found).sum(axis=1).min() >= 0.9999
    assert np.abs(wanted - found).max() > 1e-5, "computed in float32"
