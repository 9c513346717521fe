"""What cannot be written to stdout or stderr decides nothing but whether an answer is there."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import ROOT, Hold, embed, flags_of, record, rows
from tests.support.forks import python

pytestmark = pytest.mark.slow
LINES = 30
# Where a command's stdout and stderr lead to: nobody reads, the disk is full, they are closed.
SINKS = {
    f"{names}-{sink}": (names, sink)
    for names in ("stdout", "stderr", "both")
    for sink in ("unread", "full", "closed")
}
FEW = ("both-unread", "stdout-full")
MORE = (*FEW, "stdout-unread", "stderr-full", "both-closed")


def run(sink, *arguments):
    """A command whose streams cannot be written; returns its exit code, and its other stream."""
    names, kind = SINKS[sink]
    words, file = [*python(), "-m", "bert_embed", *map(str, arguments)], subprocess.PIPE
    if kind == "closed":
        closed = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-"}[names]
        words = ["bash", "-c", f'exec "$@" {closed}', "bash", *words]
    elif kind == "full":
        file = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, file = os.pipe()
        os.close(reader)
    given = {
        name: file if names in (name, "both") else subprocess.PIPE for name in ("stdout", "stderr")
    }
    done = subprocess.run(words, cwd=ROOT, check=False, text=True, timeout=300, **given)
    if kind != "closed":
        os.close(file)
    told = (done.stdout or "") + (done.stderr or "")
    for sign in ("Exception ignored", "Traceback", "a bug of this program"):
        assert sign not in told
    return done.returncode, told


@pytest.fixture(scope="module")
def places(tiny_bundle, tmp_path_factory):
    """A corpus, its output, and a copy of that with a file missing, by name."""
    folder = tmp_path_factory.mktemp("streams")
    corpus = folder / "in.txt"
    corpus.write_text("".join(f"{n} the bank of the river\n" for n in range(LINES)))
    assert embed(folder / "out", tiny_bundle, corpus) == 0
    broken = shutil.copytree(folder / "out", folder / "broken")
    (broken / "embeddings" / "part-0000000-00000.parquet").unlink()
    return {"corpus": corpus, "output": folder / "out", "broken": broken, "model": tiny_bundle}


@pytest.fixture
def flags(places, tmp_path):
    return flags_of(tmp_path / "out", places["model"], places["corpus"])


@pytest.mark.parametrize("sink", [*MORE, "both-full"])
def test_a_run_ends_whole(tmp_path, flags, sink):
    assert run(sink, "embed", *flags)[0] == 0
    assert record(tmp_path / "out")["status"] == "done"
    assert len(rows(tmp_path / "out")["id"]) == LINES
    assert main(["verify", str(tmp_path / "out")]) == 0


# Commands by what they are for: files, an answer, or what was wrong, with their exit codes.
FILES = {
    "tokenize": ["tokenize", "--input={corpus}", "--output={new}/examples", "--model={model}"],
    "export": ["export", "{output}", "{new}/npy", "--to=npy"],
    "report": ["report", "{output}", "--output={new}/page.html"],
    "model verify": ["model", "verify", "{model}"],
    "verify": ["verify", "{output}"],
}
ANSWERS = {
    "search": ["search", "{output}", "river"],
    "dry run": ["embed", "--input={corpus}", "--output=/none", "--model={model}", "--dry_run"],
    "help": ["--help"],
    "help of embed": ["embed", "--help"],
    "version": ["--version"],
    "json": ["search", "{output}", "river", "--json"],
    "tokens": ["model", "inspect", "{model}", "--text=the bank"],
    "estimate": ["estimate", "--input={corpus}", "--model={model}", "--seconds=0"],
}
WRONG = {
    "broken": (["verify", "{broken}"], (1,)),
    "absent": (["embed", "--input=/absent.txt", "--output={new}/no", "--model={model}"], (2,)),
    "no output": (["search", "{new}", "river"], (2,)),
    "no command": ([], (1, 2)),
}


@pytest.mark.parametrize("sink", MORE)
def test_only_an_answer_that_cannot_be_written_changes_the_exit_code(tmp_path, places, sink):
    """All commands with two sinks; with the others one that judges, searches and plans each."""
    lost = (int(SINKS[sink][0] != "stderr"),)
    commands = {name: (words, (0,)) for name, words in FILES.items() if sink in FEW}
    commands |= {name: (words, lost) for name, words in ANSWERS.items()} | WRONG
    for name in commands if sink in FEW else ("broken", "search", "dry run"):
        words, codes = commands[name]
        code, told = run(sink, *(word.format(**places, new=tmp_path) for word in words))
        assert code in codes, name
        if name == "search" and sink == "stdout-full":
            assert "error: stdout cannot be written: No space left on device\n" in told
        if name == "search" and sink == "stdout-unread":
            assert "error" not in told, "as with `| head`"
    for name in ("examples/run.json", "page.html", "npy") if sink in FEW else ():
        assert (tmp_path / name).stat().st_size > 0


def test_closed_streams_give_their_numbers_to_no_file(tmp_path, flags):
    """A native library that prints to number 2 would print into a file of the output."""
    code = (
        "import os, sys\n"
        "from bert_embed.storage import local\n"
        "whole = local.write_whole\n"
        "def printing(path, write, *rest, **named):\n"
        "    def noisy(file):\n"
        "        write(file)\n"
        "        os.write(1, b'noise'), os.write(2, b'noise')\n"
        "    return whole(path, noisy, *rest, **named)\n"
        "local.write_whole = printing\n"
        "from bert_embed.__main__ import run\n"
        "run()\n"
    )
    words = [sys.executable, "-c", code, "embed", *flags]
    words = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *words]
    assert subprocess.run(words, cwd=ROOT, check=False, timeout=300).returncode == 0
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_ctrl_c_with_nobody_reading(tmp_path, flags):
    """Its exit code is that of an interruption."""
    hold = Hold(tmp_path / "hold", 1)
    reader, writer = os.pipe()
    job = subprocess.Popen(
        [*python(), "-m", "bert_embed", "embed", *flags, "--block_bytes=100"],
        cwd=ROOT,
        env={**os.environ, **hold.environment},
        stdout=writer,
        stderr=writer,
    )
    os.close(reader)
    os.close(writer)
    hold.wait(job)
    job.send_signal(signal.SIGINT)
    assert job.wait(120) == 130
    assert record(tmp_path / "out")["status"] == "interrupted"


def test_progress_of_a_call_ends_no_call(tiny_bundle):
    code = (
        "import sys, bert_embed\n"
        "encoder = bert_embed.load(sys.argv[1])\n"
        "texts = ['the bank'] * 3000\n"
        "for stream in (sys.stderr, None):\n"
        "    sys.stderr = stream\n"
        "    print(len(encoder.encode(texts, show_progress_bar=True)))\n"
    )
    words = [*python(), "-c", code, tiny_bundle]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, cwd=ROOT, stdout=-1, stderr=full, text=True, check=False)
    assert done.stdout == "3000\n3000\n"
