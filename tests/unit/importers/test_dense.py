"""A model's Dense modules: activation(x @ kernel + bias), one after the other."""

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
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

CONFIG = BertConfig(9, 4, 1, 2, 8, 8)


def random_tensors(dense, seed=0):
    random = np.random.default_rng(seed)
    shapes = tensor_shapes(CONFIG) | module_shapes(dense)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


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
    tensors = random_tensors(modules)
    vectors = np.random.default_rng(1).normal(size=(rows, modules[0].in_features))
    vectors = vectors.astype(np.float32)
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


def test_the_names_include_the_modules():
    modules = (DenseModule(4, 3, "relu", True), DenseModule(3, 2, "tanh", False))
    shapes = tensor_shapes(CONFIG) | module_shapes(modules)
    added = {name: shape for name, shape in shapes.items() if name.startswith("dense")}
    assert added == {"dense/0/kernel": (4, 3), "dense/0/bias": (3,), "dense/1/kernel": (3, 2)}


def test_a_module_survives_json():
    module = DenseModule(4, 3, "gelu", False)
    assert DenseModule.from_dict(json.loads(json.dumps(module.to_dict()))) == module
    with pytest.raises(ValueError, match="fields missing or unknown: bias, colour"):
        DenseModule.from_dict(
            {"in_features": 1, "out_features": 1, "activation": "tanh", "colour": 1}
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1), "in_features must be a positive integer, got 0"),
        ((1, True), "out_features must be a positive integer, got True"),
        ((1, 1, "mish"), "activation must be one of identity, .*, got 'mish'"),
        ((1, 1, "tanh", 1), "bias must be true or false, got 1"),
    ],
)
def test_a_module_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        DenseModule(*values)
