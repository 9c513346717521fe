"""What is printed moves no cursor and forges no line, whatever ids, names and texts hold."""

import io
import json
import logging
import subprocess
import sys

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.console import VisibleFormatter, say, visible, warn
from tests.support.command import ROOT, embed

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x85\u202e\r\n  1. 1.0000  forged"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\x85\u202e\r\n  1. 1.0000  forged"


def assert_harmless(printed):
    for line in printed.split("\n"):
        assert visible(line) == line
    assert not any(line.startswith("  1. 1.0000") for line in printed.split("\n"))


def test_search_shows_ids_and_texts_on_their_lines(tmp_path, tiny_bundle, capsys):
    row = {"id": f"a{EVIL}", "text": f"the river {EVIL}"}
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 0
    capsys.readouterr()
    assert main(["search", f"{tmp_path}/out", "river"]) == 0
    printed = capsys.readouterr().out
    assert_harmless(printed)
    assert f"a{SHOWN}\n" in printed
    assert len(printed.splitlines()) == 2


def test_names_of_files_in_plan_and_messages(tmp_path, tiny_bundle, capsys):
    folder = tmp_path / f"b{EVIL}"
    folder.mkdir()
    (folder / "in.pdf").write_bytes(b"%PDF")
    assert embed(tmp_path / "out", tiny_bundle, folder / "in.pdf") == 2
    (folder / "in.txt").write_text("one\n")
    assert embed(folder / "out", tiny_bundle, folder / "in.txt") == 0
    assert embed(folder / "out", tiny_bundle, folder / "in.txt", dry_run=True) == 0
    assert embed(folder / "out", tiny_bundle, folder / "in.txt") == 0
    captured = capsys.readouterr()
    assert_harmless(captured.out)
    assert_harmless(captured.err)
    assert f"b{SHOWN}/out/run.json" in captured.out


def test_headers_of_csv_files(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.csv").write_text(f'id,"body{EVIL}"\n1,one\n', newline="")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.csv") == 2
    assert_harmless(capsys.readouterr().err)


def test_log_lines_and_tracebacks(capsys):
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(message)s"))
    logger = logging.getLogger("hostile")
    logger.addHandler(handler)
    try:
        raise ValueError(f"bad{EVIL}")
    except ValueError:
        logger.exception("id %s", EVIL)
    finally:
        logger.removeHandler(handler)
    printed = capsys.readouterr().err
    assert printed.startswith(f"id {SHOWN}\nTraceback")
    assert "\x1b" not in printed
    assert "\x9b" not in printed


def test_a_terminal_without_the_letters_is_no_error():
    code = "from bert_embed.pipeline.console import say; say('caf\\u00e9 \\u6771')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "caf\\xe9 \\u6771\n"


@pytest.mark.parametrize("kept", ["café ﬁ 東京", "नमस्ते", "\U0001f468\u200d\U0001f469", "a\xa0b"])
def test_letters_of_every_script_stay(kept, capsys):
    say(kept)
    warn(kept)
    captured = capsys.readouterr()
    assert captured.out == captured.err == f"{kept}\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_json_whatever_ids_and_texts_hold(tmp_path, tiny_bundle, monkeypatch, encoding):
    odd = f"{EVIL}\x7f\u2028 café \U0001f600"
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": odd, "text": f"the river {odd}"}) + "\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 0
    stdout = io.TextIOWrapper(io.BytesIO(), encoding)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main(["search", f"{tmp_path}/out", odd, "--json"]) == 0
    printed = stdout.buffer.getvalue().decode(encoding)
    assert_harmless(printed)
    found = json.loads(printed)
    (hit,) = found["hits"]
    assert (found["query"], hit["id"], hit["text"]) == (odd, odd, f"the river {odd}")
