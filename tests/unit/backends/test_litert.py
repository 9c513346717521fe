"""LiteRT on processors: plain NumPy's states in every shape, and bits no neighbour can change."""

import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pydoc_data.topics import topics

import numpy as np
import pytest

from bert_embed.backends.litert.engine import LiteRTEngine
from bert_embed.backends.tensorflow.model import TensorFlowModule
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.settings import OutputSpec, VectorSpec
from tests.support.command import ran
from tests.support.engines import load_watched, run_equal
from tests.support.models import plain_bert
from tests.support.models.folder import imported
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import MINILM, assert_near

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sentences():
    text = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    return [one for one in re.split(r"(?<=[.!?]) ", text) if 30 < len(one) < 400][:200]


@pytest.fixture(scope="module")
def float32(minilm):
    return Encoder(minilm)


@pytest.fixture(scope="module")
def int8(minilm):
    return Encoder(minilm, precision="int8")


@pytest.fixture(scope="module", params=["float32", "int8"])
def encoder(request, float32, int8):
    return {"float32": float32, "int8": int8}[request.param]


def similar(one, other):
    # Sums of int8 products are exact integers whatever kernel adds them up: rounding of float32
    # moves a number by one step of int8 at the most, and the cosines below are those of the steps.
    one, other = (each.reshape(-1, each.shape[-1]) for each in (one, other))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(axis=1) / lengths


def test_vectors_are_near_those_of_float32(float32, int8, sentences):
    found = similar(int8.encode(sentences), float32.encode(sentences))
    # Without balanced channels 0.9989 and 0.9969.
    assert found.mean() >= 0.9993
    assert found.min() >= 0.9975
    assert found.max() < 1  # it is int8
    chosen = sentences[:20]
    for one, other in zip(int8.units(chosen), float32.units(chosen), strict=True):
        assert one.texts == other.texts
        assert similar(one.vectors, other.vectors).mean() > 0.99


def test_a_vector_is_the_same_bits_whatever_its_neighbours(encoder, sentences):
    by_length = sorted(sentences, key=len)
    together = encoder.encode(by_length, batch_tokens=2048)  # batches of about one length
    alone = np.concatenate([encoder.encode([one]) for one in by_length[:128:4]])
    np.testing.assert_array_equal(alone, together[:128:4])
    for count in (1, 3, 32):
        chosen = by_length[: 4 * count : 4]
        # The longest sentence in one batch with the others: these are filled up to its length.
        padded = encoder.encode([*chosen, by_length[-1]], batch_tokens=1 << 20)[:-1]
        for found in (padded, encoder.encode(chosen, batch_tokens=64)):
            np.testing.assert_array_equal(found, together[: 4 * count : 4])


def test_small_calls_of_several_threads_run_side_by_side(tiny_bundle):
    """Each call waits in its batch until the other one is in its own."""
    met, loaded = threading.Barrier(2, timeout=60), threading.Event()

    def meet(ids):
        if loaded.is_set():
            met.wait()

    load = partial(load_watched, meet)
    encoder = Encoder(read_bundle(tiny_bundle), threads=2, load_engine=load)
    texts = ["the bank", "a river"]
    wanted = encoder.encode(texts[:1]), encoder.encode(texts[1:])
    loaded.set()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(encoder.encode, [texts[:1], texts[1:]]))
    np.testing.assert_array_equal(np.stack(found), np.stack(wanted))


def test_no_more_batches_run_at_once_than_there_are_threads(tiny_bundle):
    running, most, lock = set(), [0], threading.Lock()

    def count(ids):
        with lock:
            running.add(threading.get_ident())
            most[0] = max(most[0], len(running))
        time.sleep(0.01)
        with lock:
            running.discard(threading.get_ident())

    load = partial(load_watched, count)
    encoder = Encoder(read_bundle(tiny_bundle), threads=2, load_engine=load)
    texts = ["the bank of the river " * count for count in range(1, 9)]
    encode = partial(encoder.encode, batch_tokens=8)
    wanted = encode(texts)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(encode, [texts] * 3 + [[text] for text in texts]))
    assert most == [2]
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(np.concatenate(found[3:]), wanted)


_SWEEP = """
import bert_embed

def megabytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))

encoder = bert_embed.load("minilm", threads=1)
encoder.encode(["x"])
before = megabytes()
for layer in range(6):
    encoder.encode(["x"], layers=[layer])
print(megabytes() - before)
"""


def test_a_sweep_over_layers_keeps_no_model_for_each():
    done = ran([sys.executable, "-c", _SWEEP], check=True)
    assert int(done.stdout) < 300  # two models of 91 MB, and what was packed of them


LAYERS = VectorSpec(layers=(0, 1, 2), layer_combine="stack")


def hidden_states(engine, spec, ids, types):
    """float32 `[layers, batch, length, hidden]`."""
    graph = engine.graph(spec, OutputSpec(sentences=False, tokens=True), 0)
    tokens = run_equal(graph, ids, types)["tokens"]
    return np.stack(np.split(tokens, len(spec.layers), axis=-1))


@pytest.mark.numeric
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


@pytest.mark.numeric
@pytest.mark.slow
def test_lengths_of_the_default_model_equal_tensorflow(minilm):
    spec = VectorSpec(layers=(0, 3, 6), layer_combine="stack")
    engine = LiteRTEngine(minilm, (101, 102), "float32")
    reference = TensorFlowModule(minilm)
    random = np.random.default_rng(4)
    for length in [*range(1, 10), 15, 16, 17, 31, 32, 33, 47, 64, 65, 129, 300, 511, 512]:
        shape = min(max(256 // length, 1), 24), length
        ids = random.integers(1000, 30000, shape).astype(np.int32)
        states = reference.hidden_states(ids, np.ones_like(ids), ids * 0)
        wanted = np.stack([states[layer].numpy() for layer in spec.layers])
        assert_near(hidden_states(engine, spec, ids, ids * 0), wanted, MINILM)
