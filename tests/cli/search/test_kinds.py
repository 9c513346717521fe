"""Search by each kind of vectors, by two at once, and in the order of a cross-encoder."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import data_files, embed, write_json
from tests.support.models.heads import VOCABULARY, write_splade
from tests.support.models.multi_vectors import write_multi_vectors
from tests.support.models.tiny import bundle_of

WORDS = ["river", "bank", "money", "robber", "vault", "water", "people", "number"]
TEXTS = [f"{WORDS[n % 8]} {WORDS[n // 8 % 8]} of {n}" for n in range(60)]
QUERIES = ["the bank of the river", "money"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A sparse model, and one of late interaction."""
    folder = tmp_path_factory.mktemp("models")
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    return {
        "splade": bundle_of(folder / "splade", write_splade, **pooling),
        "colbert": bundle_of(folder / "colbert", write_multi_vectors, "stanford"),
    }


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    records = [{"id": f"d{number}", "text": text} for number, text in enumerate(TEXTS)]
    return write_json(path, *records)


@pytest.fixture(scope="module")
def both(tmp_path_factory, models, corpus):
    """A run with dense and sparse vectors, in several files."""
    output = tmp_path_factory.mktemp("both") / "out"
    assert embed(output, models["splade"], corpus, vectors="dense,sparse", part_docs=17) == 0
    return str(output)


def sparse_matrix(output):
    """float64 `[documents, vocabulary]`."""
    rows = [
        row
        for path in data_files(Path(output), "sparse")
        for row in pq.read_table(path).to_pylist()
    ]
    matrix = np.zeros((len(rows), len(VOCABULARY)))
    for number, row in enumerate(rows):
        matrix[number, row["indices"]] = row["values"]
    return matrix


def query_matrix(model):
    queries = bert_embed.load(model).encode_query(QUERIES, kind="sparse")
    matrix = np.zeros((len(QUERIES), len(VOCABULARY)))
    rows = np.repeat(np.arange(len(QUERIES)), np.diff(queries.splits))
    matrix[rows, queries.indices] = queries.values
    return matrix


def test_sparse_hits_are_those_of_all_products(both, models):
    scores = sparse_matrix(both) @ query_matrix(models["splade"]).T
    for number, hits in enumerate(bert_embed.nearest(both, QUERIES, 20, by="sparse")):
        order = np.argsort(-scores[:, number], kind="stable")[:20]
        assert [hit.id for hit in hits] == [f"d{row}" for row in order]
        np.testing.assert_allclose([hit.score for hit in hits], scores[order, number], rtol=1e-6)
        assert [hit.text for hit in hits] == [TEXTS[row] for row in order]
        assert hits[0].file.startswith("sparse/part-")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_multi_vectors_are_compared_by_maxsim(models, corpus, run, dtype):
    output = run(corpus, model=models["colbert"], output_dtype=dtype, part_docs=17)
    documents = [vectors.astype(np.float64) for _, vectors in bert_embed.read_multi(output)]
    queries = bert_embed.load(models["colbert"]).encode_query(QUERIES, kind="multi")
    assert (np.diff(queries.splits) == 16).all()  # filled up
    found = bert_embed.nearest(str(output), QUERIES, 20)
    assert found == bert_embed.nearest(str(output), QUERIES, 20, by="multi")
    for number, hits in enumerate(found):
        query = queries.vectors[slice(*queries.splits[number : number + 2])].astype(np.float64)
        scores = np.array([(vectors @ query.T).max(axis=0).sum() for vectors in documents])
        order = np.argsort(-scores, kind="stable")[:20]
        assert [hit.id for hit in hits] == [f"d{row}" for row in order]
        np.testing.assert_allclose([hit.score for hit in hits], scores[order], rtol=1e-6)
        assert [hit.text for hit in hits] == [TEXTS[row] for row in order]


def test_what_an_output_holds_is_searched_by_default(both, models, corpus, run, capsys):
    output = str(run(corpus, model=models["splade"], keep_text=True))
    wanted = bert_embed.nearest(both, QUERIES, 5, by="sparse")
    for by in (None, "sparse"):
        hits = bert_embed.nearest(output, QUERIES, 5, by=by)
        for few, others in zip(hits, wanted, strict=True):
            assert [hit.score for hit in few] == [hit.score for hit in others]
    assert bert_embed.nearest(both, QUERIES, 5) == bert_embed.nearest(both, QUERIES, 5, by="dense")
    assert main(["search", both, output, "money", "--k=1"]) == 0  # what both hold
    none = run({"empty.jsonl": ""}, "none", model=models["splade"])
    assert main(["search", str(none), "money"]) == 0
    assert "none has no vectors" in capsys.readouterr().err
    for words, messages in (
        (
            [output, "money", "--by=dense"],
            ["--by dense requires dense vectors", "that makes them, such as BAAI/bge-m3"],
        ),
        ([both, "money", "--by=multi"], [f"multi vectors, but {both} holds dense and sparse"]),
        ([both, "money", "--by=words"], ["--by must be one of dense, sparse, multi"]),
    ):
        assert main(["search", *words]) == 2
        said = capsys.readouterr().err
        assert all(message in said for message in messages)
