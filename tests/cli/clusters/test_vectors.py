"""Vectors and ids of every kind, few vectors, and vectors without a direction."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bert_embed.pipeline.cli import main
from bert_embed.results.names import OUTPUT_DTYPES, restored, stored
from tests.support.outputs import clustered_vectors, write_output

ROOT = Path(__file__).parents[3]


def dedup(source, *flags):
    out = source.parent / "out"
    assert main(["dedup", str(source), str(out), *flags]) == 0
    return out, json.loads((out / "run.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_every_number_type_is_decoded(tmp_path, dtype):
    vectors = clustered_vectors(300, width=16, groups=5)
    source = write_output(tmp_path / "in", vectors, ids=list(range(300)), dtype=dtype)
    out, record = dedup(source, "--n_clusters=1", "--eps=0.02")
    kept = stored(vectors, dtype)
    wide = restored(kept.values, kept.scale, dtype, 16).astype(float)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    near = wide @ wide.T >= 0.98 - 1e-12
    np.fill_diagonal(near, False)
    duplicates = pd.read_parquet(out / "duplicates")
    assert duplicates["id"].dtype == np.int64
    removed = duplicates["id"].to_numpy()
    left = np.setdiff1d(np.arange(300), removed)
    assert not near[np.ix_(left, left)].any()
    assert near[removed, duplicates["kept_id"]].all()
    assert record["counts"]["beyond"] == 0


def test_vectors_without_a_direction_are_counted_and_kept(tmp_path, capsys):
    vectors = clustered_vectors(60, width=8, groups=3)
    vectors[[3, 50]] = 0
    vectors[10, 2], vectors[59] = np.inf, np.nan
    out, record = dedup(write_output(tmp_path / "in", vectors))
    clusters = pd.read_parquet(out / "clusters")
    alone = [3, 10, 50, 59]
    assert np.flatnonzero(clusters["cluster"] == -1).tolist() == alone
    assert clusters["distance"].isna().to_numpy().nonzero()[0].tolist() == alone
    assert (record["counts"]["zero"], record["counts"]["not_finite"]) == (2, 2)
    assert record["counts"]["clustered"] == 56
    assert "4 vectors are in no cluster" in capsys.readouterr().out
    removed = set(pd.read_parquet(out / "duplicates")["id"])
    assert not removed & {f"doc-{row}" for row in alone}


@pytest.mark.parametrize("vectors", [np.empty((0, 4)), np.zeros((3, 4)), np.ones((1, 4))])
def test_few_vectors_are_no_error(tmp_path, vectors):
    source = write_output(tmp_path / "in", vectors.astype(np.float32), files=1)
    out, record = dedup(source)
    assert record["counts"]["vectors"] == record["counts"]["kept"] == len(vectors)
    assert record["counts"]["clusters"] == int(vectors.any())
    assert len(pd.read_parquet(out / "clusters")) == len(vectors)


def test_an_output_without_files_is_no_error(tmp_path):
    source = write_output(tmp_path / "in", np.empty((0, 4), np.float32), files=1)
    (source / "embeddings" / "part-0000000-00000.parquet").unlink()
    record = json.loads((source / "run.json").read_text()) | {"written": {}}
    (source / "run.json").write_text(json.dumps(record))
    _, record = dedup(source)
    assert record["counts"]["vectors"] == record["counts"]["clusters"] == 0


def test_which_to_keep_chooses_among_equal_pairs(tmp_path):
    """Two near vectors: the one that is far from the others is kept, or the other one."""
    vectors = np.array([[1, 0.02], [1, 0.1], [1, 0]], np.float32)
    kept = {}
    for which in ("hard", "easy"):
        source = write_output(tmp_path / which / "in", vectors, ids=["a", "b", "c"], files=2)
        out, record = dedup(source, "--n_clusters=1", "--eps=0.1", f"--which_to_keep={which}")
        rows = pd.read_parquet(out / "duplicates")
        assert record["counts"]["removed"] == 2
        kept[which] = set(rows["kept_id"])
    assert kept == {"hard": {"b"}, "easy": {"a"}}


@pytest.mark.slow
def test_random_depends_on_id_and_seed_not_on_the_order(tmp_path):
    vectors = np.ones((40, 4), np.float32)
    ids = [f"id-{number}" for number in range(40)]
    kept = []
    for name, order, seed in (("one", ids, 1), ("two", ids[::-1], 1), ("three", ids, 2)):
        source = write_output(tmp_path / name / "in", vectors, ids=order)
        flags = ("--which_to_keep=random", f"--seed={seed}")
        rows = pd.read_parquet(dedup(source, *flags)[0] / "duplicates")
        assert len(rows) == 39
        assert set(rows["score"]) == {1.0}
        kept += set(rows["kept_id"])
    assert kept[0] == kept[1] != kept[2]


def test_kept_documents_that_have_the_id_of_a_duplicate_are_counted(tmp_path, capsys):
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 1]], np.float32)
    source = write_output(tmp_path / "in", vectors, ids=["a", "b", "a", "c", "c"], files=2)
    _, record = dedup(source)
    assert record["counts"]["removed"] == 2
    # a is kept and removed; c is removed near b, and kept for a text of its own.
    assert record["counts"]["same_id"] == 2
    assert "warning: 2 kept documents have the id of a duplicate" in capsys.readouterr().out


def test_ids_of_their_own_give_no_warning(tmp_path, capsys):
    _, record = dedup(write_output(tmp_path / "in", np.ones((4, 2), np.float32), files=2))
    assert record["counts"]["removed"] == 3
    assert record["counts"]["same_id"] == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_recipes_of_the_page_keep_all_that_is_kept(tmp_path, monkeypatch):
    """Ids that several documents have, whose texts are duplicates of others or not."""
    vectors = clustered_vectors(600, width=16, groups=8)
    ids = [f"id-{row % 400}" for row in range(600)]
    write_output(tmp_path / "build" / "vectors", vectors, ids=ids, files=4)
    words = ["dedup", "build/vectors", "build/duplicates", "--eps=0.02"]
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    counts = json.loads(Path("build/duplicates/run.json").read_text())["counts"]
    assert counts["removed"] > 60
    assert counts["same_id"] > 5
    page = (ROOT / "docs/search.md").read_text("utf-8")
    (recipe,) = [text for text in page.split("```python\n") if "build/kept.parquet" in text]
    names: dict = {}
    exec(recipe.partition("```")[0], names)
    for kept in (names["kept"], pd.read_parquet("build/kept.parquet")):
        assert len(kept) == counts["kept"]
        assert list(kept.columns) == ["id", "embedding"]
    duplicates = pd.read_parquet("build/duplicates/duplicates")
    files = {path.name: pd.read_parquet(path) for path in Path("build/vectors").rglob("*.parquet")}
    for side in ("", "kept_"):
        for row in duplicates.itertuples():
            assert getattr(row, f"{side}output") == str(tmp_path / "build" / "vectors")
            table = files[getattr(row, f"{side}file").removeprefix("embeddings/")]
            assert table["id"][getattr(row, f"{side}row")] == getattr(row, f"{side}id")
