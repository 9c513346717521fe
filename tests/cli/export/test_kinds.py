"""Exports of sparse and multi-vectors, read back as the programs they are for read them."""

import json
import uuid

import numpy as np
import pytest

import bert_embed
from bert_embed.importers import import_model
from bert_embed.models.heads.vectors import SparseVectors
from bert_embed.pipeline.export.folder import named_weights
from tests.support.command import embed, record
from tests.support.models.heads import VOCABULARY, write_splade
from tests.support.outputs import DIM, contents, export, multi_rows, run_of_kinds, sparse_rows

ROWS = (30, 0, 12)
BIAS = "cls.predictions.bias"
TWO_WORDS = VOCABULARY.index("[unused8]")


def lines(folder, pattern):
    return [
        json.loads(line)
        for path in sorted(folder.glob(pattern))
        for line in path.read_text("utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def expected():
    """The sparse and multi-vectors of every row: pairs of index and weight, and lists."""
    sparse, multi = [], []
    for number, rows in enumerate(ROWS):
        vectors, tokens = sparse_rows(number, rows), multi_rows(number, rows)
        for row in range(rows):
            one = vectors[np.array([row])]
            sparse.append((one.indices.tolist(), one.values))
            multi.append(tokens[np.array([row])].vectors)
    return sparse, multi


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "bigquery"])
def test_qdrant_points_have_a_named_vector_of_each_kind(tmp_path, expected, output_format):
    run = run_of_kinds(
        tmp_path / "run", ["dense", "sparse", "multi"], ROWS, output_format=output_format
    )
    assert export(run, tmp_path / "dest", "qdrant") == 0
    points = lines(tmp_path / "dest", "points_*.jsonl")
    ids, vectors = bert_embed.read(run)
    assert [point["payload"]["id"] for point in points] == ids
    assert len({uuid.UUID(point["id"]) for point in points}) == len(ids)
    assert points[7]["payload"]["tags"] == ["bank", "all"]
    for row, point in enumerate(points):
        indices, weights = expected[0][row]
        named = {"dense"} | ({"sparse"} if indices else set())
        named |= {"multi"} if len(expected[1][row]) else set()
        assert set(point["vector"]) == named
        np.testing.assert_array_equal(np.float32(point["vector"]["dense"]), vectors[row])
        if indices:
            assert point["vector"]["sparse"]["indices"] == indices
            read = np.float32(point["vector"]["sparse"]["values"])
            np.testing.assert_array_equal(read, weights)
        if len(expected[1][row]):
            read = np.float32(point["vector"]["multi"])
            np.testing.assert_array_equal(read, expected[1][row])
    before = contents(tmp_path / "dest")
    assert export(run, tmp_path / "dest", "qdrant") == 0
    assert contents(tmp_path / "dest") == before
    assert json.loads(before["export.json"])["export"]["source"]["kinds"] == [
        *("dense", "sparse", "multi")
    ]


def test_a_run_of_multi_vectors_alone_is_exported(tmp_path, expected):
    run = run_of_kinds(tmp_path / "run", ["multi"], ROWS)
    assert export(run, tmp_path / "dest", "qdrant") == 0
    points = lines(tmp_path / "dest", "points_*.jsonl")
    assert [len(point["vector"].get("multi", ())) for point in points] == [*map(len, expected[1])]
    assert {len(vector) for point in points for vector in point["vector"].get("multi", ())} == {DIM}


def test_vertex_has_sparse_embeddings_beside_dense_ones(tmp_path, expected):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], ROWS)
    assert export(run, tmp_path / "dest", "vertex", restricts="lang") == 0
    points = lines(tmp_path / "dest", "*.json")
    assert len(points) == sum(ROWS)
    for point, (indices, weights) in zip(points, expected[0], strict=True):
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


def test_chunks_have_their_own_sparse_vectors(tmp_path):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], [5], chunks=True)
    assert export(run, tmp_path / "dest", "vertex") == 0
    points = lines(tmp_path / "dest", "*.json")
    assert [point["id"] for point in points[:3]] == ["d/0#0", "d/0#1", "d/1#0"]
    lengths = np.diff(sparse_rows(0, 10).splits)
    found = [len(point.get("sparse_embedding", {"values": ()})["values"]) for point in points]
    assert found == lengths.tolist()


def test_what_a_target_does_not_take_is_refused(tmp_path, capsys):
    run = run_of_kinds(tmp_path / "run", ["sparse"], ROWS)
    assert export(run, tmp_path / "dest", "npy") == 2
    message = capsys.readouterr().err
    assert f"--to npy takes dense vectors, {run} holds sparse ones: embed with" in message
    dense = run_of_kinds(tmp_path / "dense", ["dense"], ROWS)
    assert export(dense, tmp_path / "dest", "pyserini") == 2
    assert "--to pyserini takes sparse vectors" in capsys.readouterr().err
    assert export(run, tmp_path / "dest", "qdrant", model="x") == 2
    assert "--model is for --to opensearch or pyserini" in capsys.readouterr().err
    assert not (tmp_path / "dest").exists()


@pytest.fixture(scope="module")
def splade(tmp_path_factory):
    """A run with sparse vectors whose model is known, and their tokens and weights by row."""
    folder = tmp_path_factory.mktemp("splade")
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    bias = write_splade(folder / "plain", **pooling)[BIAS].copy()
    bias[[VOCABULARY.index("."), TWO_WORDS]] += 9  # such that every text has them
    write_splade(folder / "source", changes={BIAS: bias}, **pooling)
    names = "".join(f"{name}\n" for name in VOCABULARY).replace("[unused8]", "two words")
    (folder / "source" / "vocab.txt").write_text(names)
    model = import_model(str(folder / "source"), str(folder / "bundle")).path
    texts = [f"the bank of river {number}." for number in range(20)]
    (folder / "in.txt").write_text("\n".join(texts))
    assert embed(folder / "out", model, folder / "in.txt", keep_text=True) == 0
    vectors = bert_embed.load(model).encode(texts, kind="sparse")
    rows = [
        {
            f"[{index}]" if index == TWO_WORDS else VOCABULARY[index]: weight
            for index, weight in zip(*(part.tolist() for part in pair), strict=True)
        }
        for pair in zip(
            np.split(vectors.indices, vectors.splits[1:-1]),
            np.split(vectors.values, vectors.splits[1:-1]),
            strict=True,
        )
    ]
    return folder / "out", rows, texts


def test_bulk_files_have_an_action_and_a_document_a_row(tmp_path, splade):
    output, rows, texts = splade
    assert any("." in token for row in rows for token in row)
    assert export(output, tmp_path / "dest", "opensearch") == 0
    found = lines(tmp_path / "dest", "bulk_*.jsonl")
    actions, documents = found[::2], found[1::2]
    assert [document["text"] for document in documents] == texts
    assert [action["index"]["_id"] for action in actions] == [row["id"] for row in documents]
    for document, row in zip(documents, rows, strict=True):
        expected = {token.replace(".", "__"): weight for token, weight in row.items()}
        assert list(document["sparse"]) == list(expected)
        np.testing.assert_allclose([*document["sparse"].values()], [*expected.values()], rtol=1e-5)
        assert not any("." in token for token in document["sparse"])


def test_of_entries_with_one_name_the_largest_weight_counts():
    vectors = SparseVectors(np.array([0, 1, 4]), np.array([0, 0, 1, 2]), np.float32([9, 1, 3, 2]))
    assert named_weights(vectors, 1, ["a", "b", "a"]) == {"a": 2.0, "b": 3.0}


def test_pyserini_has_integer_weights(tmp_path, splade):
    output, rows, texts = splade
    assert export(output, tmp_path / "dest", "pyserini") == 0
    assert {path.suffix for path in (tmp_path / "dest").iterdir()} == {".jsonl"}
    found = lines(tmp_path / "dest", "docs_*.jsonl")
    assert [document["contents"] for document in found] == texts
    for document, row in zip(found, rows, strict=True):
        assert set(document) == {"id", "contents", "vector"}
        expected = {token: weight * 100 for token, weight in row.items()}
        for token, impact in document["vector"].items():
            assert isinstance(impact, int)
            assert abs(impact - expected.pop(token)) <= 0.501
        assert all(weight < 0.501 for weight in expected.values())


def test_another_model_is_refused(tmp_path, splade, tiny_bundle, capsys):
    assert export(splade[0], tmp_path / "dest", "pyserini", model=tiny_bundle) == 2
    message = capsys.readouterr().err
    assert (
        f"the vectors in {splade[0]} come from {record(splade[0])['vectors']['model']}" in message
    )
