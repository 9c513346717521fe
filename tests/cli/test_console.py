"""What is printed moves no cursor and forges no line, whatever ids, names and texts hold."""

import io
import json
import logging
import sys

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.console import VisibleFormatter, say, visible, warn
from tests.support.command import embed, ran, write_json

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x85\u202e\r\n  1. 1.0000  forged"
ODD = f"{EVIL}\x7f\u2028 café \U0001f600"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\x85\u202e\r\n  1. 1.0000  forged"


def assert_harmless(printed):
    for line in printed.split("\n"):
        assert visible(line) == line
    assert not any(line.startswith("  1. 1.0000") for line in printed.split("\n"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, tiny_bundle):
    """An output with an id and a text that would draw on a terminal."""
    folder = tmp_path_factory.mktemp("hostile")
    source = write_json(folder / "in.jsonl", {"id": ODD, "text": f"the river {ODD}"})
    assert embed(folder / "out", tiny_bundle, source) == 0
    return str(folder / "out")


def test_search_shows_ids_and_texts_on_their_lines(hostile, command):
    printed = command("search", hostile, "river").out
    assert_harmless(printed)
    assert f"{SHOWN}\\x7f" in printed
    assert len(printed.splitlines()) == 2


def test_names_of_files_in_plan_and_messages(run):
    name, text = f"b{EVIL}", "one\n"
    said = []
    for source, code, flags in (
        ({f"{name}/in.pdf": b"%PDF"}, 2, {}),
        ({f"{name}/in.txt": text}, 0, {}),
        ({f"{name}/in.txt": text}, 0, {"dry_run": True}),
        ({f"{name}/in.txt": text}, 0, {}),
        ({"in.csv": f'id,"body{EVIL}"\n1,one\n'}, 2, {"overwrite": True}),
    ):
        (path,) = run.written(source)
        path = path / next(iter(source)).partition("/")[2] if path.is_dir() else path
        run(path, f"{name}/out", code=code, **flags)
        assert_harmless(run.out)
        assert_harmless(run.err)
        said.append(run.out)
    assert f"b{SHOWN}/out/run.json" in "".join(said)


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
    done = ran([sys.executable, "-c", code], check=True, PYTHONIOENCODING="ascii")
    assert done.stdout == "caf\\xe9 \\u6771\n"


def test_letters_of_every_script_stay(capsys):
    kept = "café ﬁ 東京 नमस्ते \U0001f468\u200d\U0001f469 a\xa0b"
    say(kept)
    warn(kept)
    captured = capsys.readouterr()
    assert captured.out == captured.err == f"{kept}\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_json_whatever_ids_and_texts_hold(hostile, monkeypatch, encoding):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main(["search", hostile, ODD, "--json"]) == 0
    printed = stdout.buffer.getvalue().decode(encoding)
    assert_harmless(printed)
    found = json.loads(printed)
    (hit,) = found["hits"]
    assert (found["query"], hit["id"], hit["text"]) == (ODD, ODD, f"the river {ODD}")
