"""Exports of sparse vectors, beside dense ones and alone."""

import json

import numpy as np
import pytest

from tests.support.outputs import export, run_of_kinds, sparse_rows

ROWS = (30, 0, 12)


def lines(folder, pattern):
    return [
        json.loads(line)
        for path in sorted(folder.glob(pattern))
        for line in path.read_text("utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def expected():
    """The indices and weights of every row."""
    blocks = [(sparse_rows(number, rows), rows) for number, rows in enumerate(ROWS)]
    return [
        (one.indices.tolist(), one.values)
        for vectors, rows in blocks
        for one in (vectors[np.array([row])] for row in range(rows))
    ]


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "bigquery"])
def test_vertex_has_sparse_embeddings_beside_dense_ones(tmp_path, expected, output_format):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], ROWS, output_format=output_format)
    assert export(run, tmp_path / "dest", "vertex", restricts="lang") == 0
    points = lines(tmp_path / "dest", "*.json")
    assert len(points) == sum(ROWS)
    for point, (indices, weights) in zip(points, expected, strict=True):
        assert len(point["embedding"]) == 12
        assert ("sparse_embedding" in point) == bool(indices)
        if indices:
            assert point["sparse_embedding"]["dimensions"] == indices
            np.testing.assert_array_equal(np.float32(point["sparse_embedding"]["values"]), weights)
    alone = run_of_kinds(tmp_path / "alone", ["sparse"], ROWS)
    assert export(alone, tmp_path / "sparse", "vertex") == 0
    first, second = lines(tmp_path / "sparse", "*.json")[:2]
    assert first == {"id": "d/0"}
    assert set(second) == {"id", "sparse_embedding"}


def test_chunks_have_ids_and_sparse_vectors_of_their_own_and_crowd_by_document(tmp_path):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], [5], chunks=True)
    assert export(run, tmp_path / "dest", "vertex") == 0
    points = lines(tmp_path / "dest", "*.json")
    assert [point["id"] for point in points[:3]] == ["d/0#0", "d/0#1", "d/1#0"]
    assert points[3]["crowding_tag"] == "d/1"
    lengths = np.diff(sparse_rows(0, 10).splits)
    found = [len(point.get("sparse_embedding", {"values": ()})["values"]) for point in points]
    assert found == lengths.tolist()


def test_what_a_target_does_not_take_is_refused(tmp_path, capsys):
    run = run_of_kinds(tmp_path / "run", ["sparse"], ROWS)
    assert export(run, tmp_path / "dest", "npy") == 2
    message = capsys.readouterr().err
    assert f"--to npy takes dense vectors, {run} holds sparse ones: embed with" in message
    multi = run_of_kinds(tmp_path / "multi", ["multi"], ROWS)
    assert export(multi, tmp_path / "dest", "vertex") == 2
    assert "--to vertex takes dense or sparse vectors" in capsys.readouterr().err
    assert not (tmp_path / "dest").exists()
