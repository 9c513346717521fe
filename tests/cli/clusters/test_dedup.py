"""`dedup` on vectors made by hand, compared with all pairs, and what is done with its result."""

import json
import shutil
import subprocess

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import Hold
from tests.support.forks import python
from tests.support.outputs import clustered_vectors, write_output

ROWS, WIDTH, THRESHOLD = 3000, 32, 0.95


@pytest.fixture(scope="module")
def vectors():
    return clustered_vectors(ROWS, WIDTH)


@pytest.fixture(scope="module")
def source(tmp_path_factory, vectors):
    return write_output(tmp_path_factory.mktemp("source"), vectors)


@pytest.fixture(scope="module")
def out(source, tmp_path_factory):
    output = tmp_path_factory.mktemp("result") / "out"
    assert main(["dedup", str(source), str(output), f"--threshold={THRESHOLD}"]) == 0
    return output


@pytest.fixture(scope="module")
def record(out):
    return json.loads((out / "run.json").read_text())


@pytest.fixture(scope="module")
def duplicates(out):
    return pd.read_parquet(out / "duplicates")


def cosines(vectors):
    wide = vectors.astype(float)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide @ wide.T


def kept_by_rank(near, distances):
    """What greedy selection over all pairs keeps, farthest from its centroid first."""
    kept = np.zeros(len(near), bool)
    for row in np.lexsort((np.arange(len(near)), -distances)):
        kept[row] = not (near[row] & kept).any()
    return kept


def test_what_is_removed_is_what_all_pairs_give(out, vectors, duplicates):
    clusters = pd.read_parquet(out / "clusters")
    near = cosines(vectors) >= THRESHOLD
    np.fill_diagonal(near, False)
    wanted = ~kept_by_rank(near, clusters["distance"].to_numpy().astype(float))
    removed = clusters["id"].isin(duplicates["id"]).to_numpy()
    assert wanted.sum() > ROWS // 20
    assert np.count_nonzero(removed != wanted) <= 2  # pairs across borders that were not checked


def test_exact_duplicates_are_always_found(vectors, duplicates):
    _, first, counts = np.unique(vectors, axis=0, return_index=True, return_counts=True)
    assert counts.max() > 40
    removed = {int(each.removeprefix("doc-")) for each in duplicates["id"]}
    for at, count in zip(first[counts > 1], counts[counts > 1], strict=True):
        same = np.flatnonzero((vectors == vectors[at]).all(axis=1))
        assert len(removed & set(same.tolist())) >= count - 1


def test_the_counts_add_up(record, duplicates, out):
    counts, clusters = record["counts"], pd.read_parquet(out / "clusters")
    assert record["status"] == "done"
    assert counts["vectors"] == ROWS == len(clusters) == counts["kept"] + counts["removed"]
    assert counts["removed"] == len(duplicates) == duplicates["id"].nunique()
    sizes = clusters["cluster"].value_counts()
    assert sum(record["sizes"]) == counts["clustered"] == ROWS
    assert {cluster: size for cluster, size in enumerate(record["sizes"]) if size} == dict(sizes)
    assert counts["largest_cluster"] == sizes.max()
    assert len(record["sizes"]) == counts["clusters"] == len(np.load(out / "centroids.npy")) == 55


def test_nothing_but_results_is_left(out):
    names = {path.relative_to(out).parts[0] for path in out.rglob("*")}
    assert names == {"run.json", "centroids.npy", "clusters", "duplicates"}


@pytest.mark.parametrize("kind", ["clusters", "duplicates", "centroids.npy"])
def test_a_damaged_result_is_computed_again(source, out, tmp_path, capsys, kind):
    damaged = tmp_path / "out"
    shutil.copytree(out, damaged)
    path = damaged / kind if kind.endswith("npy") else sorted((damaged / kind).glob("part-*"))[0]
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1  # the size stays
    words = ["dedup", str(source), str(damaged), f"--threshold={THRESHOLD}"]
    assert main(words) == 0
    assert "nothing to do" in capsys.readouterr().out
    path.write_bytes(changed)
    assert main(words) == 0
    assert "nothing to do" not in capsys.readouterr().out
    assert path.read_bytes() == whole


def test_ids_stand_at_their_own_clusters(out, vectors):
    clusters = pd.read_parquet(out / "clusters")
    assert clusters["id"].tolist() == [f"doc-{row}" for row in range(ROWS)]
    products = cosines(np.concatenate([vectors, np.load(out / "centroids.npy")]))[:ROWS, ROWS:]
    assert clusters["cluster"].tolist() == products.argmax(axis=1).tolist()
    assert np.allclose(clusters["distance"], 1 - products.max(axis=1), atol=1e-6)


@pytest.mark.slow
def test_eps_is_one_less_the_cosine(source, out, tmp_path):
    """A process of its own, so another order of bundles and other threads, too."""
    words = [*python(), "-m", "bert_embed", "dedup", str(source), str(tmp_path / "out")]
    subprocess.run([*words, "--eps=0.05"], check=True, capture_output=True)
    for kind in ("clusters", "duplicates"):
        mine = pd.read_parquet(tmp_path / "out" / kind)
        pd.testing.assert_frame_equal(mine, pd.read_parquet(out / kind))


def test_anti_joins_leave_what_is_kept(source, out, record):
    kept = record["counts"]["kept"]
    vectors, removed = pd.read_parquet(source / "embeddings"), pd.read_parquet(out / "duplicates")
    assert len(vectors[~vectors["id"].isin(removed["id"])]) == kept
    lazy = pl.scan_parquet(source / "embeddings/*.parquet")
    lazy = lazy.join(pl.scan_parquet(out / "duplicates/*.parquet"), on="id", how="anti")
    assert lazy.collect().height == kept
    query = (
        f"SELECT count(*) FROM '{source}/embeddings/*.parquet' "
        f"ANTI JOIN '{out}/duplicates/*.parquet' USING (id)"
    )
    assert duckdb.sql(query).fetchall() == [(kept,)]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["cluster", "dedup"])
def test_ctrl_c_is_an_interruption_not_a_failure(tmp_path, source, capsys, command):
    output = tmp_path / "out"
    write = "bert_embed.transforms.clusters.job|ClusterFolder|write"
    code, _, errors = Hold(tmp_path / "hold", 1, write).interrupt(command, str(source), str(output))
    assert code == 130
    assert "interrupted; the same command continues it" in errors
    assert "error" not in errors
    written = json.loads((output / "run.json").read_text())
    assert (written["status"], written.get("error")) == ("interrupted", None)
    assert main([command, str(source), str(output)]) == 0
