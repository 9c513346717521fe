"""The way of a document through the code is as docs/how_it_works.md tells it."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.command import ROOT

PAGE = ROOT / "docs" / "how_it_works.md"
STEPS = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
# Prints the functions of the project that a command calls, in the order of their first calls.
TRACE = """
import json, sys, threading

from bert_embed.pipeline.cli import main

called = {}

def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and "/bert_embed/" in name and "site-packages" not in name:
        called.setdefault((name.rpartition("/bert_embed/")[2], frame.f_code.co_qualname))

sys.setprofile(note)
threading.setprofile(note)
code = main(sys.argv[2:])
sys.setprofile(None)
with open(sys.argv[1], "w") as file:
    json.dump(list(called), file)
sys.exit(code)
"""
# Prints the files of the project that a call of a warm model crosses, its threads' included.
ENCODE = """
import sys, threading

import bert_embed

encoder = bert_embed.load(sys.argv[1])
encoder.encode(["warm"])
crossed = set()

def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and "/bert_embed/" in name and "site-packages" not in name:
        crossed.add(name.rpartition("/bert_embed/")[2])

threading.setprofile(note)
sys.setprofile(note)
encoder.encode(["the bank"])
sys.setprofile(None)
print(*sorted(crossed), sep="\\n")
"""


def place(path):
    """The file of a module below bert_embed/, which holds the other two folders as links."""
    return path.removeprefix("bert_embed/")


def test_a_document_crosses_few_files():
    files = {path for path, _ in STEPS}
    assert 25 < len(files) <= 35
    assert [path for path in files if not (ROOT / path).is_file()] == []


@pytest.mark.slow
def test_the_page_tells_the_way_of_a_document(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": "the bank of the river"}\n')
    places = [f"--input={tmp_path}/in.jsonl", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    command = [sys.executable, "-c", TRACE, f"{tmp_path}/called.json", "embed", *places]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    called = [tuple(each) for each in json.loads((tmp_path / "called.json").read_text())]
    steps = [(place(path), function) for path, function in STEPS]
    assert [step for step in steps if step not in called] == []
    assert steps == sorted(steps, key=called.index)


@pytest.mark.slow
def test_one_text_crosses_few_files(tiny_bundle):
    command = [sys.executable, "-c", ENCODE, tiny_bundle]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    crossed = ran.stdout.split()
    assert {"encoder.py", "model.py", "text/layout.py", "backends/runner.py"} <= set(crossed)
    assert len(crossed) <= 12, crossed
