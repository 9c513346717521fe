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


def test_blocks_are_larger_for_a_device_that_is_asked_for(texts, run):
    """By what is asked for, not by what is found: the plan must be the same wherever it is made."""
    large = {"large.txt": texts.read_text() * 600}
    cluster = {"runner": "PortableRunner", "job_endpoint": "localhost:9", "dry_run": True}
    sizes = {}
    for device in ("auto", "cpu", "tpu"):
        run(large, device=device, **cluster)
        sizes[device] = run.out
    assert sizes["auto"] == sizes["cpu"] != sizes["tpu"]
