"""What cannot be written to stdout or stderr decides nothing but whether an answer is there."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import ROOT, Hold, embed, flags_of, ran, record, rows
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
    words, file = [*python(), "-m", "bert_embed", *map(str, arguments)], None
    if kind == "closed":
        closed = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-"}[names]
        words = ["bash", "-c", f'exec "$@" {closed}', "bash", *words]
    elif kind == "full":
        file = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, file = os.pipe()
        os.close(reader)
    given = {
        name: file if file is not None and names in (name, "both") else subprocess.PIPE
        for name in ("stdout", "stderr")
    }
    done = subprocess.run(words, cwd=ROOT, check=False, text=True, timeout=300, **given)
    if file is not None:
        os.close(file)
    told = (done.stdout or "") + (done.stderr or "")
    for sign in ("Exception ignored", "Traceback", "a bug of this program"):
        assert sign not in told
    return done.returncode, told


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    path.write_text("".join(f"{n} the bank of the river\n" for n in range(LINES)))
    return path


@pytest.fixture(scope="module")
def output(corpus, tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "out"
    assert embed(path, tiny_bundle, corpus) == 0
    return path


@pytest.fixture(scope="module")
def broken(output, tmp_path_factory):
    path = shutil.copytree(output, tmp_path_factory.mktemp("broken") / "out")
    (path / "embeddings" / "part-0000000-00000.parquet").unlink()
    return path


@pytest.mark.parametrize("sink", SINKS)
def test_a_run_ends_whole(tmp_path, corpus, tiny_bundle, sink):
    assert run(sink, "embed", *flags_of(tmp_path / "out", tiny_bundle, corpus))[0] == 0
    assert record(tmp_path / "out")["status"] == "done"
    assert len(rows(tmp_path / "out")["id"]) == LINES
    assert main(["verify", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("sink", FEW)
def test_other_work_is_done(tmp_path, corpus, output, tiny_bundle, sink):
    """Each writes files; what it says of them is not what it is for."""
    for words in (
        ["tokenize", *flags_of(tmp_path / "examples", tiny_bundle, corpus)],
        ["export", output, tmp_path / "npy", "--to=npy"],
        ["report", output, f"--output={tmp_path}/page.html"],
        ["model", "verify", tiny_bundle],
        ["verify", output],
    ):
        assert run(sink, *words)[0] == 0, words
    for name in ("examples/run.json", "page.html"):
        assert (tmp_path / name).stat().st_size > 0
    assert (tmp_path / "npy").exists()


# Every command with two sinks, and with each sink one that searches and one that plans.
ANSWERS = {
    "help": ["--help"],
    "help of a command": ["search", "--help"],
    "help of embed": ["embed", "--help"],
    "version": ["--version"],
    "json": ["search", "{output}", "river", "--json"],
    "model": ["model", "inspect", "{model}"],
    "tokens": ["model", "inspect", "{model}", "--text=the bank"],
    "estimate": ["estimate", "--input={corpus}", "--model={model}", "--seconds=0"],
    "search": ["search", "{output}", "river"],
    "dry run": ["embed", "--input={corpus}", "--output=/none", "--model={model}", "--dry_run"],
}


@pytest.mark.parametrize("sink", MORE)
def test_problems_that_nobody_reads_are_problems(tmp_path, broken, tiny_bundle, sink):
    assert run(sink, "verify", broken)[0] == 1
    assert run(sink, "embed", *flags_of(tmp_path / "out", tiny_bundle, "/absent.txt"))[0] == 2
    assert run(sink, "search", tmp_path, "river")[0] == 2
    assert run(sink, "serach")[0] == 2
    assert run(sink)[0] in ((1, 2) if SINKS[sink][0] != "stderr" else (2,))


@pytest.mark.parametrize("sink", MORE)
def test_an_answer_that_cannot_be_written_is_a_failure(output, corpus, tiny_bundle, sink):
    lost = SINKS[sink][0] != "stderr"
    places = {"output": output, "corpus": corpus, "model": tiny_bundle}
    for name in ANSWERS if sink in FEW else ("search", "dry run"):
        code, told = run(sink, *(word.format(**places) for word in ANSWERS[name]))
        assert code == int(lost), name
        if name == "search" and sink == "stdout-full":
            assert "error: stdout cannot be written: No space left on device\n" in told
        if name == "search" and sink == "stdout-unread":
            assert "error" not in told, "as with `| head`"


def test_a_shells_pipes(tmp_path, broken, corpus, tiny_bundle):
    def codes(line):
        """The exit code of the first command of a pipe."""
        line = f"{shlex.join(python())} -m bert_embed {line}; exit ${{PIPESTATUS[0]}}"
        return subprocess.run(["bash", "-c", line], cwd=ROOT, check=False).returncode

    flags = shlex.join(flags_of(tmp_path / "out", tiny_bundle, corpus))
    assert codes(f"embed {flags} 2>&1 | head -1 > /dev/null") == 0
    assert record(tmp_path / "out")["counts"]["embedded"] == LINES
    assert codes(f"verify {broken} | true") == 1
    assert codes(f"verify {broken} 2>&1 | true") == 1
    assert codes(f"embed {flags} --input=/absent 2>&1 | true") == 2
    assert codes(f"embed {flags} </dev/null >/dev/null 2>&1") == 0


def test_closed_streams_give_their_numbers_to_no_file(tmp_path, corpus, tiny_bundle):
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
    words = [sys.executable, "-c", code, "embed", *flags_of(tmp_path / "out", tiny_bundle, corpus)]
    words = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *words]
    assert subprocess.run(words, cwd=ROOT, check=False, timeout=300).returncode == 0
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_ctrl_c_with_nobody_reading(tmp_path, corpus, tiny_bundle):
    """Its exit code is that of an interruption."""
    hold = Hold(tmp_path / "hold", 1)
    reader, writer = os.pipe()
    flags = flags_of(tmp_path / "out", tiny_bundle, corpus, block_bytes=100)
    job = subprocess.Popen(
        [*python(), "-m", "bert_embed", "embed", *flags],
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


def test_json_is_whole_where_it_can_be_written(output):
    words = [*python(), "-m", "bert_embed", "search", str(output), "river", "--json"]
    assert json.loads(ran(words, check=True).stdout)["hits"]
