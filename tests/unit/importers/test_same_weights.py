"""One model in every format that is read: the same weights, the same vectors."""

import numpy as np
import pytest

from bert_embed.bundle.bundle import load_tensors
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from tests.support.models.google import write_tiny_google, write_tiny_hub

pytestmark = pytest.mark.slow

GOOGLE = "uncased_L-3_H-32_A-4"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Those of one seed by their formats."""
    root = tmp_path_factory.mktemp("formats")
    write_tiny_google(root / GOOGLE, layers=3)
    write_tiny_hub(root / "2" / "hub", layers=3)
    sources = {"google": root / GOOGLE, "huggingface": root / "huggingface"}
    sources["hub"] = root / "2" / "hub"
    return {
        name: import_model(str(source), str(root / "bundles" / name))
        for name, source in sources.items()
    }


def test_weights_are_the_same_in_every_format(bundles):
    wanted, *others = map(load_tensors, bundles.values())
    for tensors in others:
        assert tensors.keys() == wanted.keys()
        for name, tensor in wanted.items():
            np.testing.assert_array_equal(tensors[name], tensor)
    google, huggingface, hub = bundles.values()
    assert google.config == huggingface.config == hub.config
    assert hub.config.hidden_act == "gelu_new"
    # The other format says nothing of google-research, so its texts are cut into words as
    # Hugging Face's library does, which is another model.
    assert huggingface.fingerprint != google.fingerprint == hub.fingerprint


@pytest.mark.parametrize("settings", [{}, {"pooling": "pooler", "texts_b": ["a", "river", "b"]}])
def test_vectors_are_the_same_in_every_format(bundles, settings):
    texts = ["The bank of the river", "money, in the vault!", "robber " * 80]
    encoders = map(Encoder, bundles.values())
    wanted, *others = (one.encode(texts, long_text="truncate", **settings) for one in encoders)
    assert np.abs(wanted).max() > 0.1
    for vectors in others:
        np.testing.assert_array_equal(vectors, wanted)
