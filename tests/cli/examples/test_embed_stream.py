"""The streaming example embeds what appears while it runs, on Prism."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

import bert_embed
from tests.support.command import PRISM, ROOT, runner_flags
from tests.support.forks import python

pytestmark = pytest.mark.slow

SECONDS = 150  # that the stream goes on; a busy machine takes a minute to begin


def put(folder, name, text):
    """Moves a finished file into a folder that is watched."""
    (folder.parent / name).write_text(text, encoding="utf-8")
    (folder.parent / name).rename(folder / name)


def written(folder):
    paths = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def wait_for(stream, folder, count):
    """What was written once there are so many records, while the stream still goes on."""
    while len(written(folder)) < count:
        assert stream.poll() is None, "the stream ended before its records came"
        time.sleep(0.2)
    return written(folder)


def test_lines_are_embedded_as_their_files_appear(minilm, tmp_path):
    runner_flags("prism")  # else skipped
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    put(source, "a.txt", "one text\n\nanother text\n")
    command = [*python(), "-m", "examples.embed_stream", str(source / "*.txt"), str(out)]
    command += [str(SECONDS), "--prism_location", str(PRISM)]
    with (tmp_path / "log").open("w") as log:
        stream = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    try:
        first = wait_for(stream, out, 3)
        put(source, "b.txt", "a later text\n")
        records = wait_for(stream, out, 4)
        assert stream.poll() is None
    finally:
        stream.send_signal(signal.SIGINT)  # as Ctrl-C: Prism ends with it
        stream.wait(timeout=60)
    assert sorted(each.get("text", "") for each in first) == ["", "another text", "one text"]
    embedded = {each["text"]: each["embedding"] for each in records if "text" in each}
    rejected = [each for each in records if "text" not in each]
    assert rejected == [{"stage": "input", "reason": "empty text", "record": ""}]
    texts = sorted(embedded)
    assert texts == ["a later text", "another text", "one text"]
    wanted = bert_embed.load("minilm").encode(texts)
    np.testing.assert_allclose([embedded[text] for text in texts], wanted, atol=1e-5)
