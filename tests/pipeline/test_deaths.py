"""A block that hangs is given up, one that kills its process is named; the rest finishes."""

import json
import os
import subprocess
import sys
import threading

import pytest

from bert.row_runner import RowRunner
from tests.pipeline.helpers import ROOT, embed, files, flags_of, record, rejected, rows

WORDS = ["red river", "the bank", "seven stars", "a money bank"]
POISON = "zz zz"
SMALL = {"block_bytes": 1000, "threads": 1}

# The command line, with a model that kills its process at a certain token.
KILLER = """
import os, signal, sys, time
from bert.row_runner import RowRunner
real = RowRunner._graph
def deadly(self, *key):
    graph = real(self, *key)
    def call(ids, mask, types):
        if (ids == POISON_ID).any():
            time.sleep(float(os.environ["DYING_SECONDS"]))
            os.kill(os.getpid(), signal.SIGKILL)
        return graph(ids, mask, types)
    call.widths = graph.widths
    return call
RowRunner._graph = deadly
from pipeline.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """600 lines in blocks of 1,000 bytes; the 300th is the poison."""
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    lines = [f"{WORDS[n % 4]} {n:03d}" for n in range(600)]
    lines[300] = POISON
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def poison(corpus):
    """Number of the block with the poison."""
    return corpus.read_bytes().index(POISON.encode()) // 1000


def poison_id(bundle):
    from bert.bundle import read_bundle

    return int(read_bundle(bundle).load_tokenizer().encode([POISON])[0][0])


@pytest.fixture
def hanging(tiny_bundle, monkeypatch):
    """A model that hangs at the poison."""
    number, real, never = poison_id(tiny_bundle), RowRunner._graph, threading.Event()

    def graph_that_hangs(self, *key):
        graph = real(self, *key)

        def call(ids, mask, types):
            if (ids == number).any():
                never.wait()
            return graph(ids, mask, types)

        call.widths = graph.widths
        return call

    monkeypatch.setattr(RowRunner, "_graph", graph_that_hangs)
    yield
    never.set()


def test_a_hanging_block_is_named_and_can_be_left_out(
    tmp_path, corpus, poison, tiny_bundle, hanging, capsys
):
    flags = {**SMALL, "inference_timeout": 2}
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 1
    told = capsys.readouterr().err
    assert f"error: the job failed: block {poison}, {corpus}:" in told
    assert "the model hangs, no call came to an end in 2 s" in told
    assert "Traceback" not in told
    assert record(tmp_path / "out")["status"] == "failed"
    assert not list((tmp_path / "out").glob("under_way/*")), "the process lived on"
    done = len(list((tmp_path / "out").glob("blocks/0*.json")))

    flags["leave_out"] = str(poison)
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 0
    counts = record(tmp_path / "out")["counts"]
    assert counts["records"] == 600
    assert counts["embedded"] + counts["rejected"] == 600
    assert counts["parts_reused"] == done
    assert record(tmp_path / "out")["rejected"] == {"block left out": counts["rejected"]}
    refused = rejected(tmp_path / "out")
    assert len(refused) == counts["rejected"]
    assert POISON in [each["record"] for each in refused]
    assert {each["stage"] for each in refused} == {"read"}
    assert not (tmp_path / "out" / "under_way").exists()


def run_deadly(bundle, *words, seconds=0.0):
    """The command line with a model that dies within so long; its exit code and what it said."""
    program = KILLER.replace("POISON_ID", str(poison_id(bundle)))
    done = subprocess.run(
        [sys.executable, "-c", program, "embed", *words],
        cwd=ROOT,
        env={**os.environ, "DYING_SECONDS": str(seconds)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_block_that_kills_its_process_is_named_left_out_and_taken_up_again(
    tmp_path, corpus, poison, tiny_bundle, capsys
):
    output = tmp_path / "out"
    flags = flags_of(output, tiny_bundle, corpus, **SMALL)
    assert run_deadly(tiny_bundle, *flags)[0] == -9
    code, told = run_deadly(tiny_bundle, *flags)
    assert code == -9
    place = f"{corpus}, bytes {1000 * poison} to {1000 * poison + 1000}"
    assert f"note: block {poison} ({place}) was under way when its process died\n" in told
    done = len(list(output.glob("blocks/0*.json")))

    code, told = run_deadly(tiny_bundle, *flags, f"--leave_out={poison}")
    assert code == 0, told
    assert record(output)["counts"]["parts_reused"] == done
    assert {each["reason"] for each in rejected(output)} == {"block left out"}
    assert not (output / "under_way").exists()
    assert embed(output, tiny_bundle, corpus, **SMALL, leave_out=poison) == 0
    assert "nothing to do" in capsys.readouterr().out

    # With a model that is mended, the same command without --leave_out does what is missing.
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert embed(tmp_path / "whole", tiny_bundle, corpus, **SMALL) == 0
    assert files(output) == files(tmp_path / "whole")
    counts = record(output)["counts"]
    assert (counts["embedded"], counts["rejected"]) == (600, 0)
    assert counts["parts_reused"] == counts["parts"] - 1
    assert len(rows(output)["id"]) == 600


def test_each_death_counts(tmp_path, corpus, poison, tiny_bundle):
    flags = flags_of(tmp_path / "out", tiny_bundle, corpus, **SMALL)
    for _ in range(2):
        assert run_deadly(tiny_bundle, *flags)[0] == -9
    code, told = run_deadly(tiny_bundle, *flags)
    assert code == -9
    assert "was under way when its process died, 2 times\n" in told
    assert f"do without it: --leave_out {poison}\n" in told


def test_a_mark_of_another_machine_may_be_of_work_that_goes_on(
    tmp_path, corpus, poison, tiny_bundle
):
    flags = flags_of(tmp_path / "out", tiny_bundle, corpus, **SMALL)
    assert run_deadly(tiny_bundle, *flags)[0] == -9
    (mark,) = (tmp_path / "out" / "under_way").iterdir()
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"host": "elsewhere"}))
    _, told = run_deadly(tiny_bundle, *flags)
    assert "was under way when its process died, unless it still is, on another machine" in told


def test_deaths_are_told_of_runs_in_cloud_storage(tmp_path, corpus, poison, tiny_bundle, gcs):
    gcs.client.create_bucket("deaths")
    flags = flags_of("gs://deaths/out", tiny_bundle, corpus, **SMALL)
    assert run_deadly(tiny_bundle, *flags, seconds=2)[0] == -9
    code, told = run_deadly(tiny_bundle, *flags, f"--leave_out={poison}")
    assert code == 0, told
    left = [each.name for each in gcs.client.list_blobs("deaths", prefix="out/under_way/")]
    assert left == []
    assert run_deadly(tiny_bundle, *flags, seconds=2)[0] == -9
    assert f"note: block {poison} (" in run_deadly(tiny_bundle, *flags)[1]


def test_a_block_the_run_does_not_have_cannot_be_left_out(tmp_path, corpus, tiny_bundle, capsys):
    assert embed(tmp_path / "out", tiny_bundle, corpus, leave_out="99") == 2
    assert "--leave_out 99: the run has 1 blocks, number 0 to 0" in capsys.readouterr().err
    assert embed(tmp_path / "out", tiny_bundle, corpus, leave_out="a") == 2
    assert "--leave_out: must be block numbers with commas" in capsys.readouterr().err
