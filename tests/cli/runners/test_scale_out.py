"""Two workers do twice as much: a model that sleeps, so that the cores do not matter."""

import json
import subprocess

import pytest

from benchmarks.scale import summary
from benchmarks.sides.null_pipeline import NAME
from tests.support.command import ROOT, record, rows
from tests.support.forks import python

pytestmark = pytest.mark.slow

TEXTS = 3000


def test_two_workers_are_busy_all_the_time(tmp_path, tiny_bundle):
    """Blocks of equal length: half of them each, and at the same time."""
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "huge.txt").write_text("one red river bank\n" * (TEXTS // 2))
    for number in range(50):
        (source / f"small-{number:02d}.txt").write_text("seven stars\n" * (TEXTS // 100))
    command = [*python(), "-m", "benchmarks.sides.null_pipeline", f"--input={source}"]
    command += [f"--output={output}", f"--model={tiny_bundle}", "--workers=2"]
    command += ["--block_bytes=1000", "--tokens_a_second=1500", "--notes"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    assert record(output)["counts"]["embedded"] == len(rows(output)["id"]) == TEXTS
    notes = [json.loads(line) for line in (output / NAME).read_text("utf-8").splitlines()]
    assert len(notes) == record(output)["plan"]["blocks"] > 30
    assert min(summary(notes, 2)["blocks"]) >= 0.4 * len(notes)
    beside = [
        any(other["start"] < note["stop"] and note["start"] < other["stop"] for other in others)
        for note in notes
        for others in [[each for each in notes if each["process"] != note["process"]]]
    ]
    assert sum(beside) >= 0.8 * len(notes), "one waited while the other worked"
