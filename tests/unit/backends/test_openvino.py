"""OpenVINO on processors: bfloat16 near to float32, and vectors that neighbours cannot change."""

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from bert_embed.backends.openvino import BACKEND
from bert_embed.base import environment as processors
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from tests.support.command import embed, ran, record, vectors
from tests.support.models.heads import write_splade
from tests.support.rounding import MINILM, TINY, least_cosine

pytestmark = pytest.mark.slow
openvino = pytest.importorskip("openvino", reason="OpenVINO is for x86")
needs_bfloat16 = pytest.mark.skipif(
    processors.flags().isdisjoint(BACKEND.instructions["bfloat16"]),
    reason="this processor has no products in bfloat16",
)
PRECISIONS = ["float32", pytest.param("bfloat16", marks=needs_bfloat16)]
# From three tokens to more than a batch holds, most lengths twice and more.
TEXTS = [f"text {number} " + "the river bank " * (number % 23) for number in range(60)]
TEXTS += ["a", "vault", "river " * 180]


@pytest.fixture(scope="module")
def encoder_of(minilm):
    """The encoder of a precision with so many threads, each once."""
    return cache(
        lambda precision, threads=1: Encoder(
            minilm, precision=precision, engine="openvino", threads=threads
        )
    )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_vector_is_the_same_bits_whatever_its_neighbours(encoder_of, precision):
    encoder = encoder_of(precision)
    wanted = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    for found in (alone, encoder_of(precision, 3).encode(TEXTS)):
        np.testing.assert_array_equal(found, wanted)
    for batch_tokens in (33, 1 << 14):
        found = encoder.encode(TEXTS[::-1], batch_tokens=batch_tokens)[::-1]
        np.testing.assert_array_equal(found, wanted)
    settings = {"layers": [2, -1], "layer_combine": "concat"}
    for text, together in zip(TEXTS[::7], encoder.units(TEXTS[::7], **settings), strict=True):
        (found,) = encoder.units([text], **settings)
        np.testing.assert_array_equal(found.vectors, together.vectors)


@needs_bfloat16
def test_bfloat16_points_where_float32_does(minilm, encoder_of, tiny_bundle):
    wanted = Encoder(minilm, threads=1).encode(TEXTS)
    cosines = (encoder_of("bfloat16").encode(TEXTS) * wanted).sum(axis=1)
    assert least_cosine(MINILM, "bfloat16") <= cosines.min() < cosines.mean() < 1
    tiny = read_bundle(tiny_bundle)
    for settings in ({"pooling": "pooler"}, {"layers": 1, "pooling": "cls,max"}):
        settings = {"normalize": True, **settings}
        found, wanted = (
            Encoder(tiny, precision=precision, threads=1).encode(TEXTS[:20], **settings)
            for precision in ("bfloat16", "float32")
        )
        assert (found * wanted).sum(axis=1).min() > least_cosine(TINY, "bfloat16")


def test_its_imports_are_not_reported_to_intel():
    code = "import sys, bert_embed.backends.openvino.engine; print(*sys.modules)"
    modules = ran([sys.executable, "-c", code]).stdout.split()
    assert "openvino" in modules
    assert "openvino_telemetry" not in modules


@needs_bfloat16
def test_heads_and_modules_have_the_same_bits_too(model_of):
    encoder = Encoder(model_of(write_splade), precision="bfloat16", threads=1)
    together = encoder.encode(TEXTS[:20], kind="sparse")
    for number in range(0, 20, 5):
        alone, row = encoder.encode([TEXTS[number]], kind="sparse"), together[[number]]
        np.testing.assert_array_equal(alone.indices, row.indices)
        np.testing.assert_array_equal(alone.values, row.values)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_and_forked_processes_compute_the_same(encoder_of, precision):
    encoder = encoder_of(precision, 2)
    wanted = encoder.encode(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(encoder.encode, [TEXTS] * 4):
            np.testing.assert_array_equal(found, wanted)
    fork = multiprocessing.get_context("fork")

    def child(nested):
        right = np.array_equal(encoder.encode(TEXTS[:20]), wanted[:20])
        if nested and right:
            again = fork.Process(target=child, args=(False,))
            again.start()
            again.join(60)
            right = again.exitcode == 0
        sys.exit(0 if right else 3)

    process = fork.Process(target=child, args=(True,))
    process.start()
    process.join(120)
    assert process.exitcode == 0


@needs_bfloat16
def test_the_command_line_computes_in_bfloat16(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    for name, flags in (("a", {}), ("b", {"batch_tokens": 33, "threads": 3, "device": "cpu"})):
        flags |= {"precision": "bfloat16", "max_seq_length": 64}
        assert embed(tmp_path / name, tiny_bundle, tmp_path / "in.txt", **flags) == 0
    np.testing.assert_array_equal(vectors(tmp_path / "a"), vectors(tmp_path / "b"))
    assert record(tmp_path / "a")["engine"] == "openvino"
