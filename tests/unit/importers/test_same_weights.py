"""One model in every format that is read: the same hidden states, the same vectors."""

import numpy as np
import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from tests.support.models.google import write_tiny_google, write_tiny_hub
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow

TEXTS = ["The bank of the river", "money, in the vault!", "a", "robber " * 80]
SECOND = ["and the other text", "the river", "b", "more water"]
GOOGLE = "uncased_L-3_H-32_A-4"
FORMATS = ("google", "huggingface", "hub")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Folders with the same seeded weights, by format."""
    root = tmp_path_factory.mktemp("formats")
    write_tiny_google(root / "1" / GOOGLE, layers=3)
    write_tiny_hub(root / "2" / "hub", layers=3)
    places = (root / "1" / GOOGLE, root / "1" / "huggingface", root / "2" / "hub")
    return dict(zip(FORMATS, places, strict=True))


@pytest.fixture(scope="module")
def bundles(sources, tmp_path_factory):
    root = tmp_path_factory.mktemp("bundles")
    return {name: import_model(str(sources[name]), str(root / name)) for name in FORMATS}


def hidden_states(bundle):
    random = np.random.default_rng(1)
    mask = (np.arange(24) < np.array([[24], [17], [3]])).astype(np.int32)
    ids = random.integers(0, bundle.config.vocab_size, mask.shape).astype(np.int32) * mask
    types = (np.arange(24) >= 9).astype(np.int32) * mask
    states = load_encoder(bundle).hidden_states(ids, mask, types)
    return [np.asarray(state)[mask > 0] for state in states]


def test_hidden_states_are_the_same_in_every_format(bundles):
    wanted, *others = (hidden_states(bundles[name]) for name in FORMATS)
    assert [len(states) for states in others] == [4, 4]
    for states in others:
        for one, other in zip(wanted, states, strict=True):
            assert_near(one, other, bundles["hub"].config)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "pooler"},
        {"layers": [0]},
        {"pooling": "cls", "layers": [1], "normalize": True},
        {"layers": [-1, 1, 2], "layer_combine": "concat"},
        {"texts_b": SECOND},
    ],
    ids=["mean", "pooler", "embeddings", "cls", "concat", "pairs"],
)
def test_vectors_are_the_same_in_every_format(bundles, settings):
    wanted, *others = (Encoder(bundles[name]).encode(TEXTS, **settings) for name in FORMATS)
    assert np.abs(wanted).max() > 0.1
    for vectors in others:
        assert_near(vectors, wanted, bundles["hub"].config)


def test_the_fingerprint_is_the_same_in_every_format_of_google_research(bundles):
    assert {bundles[name].config.hidden_act for name in FORMATS} == {"gelu_new"}
    # The other format says nothing of google-research, so its texts are cut into words as
    # Hugging Face's library does, which is another model.
    assert bundles["google"].fingerprint == bundles["hub"].fingerprint
    assert bundles["huggingface"].fingerprint != bundles["google"].fingerprint


@pytest.mark.parametrize("name", FORMATS)
def test_importing_twice_gives_the_same_fingerprint(sources, bundles, tmp_path, name):
    again = import_model(str(sources[name]), str(tmp_path / "again"))
    assert again.fingerprint == bundles[name].fingerprint
