"""LiteRT on processors: int8 near to float32, and a vector that its neighbours cannot change."""

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pydoc_data.topics import topics

import numpy as np
import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from tests.support.command import ROOT, embed, rows, vectors
from tests.support.engines import load_watched

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


def test_token_vectors_are_the_same_bits_whatever_their_neighbours(encoder, sentences):
    chosen = sentences[:12]
    together = encoder.units(chosen, layers=[2, -1], layer_combine="concat")
    for one, wanted in zip(chosen, together, strict=True):
        (found,) = encoder.units([one], layers=[2, -1], layer_combine="concat")
        np.testing.assert_array_equal(found.vectors, wanted.vectors)


def test_merged_windows_are_finished_as_rows_are(tiny_bundle):
    windows = {"long_text": "window", "max_seq_length": 32, "overlap": 4}
    merged, wanted = (
        Encoder(read_bundle(tiny_bundle), precision=precision).encode(
            ["the river and the bank " * 30], normalize=True, dim=20, **windows
        )
        for precision in ("int8", "float32")
    )
    assert merged.shape == (1, 20)
    assert np.linalg.norm(merged) == pytest.approx(1, abs=1e-5)
    assert similar(merged, wanted).min() > 0.999


def test_the_command_line_computes_in_int8(tmp_path, tiny_bundle):
    lines = "".join(f"the bank number {n} of the river\n" for n in range(300))
    (tmp_path / "in.txt").write_text(lines, "utf-8")
    for name, flags in (("a", {}), ("b", {"batch_tokens": 33, "threads": 3})):
        done = embed(tmp_path / name, tiny_bundle, tmp_path / "in.txt", precision="int8", **flags)
        assert done == 0
    assert rows(tmp_path / "a")["embedding"] == rows(tmp_path / "b")["embedding"]
    wanted = Encoder(read_bundle(tiny_bundle)).encode(lines.splitlines())
    assert similar(vectors(tmp_path / "a"), wanted).min() > 0.999
    # Not a run to go on with in float32.
    assert embed(tmp_path / "a", tiny_bundle, tmp_path / "in.txt") == 2


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
    done = subprocess.run(
        [sys.executable, "-c", _SWEEP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 300  # two models of 91 MB, and what was packed of them
