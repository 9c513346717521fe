"""The examples `near_duplicates` and `clusters` on paragraphs of Python's language reference.

Run by `make test-export`.
"""

import json
import re
import runpy
import sys
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from examples import clusters, near_duplicates
from tests.support.command import ROOT, embed

TOPICS = ("debugger", "string-methods", "typesmapping", "async")
COPIES = 40


@pytest.fixture(scope="module")
def output(tmp_path_factory, minilm):
    """The vectors of four topics; the first paragraphs once more, whole and without their end."""
    folder = tmp_path_factory.mktemp("groups")
    with mock.patch.object(sys, "argv", ["", str(folder / "all.jsonl")]):
        runpy.run_path(str(ROOT / "examples" / "write_language_reference.py"), run_name="__main__")
    read = [json.loads(line) for line in (folder / "all.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in read if row["id"].split("/")[0] in TOPICS]
    for row in rows[:COPIES]:
        rows += [row | {"id": f"copy/{row['id']}"}]
        rows += [row | {"id": f"cut/{row['id']}", "text": row["text"].rpartition(" ")[0]}]
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert embed(folder / "out", "minilm", folder / "in.jsonl") == 0
    return folder / "out"


@pytest.mark.parametrize(("exact", "least"), [(100_000, 1.0), (100, 0.95)])
def test_near_duplicates_are_those_of_brute_force(
    output, tmp_path, capsys, monkeypatch, exact, least
):
    monkeypatch.setattr(near_duplicates, "EXACT", exact)
    monkeypatch.setattr(near_duplicates, "ROWS", 64)
    near_duplicates.main(str(output), str(tmp_path / "found.parquet"))
    found = pq.read_table(tmp_path / "found.parquet").to_pylist()
    ids, vectors = bert_embed.read(output)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, kept, wanted = unit @ unit.T, [], {}
    for row, name in enumerate(ids):
        near = [(cosines[row, other], ids[other]) for other in kept if cosines[row, other] >= 0.95]
        if near:
            wanted[name] = max(near)[1]
        else:
            kept.append(row)
    assert f"{len(found)} of {len(ids)} documents are near" in capsys.readouterr().out
    assert len(wanted) > 1.5 * COPIES
    assert len(found) >= least * len(wanted)
    same = [row for row in found if wanted.get(row["id"]) == row["kept_id"]]
    assert len(same) >= least * len(found)
    assert all(row["cosine"] >= 0.95 for row in found)
    assert sum(row["id"].startswith("copy/") for row in found) == COPIES


def test_the_page_keeps_what_is_no_duplicate(output, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "search.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "vectors").symlink_to(output)
    near_duplicates.main("build/vectors", "build/duplicates.parquet")
    exec(compile(page.split("```python\n")[1].split("```")[0], "search", "exec"), {})
    removed = pq.read_table("build/duplicates.parquet")["id"].to_pylist()
    kept = pq.read_table("build/kept.parquet")["id"].to_pylist()
    assert sorted(kept + removed) == sorted(bert_embed.read(output)[0])


def test_clusters_are_topics(output, tmp_path, capsys):
    clusters.main(str(output), str(tmp_path / "clusters.parquet"), "4")
    table = pq.read_table(tmp_path / "clusters.parquet")
    assert table["id"].to_pylist() == bert_embed.read(output)[0]
    names = (re.sub("^(copy|cut)/", "", name) for name in table["id"].to_pylist())
    topics, of = np.array([name.split("/")[0] for name in names]), table["cluster"].to_numpy()
    largest = [max(np.sum(topics[of == number] == t) for t in TOPICS) for number in range(4)]
    assert sum(largest) / len(of) > 0.7  # of one topic for all it is 0.4
    lines = capsys.readouterr().out.splitlines()
    sizes = [int(re.search(r": (\d+) documents, ", line)[1]) for line in lines]
    assert sizes == sorted(np.bincount(of).tolist(), reverse=True)
    assert ((table["cosine"].to_numpy() > 0) & (table["cosine"].to_numpy() <= 1.00001)).all()
    clusters.main(str(output), str(tmp_path / "clusters.parquet"), "9999")  # of fewer documents
    assert len(capsys.readouterr().out.splitlines()) == len(of)
