"""Recipes and examples on an output with a vector of zeros and extra values that are not finite.

Run by `make test-export`. DuckDB's recipes are run by tests/test_doc_blocks.py.
"""

import json
import re
from dataclasses import replace

import faiss
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_embed.base.arrays import cosines
from examples import clusters, load_pgvector, near_duplicates
from tests.integration.export_readers import test_docs
from tests.integration.export_readers.test_loads import Iceberg, PgVector, Qdrant, database, node
from tests.support.outputs import export, finished_run

__all__ = ["database", "node"]  # fixtures

IDS = ["same", "zero", "near", "far"]
VECTORS = np.array([[1, 0], [0, 0], [0.6, 0.8], [-1, 0]], np.float32)
NEAREST = ["same", "near", "zero", "far"]  # as `search` has them: with zeros the cosine is 0
PRICES = [float("nan"), float("inf"), None, float("-inf")]


def awkward(block):
    extra = pa.table({"price": pa.array(PRICES, pa.float64()), "year": [1, 2, 3, 4]})
    return replace(block, ids=pa.array(IDS), vectors=VECTORS, extra=extra)


@pytest.fixture
def output(tmp_path, monkeypatch):
    """The output, where the pages have it."""
    monkeypatch.chdir(tmp_path)
    scores = cosines(VECTORS, VECTORS[0])
    assert [IDS[row] for row in np.argsort(-scores, kind="stable")] == NEAREST
    return finished_run(tmp_path / "build" / "books", [4], width=2, changed=awkward)


def test_a_database_takes_it_once(database, output, capsys):
    database.load(output)
    before = database.state()
    database.load(output)
    # pyiceberg takes a row with NaN for a new one: findings/pyiceberg_upsert_of_nan.sh
    assert (database.state() == before) is not isinstance(database, Iceberg)
    found = database.rows()
    assert sorted(found) == sorted(IDS)
    for name, vector in zip(IDS, VECTORS, strict=True):
        np.testing.assert_allclose(found[name][1], vector, atol=1e-6)


def test_databases_find_what_search_finds(request, output, tmp_path):
    qdrant = Qdrant(request, tmp_path)
    qdrant.load(output)
    points = qdrant.client.query_points("books", [1.0, 0.0]).points
    assert [point.payload["key"] for point in points] == NEAREST
    assert [point.payload["price"] for point in points] == [None] * 4
    address, table = PgVector(request, tmp_path).words
    load_pgvector.load(str(output), address, table)
    statement = re.search(r"`(SELECT key, text FROM books [^`]*)`", test_docs.PAGE)[1]
    columns = f"SELECT metadata->>'price', metadata->>'year' FROM {table} ORDER BY 2"
    with psycopg.connect(address) as connection:
        hits = connection.execute(statement.replace("books", table).replace("…", "1,0")).fetchall()
        extra = connection.execute(columns).fetchall()
    assert [row[0] for row in hits] == ["same", "near", "far", "zero"], "its distance is NaN"
    assert extra == [(None, year) for year in "1234"]


def test_indexes_find_what_search_finds(output, capsys):
    assert export(output, "build/books-faiss", "faiss") == 0
    _, rows = faiss.read_index("build/books-faiss/knn.index").search(VECTORS[:1], 4)
    assert [IDS[row] for row in rows[0]] == NEAREST
    names = {}
    capsys.readouterr()
    exec(compile("import lancedb" + test_docs.block("import lancedb"), "lancedb", "exec"), names)
    assert capsys.readouterr().out == "same\n"
    hits = names["table"].search(names["query"]).distance_type("cosine").limit(4).to_list()
    assert [hit["id"] for hit in hits] == ["same", "near", "far"], "no hit of a distance NaN"
    columns = {"numeric_restricts": "price,year", "embedding_metadata": "price"}
    assert export(output, "build/vertex", "vertex", **columns) == 0
    [file] = (output.parent / "vertex").glob("*.json")
    for number, line in enumerate(file.read_text().splitlines(), 1):
        point = json.loads(line, parse_constant=pytest.fail)
        assert point["numeric_restricts"] == [{"namespace": "year", "value_int": number}]
        assert point["embedding_metadata"] == {"price": None}


def test_zeros_are_near_nothing(output, capsys):
    near_duplicates.main(str(output), "build/duplicates.parquet", "0.5")
    assert pq.read_table("build/duplicates.parquet").to_pylist() == [
        {"id": "near", "kept_id": "same", "cosine": pytest.approx(0.6)}
    ]
    clusters.main(str(output), "build/clusters.parquet", "2")
    of = dict(zip(IDS, pq.read_table("build/clusters.parquet").to_pylist(), strict=True))
    assert of["zero"]["cosine"] == 0
    assert of["same"]["cluster"] == of["near"]["cluster"] != of["far"]["cluster"]
