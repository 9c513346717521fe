"""`--device`: what computes, checked before the run and told after it."""

import numpy as np
import pytest

from tests.support.command import record, rows, vectors
from tests.support.models.tiny import WORDS
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow

# Two rungs of lengths, two numbers of rows: four programs, a second each.
FEW = {"max_seq_length": 10, "batch_tokens": 128, "threads": 2}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    random = np.random.default_rng(3)
    lines = [" ".join(random.choice(WORDS, random.integers(1, 12))) for _ in range(300)]
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_programs_are_compiled_once_for_all_blocks_and_counted(texts, run):
    many = {**FEW, "block_bytes": 2000}
    one, other = run(texts, "cpu", device="cpu", **many), run(texts, engine="tensorflow", **many)
    assert rows(other)["id"] == rows(one)["id"]
    assert_near(vectors(other), vectors(one))
    before, found = record(one), record(other)
    assert found["plan"]["blocks"] > 3
    assert (before["compiled_shapes"], found["compiled_shapes"]) == (0, 4)
    assert "compile" not in before["stage_seconds"]
    assert found["stage_seconds"]["compile"] > 0
    assert found["padded_tokens"] >= found["computed_tokens"] == before["computed_tokens"]
    assert found["run"] == before["run"], "what computes is no part of what a run is"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"device": "rocm"}, "--device must be one of auto"),
        ({"device": "cuda"}, "--device gpu: tensorflow sees no GPU on this machine"),
        ({"device": "gpu"}, "--device gpu: tensorflow sees no GPU on this machine"),
        ({"device": "gpu", "precision": "int8"}, "--precision int8 is for processors"),
        ({"engine": "tensorflow", "precision": "int8"}, "tensorflow does not compute int8"),
        ({"engine": "onnx"}, "one of litert, openvino, jax, tensorflow, got 'onnx'"),
        ({"engine": "litert", "device": "gpu"}, "litert does not compute float32 on device gpu"),
        ({"device": "tpu", "precision": "float16"}, "--precision float16 is for GPUs"),
        ({"precision": "float16"}, "--precision float16 requires a GPU"),
    ],
)
def test_what_cannot_compute_is_refused_before_the_run(texts, run, flags, message):
    run.refused(texts, message, **flags)


def test_blocks_are_larger_for_a_device_that_is_asked_for(texts, run):
    """By what is asked for, not by what is found: the plan must be the same wherever it is made."""
    large = {"large.txt": texts.read_text() * 600}
    cluster = {"runner": "PortableRunner", "job_endpoint": "localhost:9", "dry_run": True}
    sizes = {}
    for device in ("auto", "cpu", "tpu"):
        run(large, device=device, **cluster)
        sizes[device] = run.out
    assert sizes["auto"] == sizes["cpu"] != sizes["tpu"]
