"""An engine of another package: an entry point, and what it has not is done by the host."""

from functools import cache, partial

import numpy as np
import pytest

import bert_embed
from bert_embed.backends.choose import find_backend, weight_files
from bert_embed.bundle.bundle import read_bundle
from bert_embed.importers import import_model
from tests.support.command import embed, record, vectors
from tests.support.models.heads import write_classifier, write_m3, write_splade
from tests.support.models.sentence_transformers import dense, write_sentence_transformers
from tests.support.toy_engine import ToyModel

NEAR = 2e-5
TEXTS = ["the river bank", "money", "the bank of the river was down", "a", "", "she said so"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Has the toy installed, as pip installs a package with an entry point."""
    about = tmp_path / "site" / "toy-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    point = "toy = tests.support.toy_engine:BACKEND"
    (about / "entry_points.txt").write_text(f"[bert_embed.backends]\n{point}\n")
    monkeypatch.syspath_prepend(str(about.parent))


@cache
def both(model):
    return [bert_embed.load(model, engine=engine) for engine in ("litert", "toy")]


@pytest.mark.parametrize(
    ("model", "spec"),
    [
        ("minilm", {}),
        ("tiny", {"pooling": "max,cls,sep,lasttoken,weightedmean,mean_sqrt_len"}),
        ("tiny", {"pooling": "pooler", "normalize": False}),
        ("tiny", {"layers": [0, 2], "layer_combine": "stack", "pool_special_tokens": False}),
    ],
)
def test_its_vectors_are_those_of_litert(installed, tiny_bundle, model, spec):
    wanted, found = both(tiny_bundle if model == "tiny" else model)
    np.testing.assert_allclose(found.encode(TEXTS, **spec), wanted.encode(TEXTS, **spec), atol=NEAR)
    layers = {name: value for name, value in spec.items() if name.startswith("layer")}
    (tokens,), (right,) = (one.units(TEXTS[:1], **layers) for one in (found, wanted))
    np.testing.assert_allclose(tokens.vectors, right.vectors, atol=NEAR)


def test_the_host_has_modules_and_heads_for_it(installed, tmp_path):
    activations = (f"activation.{name}" for name in ("Tanh", "GELU", "Sigmoid", "SiLU", "ReLU"))
    modules = [dense(32, 6, next(activations)), *(dense(6, 6, name) for name in activations)]
    write_sentence_transformers(tmp_path / "dense", modules=modules)
    wanted, found = both(tmp_path / "dense")
    np.testing.assert_allclose(found.encode(TEXTS), wanted.encode(TEXTS), atol=NEAR)
    write_splade(tmp_path / "splade")
    wanted, found = (one.encode(TEXTS, kind="sparse") for one in both(tmp_path / "splade"))
    np.testing.assert_array_equal(found.splits, wanted.splits)
    np.testing.assert_allclose(found.values, wanted.values, atol=NEAR)


@pytest.mark.parametrize(
    ("write", "head"),
    [
        (write_splade, "sparse"),
        (write_m3, "multi"),
        (write_m3, "sparse"),
        (partial(write_classifier, kind="roberta", labels=3), "scores"),
    ],
)
def test_what_a_head_makes_of_a_row_has_the_same_bits_in_every_batch(tmp_path, write, head):
    write(tmp_path / "model")
    model = ToyModel(import_model(str(tmp_path / "model"), str(tmp_path / "bundle")))
    states = np.random.default_rng(0).standard_normal((9, 16, 32), np.float32)
    alone = [model.call(head, states[row : row + 1]) for row in range(9)]
    np.testing.assert_array_equal(model.call(head, states), np.concatenate(alone))


def test_the_command_line_takes_it_and_the_run_is_the_same(installed, tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(filter(None, TEXTS)) + "\n")
    places = {engine: tmp_path / engine for engine in ("litert", "toy")}
    for engine, place in places.items():
        assert embed(place, tiny_bundle, tmp_path / "in.txt", engine=engine) == 0
        assert record(place)["engine"] == engine
    np.testing.assert_allclose(vectors(places["toy"]), vectors(places["litert"]), atol=NEAR)
    assert record(places["toy"])["run"] == record(places["litert"])["run"]


def test_what_it_cannot_do_is_one_sentence_and_it_computes_where_it_is_named(
    installed, tiny_bundle
):
    for settings, message in (
        ({"engine": "onnx"}, "litert, openvino, jax, tensorflow, toy, got 'onnx'"),
        ({"engine": "toy", "precision": "int8"}, "toy does not compute int8, but float32 on cpu"),
        ({"engine": "toy", "device": "gpu"}, "toy does not compute float32 on device gpu"),
    ):
        with pytest.raises(ValueError, match=message):
            bert_embed.load(tiny_bundle, **settings)
    assert find_backend("float32", "cpu")[0].name == "litert"
    bundle = read_bundle(tiny_bundle)
    assert weight_files(bundle, "float32", "cpu") == ["float32.tflite"]
    assert weight_files(bundle, "float32", "cpu", "toy") == ["weights.safetensors"]
