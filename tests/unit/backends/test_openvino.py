"""OpenVINO on processors: bfloat16 near to float32, and vectors that neighbours cannot change."""

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bert_embed
from bert_embed.backends.openvino import BACKEND
from bert_embed.base import environment as processors
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
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
    encoders = {}

    def encoder(precision, **settings):
        key = precision, *settings.items()
        if key not in encoders:
            settings = {"engine": "openvino", "threads": 1} | settings
            encoders[key] = Encoder(minilm, precision=precision, **settings)
        return encoders[key]

    return encoder


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_vector_is_the_same_bits_whatever_its_neighbours(encoder_of, precision):
    encoder = encoder_of(precision)
    wanted = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    for found in (alone, encoder_of(precision, threads=3).encode(TEXTS)):
        np.testing.assert_array_equal(found, wanted)
    for batch_tokens in (33, 128, 1 << 14):
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
def test_heads_and_modules_have_the_same_bits_too(tmp_path):
    write_splade(tmp_path / "splade")
    bundle = import_model(str(tmp_path / "splade"), str(tmp_path / "bundle"))
    encoder = Encoder(bundle, precision="bfloat16", threads=1)
    together = encoder.encode(TEXTS[:20], kind="sparse")
    for number in range(0, 20, 5):
        alone, row = encoder.encode([TEXTS[number]], kind="sparse"), together[[number]]
        np.testing.assert_array_equal(alone.indices, row.indices)
        np.testing.assert_array_equal(alone.values, row.values)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_and_forked_processes_compute_the_same(encoder_of, precision):
    encoder = encoder_of(precision, threads=2)
    wanted = encoder.encode(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(encoder.encode, [TEXTS] * 8):
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


def test_a_processor_without_bfloat16_is_told_before_the_run(
    tmp_path, tiny_bundle, monkeypatch, capsys
):
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx2 avx512f avx512_vnni\n", "ascii")
    monkeypatch.setattr(processors, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "in.txt").write_text("a bank\n", "utf-8")
    sentence = (
        "precision bfloat16 requires a processor with avx512_bf16 or amx_bf16, and this one has "
        "neither; take int8 or float32"
    )
    for flags in ({}, {"device": "cpu"}, {"engine": "openvino"}):
        flags |= {"precision": "bfloat16"}
        assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 2
        said = capsys.readouterr().err
        assert f"--{sentence}" in said
        assert said.count("\n") == 1
        with pytest.raises(ValueError, match=sentence):
            bert_embed.load(tiny_bundle, **flags)
    assert not (tmp_path / "out").exists()
    found = Encoder(read_bundle(tiny_bundle), engine="openvino").encode(["a bank"])
    wanted = Encoder(read_bundle(tiny_bundle)).encode(["a bank"])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_missing_package_is_named_with_its_command(tmp_path, tiny_bundle, monkeypatch, capsys):
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx512_bf16\n", "ascii")
    monkeypatch.setattr(processors, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(
        "bert_embed.backends.choose.find_spec", lambda name: None if name == "openvino" else True
    )
    (tmp_path / "in.txt").write_text("a bank\n", "utf-8")
    named = {"engine": "openvino"}
    for flags, what in (({}, "--precision bfloat16"), (named, "--engine openvino")):
        flags |= {"precision": "bfloat16", "device": "cpu"}
        assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 2
        installs = f"{what} requires openvino, which is not installed here: pip install openvino"
        assert installs in capsys.readouterr().err
