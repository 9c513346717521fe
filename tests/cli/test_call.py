"""`bert_embed.embed`: options as keyword arguments, the record as the result; 10 s."""

import logging
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import bert_embed
from bert_embed.backends import runner
from bert_embed.pipeline.cli import main
from tests.support.command import files, parts_of, ran, record


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "a.txt").write_text("the bank\nriver of money\n")
    (tmp_path / "b.txt").write_text("a robber\n")
    return [tmp_path / "a.txt", str(tmp_path / "b.txt")]


@pytest.fixture
def call(tmp_path, tiny_bundle, texts):
    """Calls `embed` of the texts into the folder `out`, unless told otherwise."""

    def called(**options):
        defaults = {"input": texts, "output": tmp_path / "out", "model": tiny_bundle}
        return bert_embed.embed(**{**defaults, **options})

    return called


def test_a_call_writes_as_the_command_and_returns_its_record(tmp_path, run, texts, call, capsys):
    settings = {"layers": [-1, -2], "layer_combine": "sum", "normalize": True, "limit": 2}
    found = call(prompt=None, output=tmp_path / "called", **settings)
    said = capsys.readouterr()
    assert found == record(tmp_path / "called")
    assert (found["status"], found["counts"]["embedded"]) == ("done", 2)
    assert "layers -1,-2 sum" in said.err
    assert "2 records: 2 embedded, 0 rejected" in said.out
    output = run(texts, **settings | {"layers": "-1,-2"})
    assert record(output)["run"] == found["run"]
    assert files(output) == files(tmp_path / "called")
    assert (tmp_path / "called" / "report.html").exists()


def test_a_tilde_is_the_home_folder_wherever_paths_are(tmp_path, tiny_bundle, texts, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").symlink_to(tiny_bundle)
    (tmp_path / "flags.yaml").write_text("k: 1\n")
    (tmp_path / "one of 2026-03-01.txt").write_text("a vault\n")
    places = {"input": ["~/[ab].txt", Path("~/one of {today}.txt")], "output": "~/out"}
    bert_embed.embed(**places, model="~/model", today="2026-03-01", show_progress=False)
    assert len(bert_embed.read("~/out")[0]) == 4
    assert main(["search", "~/out", "bank", "--config=~/flags.yaml", "--model=~/model"]) == 0
    assert main(["model", "export", "~/model", "~/out"]) == 2  # it is there
    assert not os.path.exists("~")


def test_a_second_call_does_nothing_and_can_be_silent(tiny_bundle, texts, call, capsys):
    first = call(input=(path for path in texts[:1]), show_progress=False)
    again = {"input": texts[0], "model": Path(tiny_bundle)}
    assert call(**again, show_progress=False) == first
    assert capsys.readouterr() == ("", "")
    assert call(**again) == first
    assert capsys.readouterr().out.startswith("nothing to do: ")


def test_a_silent_call_warns_of_what_was_lost(call):
    with pytest.warns(UserWarning, match="tokens were cut .* long_text window") as warned:
        call(max_seq_length=3, show_progress=False)
    assert warned[0].filename == __file__


def test_a_trial_says_the_plan_and_writes_nothing(tmp_path, call, capsys):
    found = call(dry_run=True, dim=7)
    assert (found["status"], found["vectors"]["shape"]) == ("planned", [7])
    assert "7 numbers a document" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    call()
    with pytest.raises(ValueError, match=r"^output .* \(dim changed since\); .* or overwrite to"):
        call(dim=7, dry_run=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inptu": "a"}, "unknown flag inptu; did you mean input?"),
        ({"machine_tipe": "x"}, "unknown flag machine_tipe; did you mean machine_type?"),
        ({"layers": [-1.0]}, "layers must be numbers with commas, such as -1,-2, got [-1.0]"),
        ({"beam_args": ["--limit=3"]}, "beam_args names limit, which is an argument of its own"),
        ({"beam_args": "--num_workers=3"}, "beam_args must be a list of words"),
        ({"config": "/nowhere.yaml"}, "config /nowhere.yaml cannot be read"),
        ({"input": ["a.txt", "a secret text"]}, "input number 1 names no file; for texts in memo"),
        ({"input": {"a": 1}}, "input must be a text or a number, got a dict; for texts in memory"),
        ({"output": None}, "output is missing"),
        ({"show_progress": 1}, "show_progress must be True or False, got 1"),
    ],
)
def test_a_wrong_option_is_named_as_in_python(tmp_path, call, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        call(**options)
    assert "--" not in str(refused.value).partition(", such as ")[0]
    assert not (tmp_path / "out").exists()


def test_too_many_rejected_records_are_an_error_with_the_record(tmp_path, call):
    given = {"input": tmp_path / "in.jsonl", "direct_num_workers": 1, "save_main_session": True}
    (tmp_path / "in.jsonl").write_text('{"text": "the bank"}\n{"text": 3}\n')
    with pytest.raises(bert_embed.RunFailed, match="max_rejected allows 0") as failed:
        call(**given, max_rejected=0)
    assert failed.value.record == record(tmp_path / "out")
    found = call(**given, max_rejected="50%")
    assert found["counts"]["rejected"] == 1
    assert found["options"]["beam_args"] == ["--direct_num_workers=1", "--save_main_session"]


def test_a_failed_job_is_an_error_that_leaves_no_trace(tmp_path, poisoned_bundle, call, capsys):
    def process():
        root, interrupted = logging.getLogger(), signal.getsignal(signal.SIGINT)
        return root.level, list(root.handlers), threading.excepthook, interrupted

    (tmp_path / "in.txt").write_text("vault\nvault vault\n")
    before, message = process(), r"the job failed: .*vector is not finite"
    with pytest.raises(bert_embed.RunFailed, match=message) as failed:
        call(input=tmp_path / "in.txt", model=poisoned_bundle, show_progress=False)
    assert failed.value.record["status"] == "failed"
    assert failed.value.record["error"] in str(failed.value)
    assert process() == before
    assert "vault" not in capsys.readouterr().err


def test_a_notebook_keeps_what_was_finished_and_how_to_go_on(tmp_path, call, notebook, monkeypatch):
    """Ctrl-C in a cell; the same cell then computes the rest."""
    (tmp_path / "in.txt").write_text("the bank\n" * 64)
    pad, end, asked = runner.pad_rows, time.monotonic() + 60, []

    def padded(*rows):
        while not (notebook.shown or time.monotonic() > end):
            time.sleep(0.05)
        if not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))
        return pad(*rows)

    monkeypatch.setattr(runner, "pad_rows", padded)
    monkeypatch.setattr(sys, "stderr", notebook.stderr)
    with pytest.raises(KeyboardInterrupt):
        call(input=tmp_path / "in.txt")
    shown = [*notebook.shown, *notebook.updates]
    assert re.fullmatch(r"\d+% · 0 documents · stopped · 0:\d\d", shown[-1]), shown
    # One line is changed in place.
    assert len(notebook.shown) == 1
    assert re.fullmatch(r"0% · [a-z ]+ · 0:\d\d", shown[0]), shown
    said = notebook.stderr.getvalue()
    assert "interrupted: 0 of about 64 documents are finished and kept, the same call" in said
    assert call(input=tmp_path / "in.txt")["counts"]["embedded"] == 64


@pytest.mark.slow
def test_a_call_leaves_the_log_of_a_process_that_imports_beam_alone(tmp_path, tiny_bundle):
    """Beam logs that it goes without optional packages, which gave the root logger a handler."""
    (tmp_path / "in.txt").write_text("the bank\n")
    code = (
        "import logging, sys; sys.modules.update(dict.fromkeys(['apitools', 'google.cloud']))\n"
        f"import bert_embed; bert_embed.embed('in.txt', 'out', model={str(tiny_bundle)!r})\n"
        "print(logging.getLogger().handlers)"
    )
    done = ran([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert "WARNING" not in done.stderr
    assert done.stdout.endswith("\n[]\n")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_an_output_is_read_in_pieces_which_their_reader_may_change(tmp_path, call, kind):
    (tmp_path / "in.txt").write_text("".join(f"number {number}\n" for number in range(50)))
    flags = {"output_format": kind, "output_dtype": "int8", "show_progress": False}
    with parts_of(30):
        call(input=tmp_path / "in.txt", layers=[1, 2], layer_combine="stack", **flags)
    output = tmp_path / "out"
    ids, vectors = bert_embed.read(output)
    pieces = list(bert_embed.read_batches(output, rows=20))
    sizes = [20, 10, 20]
    assert [(len(some), each.shape) for some, each in pieces] == [(n, (n, 2, 32)) for n in sizes]
    assert [one for some, _ in pieces for one in some] == ids
    np.testing.assert_array_equal(np.concatenate([each for _, each in pieces]), vectors)
    pieces[0][1][:] /= 2
    np.testing.assert_array_equal(2 * pieces[0][1], vectors[:20])
    with pytest.raises(bert_embed.SettingError, match="rows must be at least 1, got 0"):
        bert_embed.read_batches(output, rows=0)
