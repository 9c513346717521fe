"""`--device`: what computes, checked before the run and told after it."""

import numpy as np
import pytest

from tests.support.command import embed, record, rows, vectors
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


def test_programs_are_compiled_once_for_all_blocks_and_counted(texts, tmp_path, tiny_bundle):
    one, other = tmp_path / "cpu", tmp_path / "xla"
    many = {**FEW, "block_bytes": 2000}
    assert embed(one, tiny_bundle, texts, device="cpu", **many) == 0
    assert embed(other, tiny_bundle, texts, engine="tensorflow", **many) == 0
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
        (
            {"engine": "tensorflow", "precision": "int8"},
            "tensorflow does not compute int8",
        ),
        (
            {"engine": "onnx"},
            "one of litert, openvino, jax, tensorflow, got 'onnx'",
        ),
        ({"engine": "litert", "device": "gpu"}, "litert does not compute float32 on device gpu"),
        ({"device": "tpu", "precision": "float16"}, "--precision float16 is for GPUs"),
        ({"precision": "float16"}, "--precision float16 requires a GPU"),
    ],
)
def test_what_cannot_compute_is_refused_before_the_run(
    texts, tmp_path, tiny_bundle, flags, message, capsys
):
    assert embed(tmp_path / "out", tiny_bundle, texts, **flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_blocks_are_larger_for_a_device_that_is_asked_for(texts, tmp_path, tiny_bundle, capsys):
    """By what is asked for, not by what is found: the plan must be the same wherever it is made."""
    large = tmp_path / "large.txt"
    large.write_text(texts.read_text() * 600)
    sizes = {}
    cluster = {"runner": "PortableRunner", "job_endpoint": "localhost:9", "dry_run": True}
    for device in ("auto", "cpu", "tpu"):
        assert embed(tmp_path / "out", tiny_bundle, large, device=device, **cluster) == 0
        said = capsys.readouterr().out
        sizes[device] = said
    assert sizes["auto"] == sizes["cpu"] != sizes["tpu"]
