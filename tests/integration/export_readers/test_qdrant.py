"""Points in Qdrant's own client, which searches them: run by `make test-export`."""

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from tests.support.outputs import DIM, ENTRIES, export, multi_rows, run_of_kinds, sparse_rows

WIDTH, TOTAL = 12, 60


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A collection in memory with the points of a run."""
    folder = tmp_path_factory.mktemp("qdrant")
    run = run_of_kinds(folder / "run", ["dense", "sparse", "multi"], [TOTAL], WIDTH)
    assert export(run, folder / "dest", "qdrant") == 0
    client = QdrantClient(":memory:")
    comparator = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    client.create_collection(
        "books",
        vectors_config={
            "dense": models.VectorParams(size=WIDTH, distance=models.Distance.COSINE),
            "multi": models.VectorParams(
                size=DIM, distance=models.Distance.DOT, multivector_config=comparator
            ),
        },
        sparse_vectors_config={"sparse": models.SparseVectorParams()},
    )
    for path in sorted((folder / "dest").glob("points_*.jsonl")):
        lines = path.read_bytes().splitlines()
        client.upload_points("books", map(models.PointStruct.model_validate_json, lines), wait=True)
    return client


def test_the_points_have_their_columns(client):
    assert client.count("books").count == TOTAL
    points, _ = client.scroll("books", limit=TOTAL)
    assert {point.payload["id"] for point in points} == {f"d/{row}" for row in range(TOTAL)}
    assert {point.payload["lang"] for point in points} == {"river", "bank", "stars", None}


def found(client, query, name):
    points = client.query_points("books", query=query, using=name, limit=5).points
    return [point.payload["id"] for point in points], [point.score for point in points]


def test_sparse_vectors_are_found_by_their_products(client):
    vectors = sparse_rows(0, TOTAL)
    matrix = np.zeros((TOTAL, ENTRIES))
    rows = np.repeat(np.arange(TOTAL), np.diff(vectors.splits))
    matrix[rows, vectors.indices] = vectors.values
    scores = matrix @ matrix[9]
    order = np.argsort(-scores, kind="stable")[:5]
    one = vectors[np.array([9])]
    query = models.SparseVector(indices=one.indices.tolist(), values=one.values.tolist())
    ids, products = found(client, query, "sparse")
    assert ids == [f"d/{row}" for row in order]
    np.testing.assert_allclose(products, scores[order], rtol=1e-5)


def test_multi_vectors_are_found_by_maxsim(client):
    vectors = multi_rows(0, TOTAL)
    query = vectors[np.array([9])].vectors
    rows = [vectors[np.array([row])].vectors for row in range(TOTAL)]
    scores = np.array([(row @ query.T).max(0).sum() if len(row) else -np.inf for row in rows])
    order = np.argsort(-scores, kind="stable")[:5]
    ids, similarities = found(client, query.tolist(), "multi")
    assert ids == [f"d/{row}" for row in order]
    np.testing.assert_allclose(similarities, scores[order], rtol=1e-5)
