"""A model's Dense modules: activation(x @ kernel + bias), one after the other."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_embed.backends.host import host_call
from bert_embed.backends.litert import FILES
from bert_embed.backends.litert.engine import LiteRTModel
from bert_embed.backends.litert.model import write_litert
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.bert import BertConfig
from bert_embed.models.encoder import tensor_shapes
from bert_embed.models.modules import DENSE_ACTIVATIONS, DenseModule, module_shapes
from tests.support.models import plain_bert
from tests.support.models.folder import drawn

CONFIG = BertConfig(9, 4, 1, 2, 8, 8)


@st.composite
def chains(draw):
    """Modules of which each takes what the one before it gives."""
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=4))
    return tuple(
        DenseModule(one, other, draw(st.sampled_from(DENSE_ACTIVATIONS)), draw(st.booleans()))
        for one, other in pairwise(widths)
    )


@settings(max_examples=25)
@given(chains(), st.integers(1, 3))
def test_a_chain_of_modules_equals_plain_numpy(modules, rows):
    random = np.random.default_rng(0)
    tensors = drawn(tensor_shapes(CONFIG) | module_shapes(modules), 0, scale=1)
    vectors = random.normal(size=(rows, modules[0].in_features)).astype(np.float32)
    wanted = vectors.astype(np.float64)
    for number, module in enumerate(modules):
        bias = tensors.get(f"dense/{number}/bias", 0)
        wanted = plain_bert.ACTIVATIONS[module.activation](
            wanted @ tensors[f"dense/{number}/kernel"] + bias
        )
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle(folder, "", CONFIG, 8, dense=modules)
        write_litert(folder, bundle, tensors)
        found = LiteRTModel(Path(folder, FILES["float32"]), None).call("modules", vectors)
        on_host = host_call(bundle, tensors, "modules", vectors)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(on_host, wanted, atol=1e-4)
