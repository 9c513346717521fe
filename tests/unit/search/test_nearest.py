"""The nearest vectors of a run, of any kind, are those of a plain computation over all of them."""

import json
import logging
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import bert_embed
from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.results.names import OUTPUT_DTYPES
from bert_embed.search.nearest import nearest
from tests.support.outputs import DIM, ENTRIES, finished_run, multi_rows, sparse_rows, write_output

FILES, ROWS, WIDTH = 5, 2500, 24


def write_equal(folder, dtype, output_format, not_finite=False):
    """Writes vectors of which every fifth is one of two, and one of each file is zero."""
    vectors = np.random.default_rng(5).standard_normal((FILES, ROWS, WIDTH), np.float32)
    vectors[::2, ::5], vectors[1::2, ::5] = vectors[0, 0], vectors[1, 0]
    vectors[:, 7] = 0
    if not_finite:
        vectors[:, 0] = np.nan
        vectors[:, 1, 3] = np.inf if dtype == "float32" else np.nan  # float16 has none as written
    ids = [f"{number}-{row}" for number in range(FILES) for row in range(ROWS)]
    write_output(folder, vectors.reshape(-1, WIDTH), ids, FILES, dtype, output_format)


def settings_of(output):
    return json.loads((output / "run.json").read_text())["vectors"]


@pytest.fixture(scope="module")
def output_of(tmp_path_factory):
    """The output of a type of numbers and a format, written when it is first asked for."""

    @cache
    def output(*kind):
        folder = tmp_path_factory.mktemp("output")
        write_equal(folder, *kind)
        return folder

    return output


def cosines(wide, query):
    lengths = np.sqrt((wide * wide).sum(axis=1))
    return (wide * query).sum(axis=1) / np.maximum(lengths, np.finfo(np.float32).tiny)


PLAIN = {
    "cosine": cosines,
    "dot": lambda wide, query: (wide * query).sum(axis=1),
    "euclidean": lambda wide, query: -np.sqrt(((wide - query) ** 2).sum(axis=1)),
    "manhattan": lambda wide, query: -np.abs(wide - query).sum(axis=1),
}


@pytest.mark.parametrize(
    ("kind", "similarity"),
    [
        *(((dtype, "parquet"), "cosine") for dtype in OUTPUT_DTYPES),
        (("int8", "jsonl"), "cosine"),
        *product(
            [(dtype, "parquet") for dtype in ("float32", "int8", "ubinary")],
            ("dot", "euclidean", "manhattan"),
        ),
    ],
)
@pytest.mark.parametrize(("count", "k"), [(1, 40), (7, 1), (7, 1100)])
def test_hits_are_those_of_a_plain_computation(output_of, kind, similarity, count, k):
    output = output_of(*kind)
    settings = settings_of(output) | {"similarity": similarity}
    ids, vectors = bert_embed.read(output)
    queries = 3 * np.random.default_rng(8).standard_normal((count, WIDTH), np.float32)
    queries[0] = vectors[10]  # of many equal ones
    if similarity == "cosine":
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found = nearest(str(output), settings, queries, k)
    assert len(found) == count
    for query, hits in zip(queries, found, strict=True):
        scores = PLAIN[similarity](vectors.astype(np.float64), query)
        best = np.argsort(-scores, kind="stable")[:k]
        assert [hit.id for hit in hits] == [ids[row] for row in best]
        assert [hit.score for hit in hits] == scores[best].tolist()
        files = [f"embeddings/part-{row // ROWS:07d}-00000" for row in best.tolist()]
        assert [hit.file.split(".")[0] for hit in hits] == files


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("k", [1, 40])
def test_a_vector_that_is_not_finite_takes_no_hits_place(tmp_path, dtype, k, caplog):
    write_equal(tmp_path, dtype, "parquet", not_finite=True)
    vectors = next(iter(bert_embed.read_batches(tmp_path)))[1]
    query = vectors[10] / np.linalg.norm(vectors[10])
    [hits] = nearest(str(tmp_path), settings_of(tmp_path), query[None], k)
    assert len(hits) == k
    assert hits[0].score == pytest.approx(1, abs=1e-3)
    assert {hit.id.partition("-")[2] for hit in hits}.isdisjoint({"0", "1"})
    assert "part-0000000-00000.parquet holds 2 vectors with NaN or infinity" in caplog.text


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("similarity", "powers"), [("cosine", (-30, 31)), ("dot", (-3, 30)), ("euclidean", (-3, 30))]
)
def test_vectors_whose_squares_float32_cannot_hold_are_hits(tmp_path, similarity, powers):
    random = np.random.default_rng(4)
    vectors = random.standard_normal((600, 12)) * 10.0 ** random.integers(*powers, (600, 1))
    output = write_output(tmp_path / "output", vectors.astype(np.float32), files=2)
    ids, vectors = bert_embed.read(output)
    queries = np.stack([random.standard_normal(12), np.zeros(12)]).astype(np.float32)
    if similarity == "cosine":
        queries = queries[:1] / np.linalg.norm(queries[0])
    settings = settings_of(output) | {"similarity": similarity}
    for k in (1, 9, 400):
        found = nearest(str(output), settings, queries, k)
        for query, hits in zip(queries.astype(np.float64), found, strict=True):
            scores = PLAIN[similarity](vectors.astype(np.float64), query)
            wanted = np.argsort(-scores, kind="stable")[:k]
            assert [hit.id for hit in hits] == [ids[row] for row in wanted.tolist()]


SIZES = (2000, 0, 700)
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
    files = [sparse_rows(number, rows, 60) for number, rows in enumerate(SIZES)]
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
    files = [multi_rows(number, rows, 9) for number, rows in enumerate(SIZES)]
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
