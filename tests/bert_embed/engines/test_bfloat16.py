import numpy as np
import pytest

from bert_embed.encoder import Encoder
from bert_embed.engines.tensorflow import TensorFlowEngine
from bert_embed.specs import OutputSpec
from tests.support.models.tiny import WORDS
from tests.support.rounding import MINILM, distance, least_cosine, relative_error

pytestmark = pytest.mark.numeric


@pytest.fixture(scope="module")
def sentences():
    """Fifty, of 3 to 26 words."""
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, 3 + row % 24)) for row in range(50)]


@pytest.mark.slow
def test_vectors_point_where_those_of_float32_do(minilm, sentences):
    """The engine by itself, for people are refused it where it would be slow."""
    encoder = Encoder(minilm, device="cpu")
    special = encoder.tokenizer.cls_id, encoder.tokenizer.sep_id
    graph = TensorFlowEngine(minilm, special, "bfloat16").graph(encoder.spec, OutputSpec(), 0)
    rows = [np.array([ids], np.int32) for ids in map(encoder.tokenizer.encode, sentences)]
    found = np.concatenate([graph(ids, ids * 0 + 1, ids * 0)["sentences"] for ids in rows])
    wanted = encoder.encode(sentences)
    assert found.dtype == np.float32
    assert (wanted * found).sum(axis=1).min() >= least_cosine(MINILM, "bfloat16")
    assert distance(found, wanted) > 10 * relative_error(MINILM), "computed in float32"
