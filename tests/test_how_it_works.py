"""A document goes through the code as docs/how_it_works.md says, and enters few files."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.command import ROOT

PAGE = ROOT / "docs" / "how_it_works.md"
STEPS = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
# The most that a warm run and a warm call may enter. Lower them when the code enters less; never
# raise them.
FILES_OF_A_RUN = 60
FUNCTIONS_OF_A_CALL = 78
# What a run enters beside the steps that the page names.
FOLDERS = (
    "base/", "bundle/", "models/", "pipeline/options/", "pipeline/report/", "pipeline/run/",
    "pipeline/runners/", "results/", "storage/",
)  # fmt: skip
FILES = [
    "backends/choose.py", "pipeline/console.py",
    "pipeline/progress.py", "settings.py",
    "transforms/blocks.py",
    "transforms/parts.py", "transforms/reconcile.py",
    "transforms/read/streams.py",
]  # fmt: skip
# Writes the functions of the project that a first run, a second run and a warm call enter, in the
# order of their first calls, those in threads included.
TRACE = """
import json, sys, threading

import bert_embed
from bert_embed.pipeline.cli import main

def entered(work):
    called = {}

    def note(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call" and "/bert_embed/" in name and "site-packages" not in name:
            place = name.rpartition("/bert_embed/")[2], frame.f_code.co_qualname
            called.setdefault(frame.f_code, place)

    threading.setprofile(note)
    sys.setprofile(note)
    work()
    sys.setprofile(None)
    threading.setprofile(None)
    return list(called.values())

def embed(name):
    words = ["--input", f"{folder}/{name}", "--output", f"{folder}/of-{name}", "--report", "false"]
    assert main(["embed", *words]) == 0

folder = sys.argv[1]
runs = [entered(lambda: embed("in.jsonl")), entered(lambda: embed("in.txt"))]
encoder = bert_embed.load("minilm")
encoder.encode(["warm"])
with open(f"{folder}/called.json", "w") as file:
    json.dump([*runs, entered(lambda: encoder.encode(["x"]))], file)
"""


@pytest.fixture(scope="module")
def entered(tmp_path_factory, minilm):
    """Files and functions entered by a record, a line of text in a warm process, and a call."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "in.jsonl").write_text('{"id": "a", "text": "the bank of the river"}\n')
    (folder / "in.txt").write_text("one line about a river\n")
    command = [sys.executable, "-c", TRACE, folder]
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    called = json.loads((folder / "called.json").read_text())
    return [[tuple(call) for call in calls] for calls in called]


@pytest.mark.slow
def test_the_page_tells_the_way_of_a_document(entered):
    record, _, _ = entered
    # `bert_embed/` holds the other two folders as links.
    steps = [(path.removeprefix("bert_embed/"), function) for path, function in STEPS]
    assert [step for step in steps if step not in record] == []
    assert steps == sorted(steps, key=record.index)


@pytest.mark.slow
def test_a_document_crosses_few_files(entered):
    files = {path for path, _ in entered[1]}
    assert len(files) <= FILES_OF_A_RUN, sorted(files)
    untold = files - {path.removeprefix("bert_embed/") for path, _ in STEPS} - set(FILES)
    assert [path for path in sorted(untold) if not path.startswith(FOLDERS)] == []


@pytest.mark.slow
def test_one_text_crosses_few_files(entered):
    files = {path for path, _ in entered[2]}
    assert {"encoder.py", "model.py", "text/layout.py", "backends/runner.py"} <= files
    assert len(files) <= 12, sorted(files)
    assert len(entered[2]) <= FUNCTIONS_OF_A_CALL, sorted(entered[2])
