"""Exports in the hands of the programs they are for: run by `make test-export`."""

import json

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.outputs import contents, export, finished_run

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
    assert getattr(found, "nlist", None) == (None if index == "auto" else 112)
    assert sorted(contents(dest)) == ["export.json", "ids.parquet", "knn.index"]


@pytest.mark.parametrize(
    ("similarity", "metric"), [("dot", "INNER_PRODUCT"), ("euclidean", "L2"), ("manhattan", "L1")]
)
def test_faiss_compares_as_the_model_does(tmp_path, capsys, similarity, metric):
    run = finished_run(tmp_path / "run", [300], WIDTH)
    record = json.loads((run / "run.json").read_text())
    record["vectors"]["similarity"] = similarity
    (run / "run.json").write_text(json.dumps(record))
    assert export(run, tmp_path / "faiss", "faiss") == 0
    found = faiss.read_index(str(tmp_path / "faiss" / "knn.index"))
    assert found.metric_type == getattr(faiss, f"METRIC_{metric}")
    np.testing.assert_array_equal(found.reconstruct_n(0, 300), bert_embed.read(run)[1])
    if similarity == "manhattan":
        assert export(run, tmp_path / "ivf", "faiss", index="ivf") == 2
        assert "knows no manhattan distance" in capsys.readouterr().err


def test_an_index_that_is_larger_than_memory_is_refused(tmp_path, capsys):
    run = finished_run(tmp_path / "run", [3], WIDTH)
    record = json.loads((run / "run.json").read_text())
    record["written"]["embeddings"]["rows"] = 10**12
    (run / "run.json").write_text(json.dumps(record))
    assert export(run, tmp_path / "faiss", "faiss") == 2
    assert "it takes 119,209 GiB, this machine has" in capsys.readouterr().err
    assert not (tmp_path / "faiss").exists()


def test_faiss_writes_to_cloud_storage(gcs, runs, tmp_path):
    gcs.client.create_bucket("faiss")
    assert export(runs["float16"], tmp_path / "dest", "faiss", index="ivf") == 0
    assert export(runs["float16"], "gs://faiss/dest", "faiss", index="ivf") == 0
    assert contents(gcs.root / "faiss" / "dest") == contents(tmp_path / "dest")


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
