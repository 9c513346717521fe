"""Sparse and multi-vectors are searched exactly: as brute force over all rows in float64 finds."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.search.nearest import nearest
from tests.support.outputs import DIM, ENTRIES, finished_run, multi_rows, sparse_rows

FILES = (2000, 0, 700)
SETTINGS = {"heads": {"sparse": {"entries": ENTRIES}, "multi": {"dim": DIM}}}


def write(folder, kind, files, dtype="float32"):
    def of_kind(block):
        return replace(block, vectors=None, heads={kind: files[block.part.block]})

    settings = {"vectors": [kind], **SETTINGS}
    sizes = list(map(len, files))
    finished_run(folder, sizes, dtype=dtype, kept=False, settings=settings, changed=of_kind)


def dense(vectors):
    """float64 `[rows, vocabulary]`."""
    matrix = np.zeros((len(vectors), ENTRIES))
    rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.splits))
    matrix[rows, vectors.indices] = vectors.values
    return matrix


def max_sims(vectors, query):
    """float64 `[rows]`; -inf for rows without tokens."""
    products = vectors.vectors.astype(np.float64) @ query.astype(np.float64).T
    rows = np.split(products, vectors.splits[1:])[: len(vectors)]
    return np.array([row.max(axis=0).sum() if len(row) else -np.inf for row in rows])


def assert_hits(hits, scores, order, k):
    best = order[:k]
    assert [hit.id for hit in hits] == [f"d/{row}" for row in best]
    np.testing.assert_allclose([hit.score for hit in hits], scores[best], rtol=1e-12)


@pytest.mark.parametrize("k", [1, 10, 5000])
def test_sparse_hits_are_those_of_the_dense_product(tmp_path, k):
    files = [sparse_rows(number, rows, 60) for number, rows in enumerate(FILES)]
    queries = sparse_rows(9, 5, 12)
    write(tmp_path / "out", "sparse", files)
    found = nearest(str(tmp_path / "out"), SETTINGS, queries, k, "sparse")
    every = np.concatenate([dense(file) for file in files]) @ dense(queries).T
    for scores, hits in zip(every.T, found, strict=True):
        order = np.argsort(-scores, kind="stable")
        assert_hits(hits, scores, order[scores[order] > 0], k)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("k", [1, 10, 5000])
def test_multi_hits_are_those_of_all_pairs_of_tokens(tmp_path, k, dtype):
    files = [multi_rows(number, rows, 9) for number, rows in enumerate(FILES)]
    files = [MultiVectors(file.splits, file.vectors.astype(dtype)) for file in files]
    write(tmp_path / "out", "multi", files, dtype)
    queries = multi_rows(11, 3, 7)
    settings = SETTINGS | {"output_dtype": dtype}
    found = nearest(str(tmp_path / "out"), settings, queries, k, "multi")
    for query, hits in zip(queries.rows(), found, strict=True):
        scores = np.concatenate([max_sims(file, query) for file in files])
        order = np.argsort(-scores, kind="stable")
        assert_hits(hits, scores, order[np.isfinite(scores[order])], k)


def test_of_equal_scores_the_first_row_comes_first(tmp_path):
    one = SparseVectors(splits_of(np.ones(1500, int)), np.full(1500, 3, "i4"), np.ones(1500, "f4"))
    write(tmp_path / "sparse", "sparse", [one, one])
    query = SparseVectors(np.array([0, 1]), np.array([3], "i4"), np.array([2], "f4"))
    (hits,) = nearest(str(tmp_path / "sparse"), SETTINGS, query, 3, "sparse")
    assert [(hit.id, hit.score) for hit in hits] == [("d/0", 2.0), ("d/1", 2.0), ("d/2", 2.0)]


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_rows_that_are_not_finite_are_left_out_and_counted(tmp_path, kind, caplog):
    rows = (sparse_rows if kind == "sparse" else multi_rows)(1, 50, 9)
    bad = int(np.flatnonzero(np.diff(rows.splits))[4])
    query = rows[slice(bad, bad + 1)]
    (rows.values if kind == "sparse" else rows.vectors[:, 5])[rows.splits[bad]] = np.nan
    write(tmp_path / "out", kind, [rows])
    with caplog.at_level(logging.WARNING):
        (hits,) = nearest(str(tmp_path / "out"), SETTINGS, query, 50, kind)
    assert f"d/{bad}" not in {hit.id for hit in hits}
    assert f"{kind}/part-0000000-00000.parquet holds 1 vector with NaN" in caplog.text


def test_a_query_without_entries_finds_nothing(tmp_path):
    write(tmp_path / "out", "sparse", [sparse_rows(1, 50, 9)])
    empty = SparseVectors(np.array([0, 0]), np.empty(0, "i4"), np.empty(0, "f4"))
    assert nearest(str(tmp_path / "out"), SETTINGS, empty, 3, "sparse") == [[]]
