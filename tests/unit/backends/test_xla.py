"""The programs for GPUs and TPUs, compiled by XLA for this machine's processor."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bert_embed.backends import choose
from bert_embed.backends.choose import check_precision, find_backend, load_engine
from bert_embed.backends.runner import RowRunner, RowSpec
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.settings import VectorSpec
from bert_embed.text.documents import TokenRows
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import MINILM, assert_near, least_cosine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TEXTS = ["the river bank", "money", "the bank of the river was down", "a", "", "she said so"]
BATCH = 64  # tokens: six shapes and less are compiled in a second each
SHORT = {"max_seq_length": 8, "batch_tokens": BATCH}
ROWS = {"max_seq_length": 12}
CONCAT = {"layer_combine": "concat", **ROWS}
ONE_LAYER = VectorSpec(layers=(1,))  # compiled in half the time, where shapes are what is tested


@cache
def encoder(folder, engine):
    return Encoder(read_bundle(folder), device="cpu", engine=engine, threads=2)


LONG = "the bank of the river was down by the water " * 3
CALLS = {
    "joined": ("encode", TEXTS, {"pooling": "weightedmean,max", **SHORT}),
    "pooler": ("encode", TEXTS, {"pooling": "pooler", **SHORT}),
    "pairs": ("units", TEXTS, {"texts_b": TEXTS[::-1], "layers": [0, -1], **CONCAT}),
    "windows": ("encode", [LONG, "money"], {"long_text": "window", "normalize": True, **ROWS}),
}


@pytest.mark.parametrize("name", CALLS)
def test_vectors_are_those_of_the_processor(tiny_bundle, name):
    method, texts, settings = CALLS[name]
    one, other = (
        getattr(encoder(tiny_bundle, engine), method)(texts, **settings)
        for engine in ("litert", "tensorflow")
    )
    for found, wanted in zip(other, one, strict=True):
        assert_near(getattr(found, "vectors", found), getattr(wanted, "vectors", wanted))


def test_a_row_longer_than_usual_runs_all_the_same(model_of):
    bundle = model_of(write_tiny_huggingface, positions=24)
    ids = np.random.default_rng(0).integers(5, 90, 23).astype(np.int32)
    rows = TokenRows(ids, np.array([0, 3, 23]))
    engines = [
        load_engine(bundle, (2, 3), "float32", "cpu", 1, name) for name in ("litert", "tensorflow")
    ]
    one, other = (
        RowRunner(bundle.config, engine, threads=2).run(
            rows, RowSpec(ONE_LAYER, batch_tokens=1, longest=16)
        )
        for engine in engines
    )
    assert (other.compiled, other.padded_tokens) == (2, 8 + 20)
    assert_near(other.vectors, one.vectors)


# In a process of its own, which XLA tells to write down each program that it compiles.
COMPILES = f"""
import glob, json, os, sys
import bert_embed, numpy as np, tensorflow as tf
from bert_embed.backends.choose import load_engine
from bert_embed.backends.runner import RowRunner, RowSpec
from bert_embed.text.documents import TokenRows
from bert_embed.bundle.bundle import read_bundle
from bert_embed.settings import VectorSpec

folder, dump = sys.argv[1:]
programs = lambda: sorted(glob.glob(f"{{dump}}/*.before_optimizations.txt"))

def settings():
    precise = not tf.config.experimental.tensor_float_32_execution_enabled()
    return [precise, tf.config.threading.get_intra_op_parallelism_threads(), dict(os.environ)]

before = settings()
encoder = bert_embed.load(folder, engine="tensorflow", layers=[1])
encoder.encode(["the river"])
bert_embed.load(folder).encode(["the river"])
found = {{"kept": before == settings(), "precise": before[0]}}
found["program"] = open(programs()[0]).read()

for given in ({{}}, {{"dim": 5}}, {{"normalize": True}}, {{"dim": 7, "normalize": True}}):
    shape = encoder.encode(["the river"], **given).shape
found |= {{"shape": shape, "of_one_shape": len(programs())}}

bundle = read_bundle(folder)
engine = load_engine(bundle, (2, 3), "float32", "cpu", 1, "tensorflow")
runner = RowRunner(bundle.config, engine, threads=2)
found["runs"] = []
for lengths in ([3], [16] * 9, [1, 5, 9, 13], list(range(1, 17)) * 3, [12] * 7):
    ids = np.random.default_rng(0).integers(5, 90, sum(lengths)).astype(np.int32)
    wanted = RowSpec(VectorSpec(layers=(1,)), batch_tokens={BATCH}, longest=16)
    run = runner.run(TokenRows(ids, np.cumsum([0, *lengths])), wanted)
    facts = run.compiled, run.compile_seconds, run.padded_tokens, len(run.failed)
    found["runs"].append([sum(lengths), *facts])
print(json.dumps(found | {{"programs": len(programs())}}))
"""


@pytest.fixture(scope="module")
def compiles(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiles")
    programs = str(folder / "programs")
    dump = f"--xla_dump_hlo_as_text --xla_dump_to={programs}"
    variables = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {dump}"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILES, tiny_bundle, programs],
        cwd=ROOT,
        env=variables | {"PATH": "", "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_shapes_of_a_call_are_compiled_before_it_and_once(compiles):
    counts = []
    for tokens, compiled, seconds, padded, failed in compiles["runs"]:
        assert (seconds > 0, padded >= tokens, failed) == (compiled > 0, True, 0)
        counts.append(compiled)
    assert counts == [1, 2, 1, 2, 0]  # 8 rows of 8 and 2, 5 of 12 and 1, 4 of 16 and 1
    assert compiles["programs"] == 1 + sum(counts), "XLA compiled more than are counted"


def test_calls_share_programs_which_are_exact_and_the_caller_keeps_its_settings(compiles):
    assert (compiles["shape"], compiles["of_one_shape"]) == ([1, 7], 1)  # of other dim and length
    assert (compiles["kept"], compiles["precise"]) == (True, False)
    products = [line for line in compiles["program"].splitlines() if " dot(" in line]
    assert products
    assert all("operand_precision={highest,highest}" in line for line in products)


def test_a_forked_process_is_refused_at_once(tiny_bundle):
    on_xla = encoder(tiny_bundle, "tensorflow")
    on_xla.encode("vault")
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            on_xla.encode("vault")
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as said:
        assert "cannot be used in a forked process" in said.read()
    os.wait()


def test_batches_of_two_models_do_not_run_at_once(tiny_bundle):
    one, other = (
        load_engine(read_bundle(tiny_bundle), (2, 3), "float32", "cpu", 1, "tensorflow")
        for _ in range(2)
    )
    assert one.device is other.device
    with one.device:
        assert not other.device.acquire(blocking=False)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_short_numbers_point_where_float32_does(minilm, precision):
    texts = [f"{text} and the {other}" for text in TEXTS for other in TEXTS]
    wanted = Encoder(minilm, device="cpu").encode(texts, **SHORT)
    short = Encoder(minilm, engine="tensorflow", precision=precision, threads=2)
    found = short.encode(texts, **SHORT)
    assert (wanted * found).sum(axis=1).min() >= least_cosine(MINILM, precision)
    assert np.abs(found - wanted).max() > 0, "computed in float32"


@pytest.mark.parametrize(
    ("precision", "device", "message"),
    [
        ("int8", "gpu", "precision int8 is for processors, for device gpu take bfloat16"),
        ("float16", "cpu", "precision float16 is for GPUs, for device cpu take int8"),
        ("float16", "tpu", "precision float16 is for GPUs, for device tpu take bfloat16"),
        ("float32", "gpuu", "device must be one of auto, cpu, gpu, tpu, got 'gpuu'"),
        ("int4", "auto", "precision must be one of float32, int8, bfloat16"),
    ],
)
def test_what_no_machine_computes_is_refused(tiny_bundle, precision, device, message):
    with pytest.raises(ValueError, match=message):
        check_precision(precision, device)
    with pytest.raises(ValueError, match=message):
        Encoder(read_bundle(tiny_bundle), precision=precision, device=device)


@pytest.fixture
def no_gpu():
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has one that it sees")


def test_a_machine_without_a_gpu_says_so(no_gpu, tiny_bundle):
    assert find_backend("float32", "auto")[1] == "cpu"
    for precision, device, message in (
        ("float32", "gpu", "device gpu: tensorflow sees no GPU"),
        ("float16", "auto", "precision float16 requires a GPU"),
    ):
        with pytest.raises(ValueError, match=message):
            find_backend(precision, device)
    with pytest.raises(ValueError, match=r"device tpu requires jax\[tpu\], which is not installed"):
        Encoder(read_bundle(tiny_bundle), device="tpu")


def test_a_gpu_that_tensorflow_does_not_see_is_warned_of(no_gpu, tmp_path, monkeypatch, caplog):
    (tmp_path / "version").write_text("NVRM version")
    monkeypatch.setattr(choose, "NVIDIA_DRIVER", (tmp_path / "version",))
    assert find_backend("float32", "auto")[1] == "cpu"
    assert "tensorflow does not see it" in caplog.text
    caplog.clear()
    assert find_backend("float32", "cpu") == find_backend("int8", "auto")
    assert caplog.text == ""
