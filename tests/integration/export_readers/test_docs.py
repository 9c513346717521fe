"""The snippets of docs/export.md that need packages of extras run as they are."""

import re
import shlex
import shutil
from pathlib import Path

import lancedb
import numpy as np
import pyarrow.dataset
import pytest
from embedding_atlas.utils import load_pandas_data

from bert_embed.pipeline.cli import main
from tests.support.command import ROOT
from tests.support.outputs import finished_run, multi_rows, run_of_kinds

PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def books(tmp_path, monkeypatch):
    """A run where the page has it."""
    monkeypatch.chdir(tmp_path)
    return finished_run(tmp_path / "build" / "books", [20])


def blocks(title):
    """The blocks below a title, by language; a command without what installs its packages."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = dict(re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    _, command = found["bash"].strip().split("\n")
    return shlex.split(command.removeprefix(".venv/bin/bert-embed ")), found


def block(start):
    return PAGE.split(f"\n{start}")[1].split("\n```")[0]


def test_faiss_finds_the_nearest(capsys):
    words, found = blocks("faiss")
    assert main(words) == 0
    capsys.readouterr()
    exec(compile(found["python"], "faiss", "exec"), {})
    assert re.fullmatch(r"d/0 (1\.0|0\.9999)\d*\n", capsys.readouterr().out)


def test_lancedb_takes_the_output_as_it_is(capsys):
    exec(compile("import lancedb" + block("import lancedb"), "lancedb", "exec"), {})
    assert capsys.readouterr().out == "d/0\n"


def test_lancedb_compares_multi_vectors(tmp_path):
    shutil.rmtree(tmp_path / "build")
    run_of_kinds(tmp_path / "build" / "books", ["multi"], [40])
    vectors = multi_rows(0, 40)
    query = vectors[np.array([9])].vectors
    names = {"lancedb": lancedb, "ds": pyarrow.dataset, "query": query}
    exec(compile("rows = ds" + block("rows = ds"), "lancedb", "exec"), names)
    rows = [vectors[np.array([row])].vectors for row in range(40)]
    scores = np.array([(row @ query.T).max(0).sum() if len(row) else -np.inf for row in rows])
    best = np.argsort(-scores, kind="stable")[:5]
    assert [hit["id"] for hit in names["hits"]] == [f"d/{row}" for row in best]
    distances = [hit["_distance"] for hit in names["hits"]]
    np.testing.assert_allclose(distances, len(query) - scores[best], atol=1e-5)


def test_embedding_atlas_loads_the_columns_that_the_page_names(books):
    words = shlex.split(block("embedding-atlas"))
    (path,) = Path().glob(words[0])
    frame = load_pandas_data(str(path))
    assert np.stack(frame[words[words.index("--vector") + 1]]).shape == (20, 12)
    assert words[words.index("--text") + 1] in frame.columns
