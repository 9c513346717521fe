"""Exports in the hands of the programs they are for: run by `make test-export`."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import faiss
import lancedb
import numpy as np
import pyarrow.parquet as pq
import pytest
from embedding_atlas.utils import load_pandas_data
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

import bert_embed
from tests.support.command import ROOT
from tests.support.exports import contents, export
from tests.support.finished_runs import finished_run

WIDTH, BITS = 32, 44  # bits that fill no whole byte
PARTS = (3000, 1500, 0, 7)
TOTAL = sum(PARTS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        dtype: finished_run(folder / dtype, PARTS, BITS if dtype == "ubinary" else WIDTH, dtype)
        for dtype in ("float32", "float16", "int8", "ubinary")
    }


@pytest.fixture(scope="module")
def stored(runs):
    return {dtype: bert_embed.read(run) for dtype, run in runs.items()}


def nearest_by_force(vectors, queries, k):
    return np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :k]


def recall(found, wanted):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, wanted, strict=True)])


@pytest.mark.parametrize(("index", "least"), [("auto", 1.0), ("ivf", 0.95)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_faiss_finds_what_brute_force_finds(runs, stored, tmp_path, dtype, index, least):
    dest = tmp_path / "faiss"
    assert export(runs[dtype], dest, "faiss", index=index) == 0
    found = faiss.read_index(str(dest / "knn.index"))
    ids, vectors = stored[dtype]
    assert (found.ntotal, found.d, found.metric_type) == (TOTAL, WIDTH, faiss.METRIC_INNER_PRODUCT)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores, rows = found.search(unit[:200], 10)
    np.testing.assert_allclose(scores[:, 0], 1, atol=1e-5)
    assert recall(rows, nearest_by_force(unit, unit[:200], 10)) >= least
    table = pq.read_table(dest / "ids.parquet")
    assert table["id"].to_pylist() == ids
    assert table["lang"][1].as_py() == "bank"
    infos = json.loads((dest / "index_infos.json").read_text())
    assert infos["nb vectors"] == TOTAL
    assert infos["index_key"] == ("Flat" if index == "auto" else "IVF112,Flat")
    assert infos["size in bytes"] == (dest / "knn.index").stat().st_size
    assert "cosine" in infos["metric"]
    assert sorted(contents(dest)) == ["export.json", "ids.parquet", "index_infos.json", "knn.index"]


@pytest.mark.parametrize("index", ["flat", "ivf"])
def test_faiss_finds_bits_by_their_hamming_distance(runs, stored, tmp_path, index):
    assert export(runs["ubinary"], tmp_path / "faiss", "faiss", index=index) == 0
    found = faiss.read_index_binary(str(tmp_path / "faiss" / "knn.index"))
    packed = np.packbits(stored["ubinary"][1] > 0, axis=1)
    assert (found.ntotal, found.d) == (TOTAL, 48)
    distances, _ = found.search(packed[:100], 10)
    wanted = np.bitwise_count(packed[:100, None] ^ packed[None]).sum(axis=2)
    wanted = np.sort(wanted, axis=1)[:, :10]
    assert np.mean(distances == wanted) > (0.999 if index == "flat" else 0.9)


@pytest.mark.parametrize("dtype", ["float32", "ubinary"])
def test_faiss_merges_on_disk_what_outgrows_memory(tmp_path, capfd, dtype):
    rows, width = 20_000, WIDTH if dtype == "float32" else 16 * WIDTH
    run = finished_run(tmp_path / "run", [rows // 4] * 4, width, dtype, kept=False)
    assert export(run, tmp_path / "made", "faiss", index="ivf", memory=1) == 0
    assert capfd.readouterr().out == f"{tmp_path}/made: {rows:,} rows of {width} numbers\n"
    dest = (tmp_path / "made").rename(tmp_path / "moved")  # the lists are found beside the index
    assert sorted(contents(dest)) == [
        "export.json",
        "ids.parquet",
        "index_infos.json",
        "knn.index",
        "knn.ivfdata",
    ]
    read = faiss.read_index_binary if dtype == "ubinary" else faiss.read_index
    found = read(str(dest / "knn.index"), faiss.IO_FLAG_ONDISK_SAME_DIR)
    vectors = bert_embed.read(run)[1]
    queries = np.packbits(vectors > 0, axis=1) if dtype == "ubinary" else vectors
    distances, nearest = found.search(queries[-200:], 1)
    assert found.ntotal == rows
    if dtype == "ubinary":
        assert not distances.any()
    else:
        assert nearest[:, 0].tolist() == list(range(rows - 200, rows))
    lists = (dest / "knn.ivfdata").read_bytes()
    (dest / "knn.ivfdata").unlink()
    assert export(run, dest, "faiss", index="ivf", memory=1) == 0
    assert (dest / "knn.ivfdata").read_bytes() == lists


def test_an_export_to_faiss_that_failed_starts_anew(runs, tmp_path, capsys):
    path = sorted((runs["float32"] / "embeddings").iterdir())[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    try:
        assert export(runs["float32"], tmp_path / "faiss", "faiss") == 2
    finally:
        path.write_bytes(data)
    assert "is damaged" in capsys.readouterr().err
    assert not (tmp_path / "faiss" / "knn.index").exists()
    assert export(runs["float32"], tmp_path / "faiss", "faiss") == 0
    assert export(runs["float32"], tmp_path / "faiss", "faiss") == 0
    assert "nothing to do" in capsys.readouterr().out
    (tmp_path / "faiss" / "mine.txt").write_text("mine")
    assert export(runs["float32"], tmp_path / "faiss", "faiss") == 2
    assert "holds mine.txt" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "ubinary"])
@pytest.mark.parametrize("index", ["none", "ivf_flat"])
def test_lancedb_searches_the_table(runs, stored, tmp_path, dtype, index):
    assert export(runs[dtype], tmp_path / "db", "lancedb", table="rivers", index=index) == 0
    table = lancedb.connect(tmp_path / "db").open_table("rivers")
    ids, vectors = stored[dtype]
    assert table.count_rows() == TOTAL
    query = np.packbits(vectors[7] > 0) if dtype == "ubinary" else vectors[7]
    distance = "hamming" if dtype == "ubinary" else "cosine"
    search = table.search(query, vector_column_name="vector").distance_type(distance)
    (best,) = search.where("year < 9").limit(1).to_list()
    assert (best["id"], best["text"], best["tags"]) == (
        ids[7],
        "Text\t7\nwith ümlaut",
        ["bank", "all"],
    )
    assert len(table.list_indices()) == (index != "none")


def test_rows_are_in_a_table_of_lancedb_once_whenever_an_export_stops(runs, tmp_path, capsys):
    """The states that a killed export can leave: rows added and not noted, a table without rows."""
    dest = tmp_path / "db"
    assert export(runs["float32"], dest, "lancedb") == 0
    journal = json.loads((dest / "embeddings.export.json").read_text())
    table = lancedb.connect(dest).open_table("embeddings")
    before = {"status": "running", "position": ["", 0], "more": {"version": 1, "rows": 0}}
    (dest / "embeddings.export.json").write_text(json.dumps(journal | before))
    assert export(runs["float32"], dest, "lancedb") == 0
    table.checkout_latest()
    assert table.count_rows() == TOTAL
    assert len(set(table.to_arrow()["id"].to_pylist())) == TOTAL
    lancedb.connect(dest).drop_table("embeddings")
    assert export(runs["float32"], dest, "lancedb") == 0
    assert lancedb.connect(dest).open_table("embeddings").count_rows() == TOTAL
    capsys.readouterr()
    assert export(runs["float32"], dest, "lancedb") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_tables_of_lancedb_that_are_not_ours_are_refused(runs, tmp_path, capsys):
    lancedb.connect(tmp_path / "db").create_table("mine", [{"a": 1}])
    assert export(runs["float32"], tmp_path / "db", "lancedb", table="mine") == 2
    assert "--table mine exists in" in capsys.readouterr().err
    assert export(runs["float32"], tmp_path / "db", "lancedb", table="other") == 0
    (tmp_path / "db" / "letter.txt").write_text("mine")
    assert export(runs["float32"], tmp_path / "db", "lancedb") == 2
    assert "holds letter.txt, which is no table of LanceDB" in capsys.readouterr().err
    assert export(runs["ubinary"], tmp_path / "bits", "lancedb", index="ivf_pq") == 2
    assert "--index ivf_pq cannot take the bits" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False])
def test_tensorboard_serves_the_vectors_and_their_columns(stored, tmp_path, kept):
    run = finished_run(tmp_path / "run", [300], WIDTH, kept=kept)
    assert export(run, tmp_path / "logs", "projector") == 0
    context = SimpleNamespace(logdir=str(tmp_path / "logs"), data_provider=None, multiplexer=None)
    apps = ProjectorPlugin(context).get_plugin_apps()
    (name,) = [
        each["tensorName"] for each in Client(apps["/info"]).get("/info?run=.").json["embeddings"]
    ]
    query = f"?run=.&name={name}"
    served = Client(apps["/tensor"]).get(f"/tensor{query}").data
    np.testing.assert_array_equal(
        np.frombuffer(served, "<f4").reshape(-1, WIDTH), bert_embed.read(run)[1]
    )
    lines = Client(apps["/metadata"]).get(f"/metadata{query}").text.splitlines()
    assert len(lines) == 300 + kept


def test_embedding_atlas_loads_the_file(runs, tmp_path):
    assert export(runs["int8"], tmp_path / "atlas", "atlas", sample=1000) == 0
    frame = load_pandas_data(str(tmp_path / "atlas" / "atlas.parquet"))
    assert len(frame) == 1000
    assert {"id", "text", "vector", "projection_x", "projection_y", "lang"} <= set(frame.columns)
    assert np.stack(frame["vector"]).shape == (1000, WIDTH)


MEASURE = """
import resource, sys
from bert_embed.pipeline.cli import main
source, dest = sys.argv[1:]
assert main(["export", source, f"{dest}/db", "--to=lancedb"]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_table_of_lancedb_takes_no_more_memory_for_more_rows(tmp_path):
    """Four times the rows; the further vectors alone have 230 MB."""
    peaks = []
    for parts in (4, 16):
        source = finished_run(tmp_path / f"run{parts}", [25_000] * parts, 192, "int8", kept=False)
        command = [sys.executable, "-c", MEASURE, source, tmp_path / str(parts)]
        done = subprocess.run(command, cwd=ROOT, env=os.environ, stdout=-1, check=True)
        peaks.append(int(done.stdout.split()[-1]) >> 10)
    assert peaks[1] - peaks[0] < 100, f"{peaks} MiB"
