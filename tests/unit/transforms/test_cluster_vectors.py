"""The transform alone, with little memory, in another order, and after a failure."""

from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.test_pipeline import TestPipeline

from bert_embed.results.outputs import vector_names
from bert_embed.transforms.clusters.graph import ClusterVectors
from bert_embed.transforms.clusters.job import (
    ClusterFolder,
    ClusterInput,
    ClusterJob,
    ClusterRecord,
    VectorFile,
)
from tests.support.outputs import clustered_vectors, write_output

ROWS, WIDTH = 2000, 16
RECORD = ClusterRecord(
    command="dedup",
    run="this",
    status="running",
    started="2026-11-22T00:00:00+00:00",
    input=ClusterInput("in", "made-by-hand"),
    options={},
    versions={},
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    vectors = clustered_vectors(ROWS, width=WIDTH, groups=12)
    return write_output(tmp_path_factory.mktemp("source"), vectors)


@pytest.fixture(scope="module")
def job(source, tmp_path_factory):
    """Low enough a threshold that many vectors have more neighbours than a search lists."""
    output = str(tmp_path_factory.mktemp("job") / "out")
    vectors = {"shape": [WIDTH], "output_dtype": "float32", "id_type": "string"}
    return ClusterJob(str(source), vectors, output, ROWS, 9, threshold=0.85, n_nearest=3)


def run(job, backwards=False):
    files = [VectorFile(*each, job.source) for each in enumerate(vector_names(job.source))]
    job.folder.prepare()
    with TestPipeline(runner="FnApiRunner") as pipeline:
        created = pipeline | beam.Create(files[::-1] if backwards else files)
        _ = created | ClusterVectors(job, RECORD)
    return results(job)


def results(job):
    tables = {
        kind: pq.read_table(f"{job.output}/{kind}").to_pylist()
        for kind in ("clusters", "duplicates")
    }
    return tables, np.load(ClusterFolder(job.output).centroids)


@pytest.fixture(scope="module")
def whole(job):
    return run(job)


def assert_same(found, wanted):
    assert found[0] == wanted[0]
    assert np.array_equal(found[1], wanted[1])


def test_the_chosen_threshold_takes_several_searches(job, whole):
    record = ClusterFolder(job.output).record
    with open(record) as file:
        assert '"searches": 1,' not in file.read()


def test_kept_documents_are_no_pair_and_removed_ones_have_one(source, whole):
    table = pq.read_table(source / "embeddings")
    ids = table["id"].to_pylist()
    vectors = np.stack(table["embedding"].to_pylist()).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    at = {each: row for row, each in enumerate(ids)}
    removed = {row["id"]: row for row in whole[0]["duplicates"]}
    assert len(removed) > ROWS // 4
    for row in removed.values():
        assert row["kept_id"] not in removed
        cosine = vectors[at[row["id"]]] @ vectors[at[row["kept_id"]]]
        assert row["score"] == pytest.approx(cosine, abs=1e-9)
        assert cosine >= 0.85 - 1e-9
    kept = np.array([at[each] for each in ids if each not in removed])
    near = np.triu(vectors[kept] @ vectors[kept].T >= 0.85, 1).sum()
    all_near = np.triu(vectors @ vectors.T >= 0.85, 1).sum()
    assert near < all_near / 1000  # only pairs across borders that were not checked


@pytest.mark.slow
@pytest.mark.parametrize("memory", [WIDTH * 4 * 64, WIDTH * 4 * 300])
def test_little_memory_gives_the_same(job, whole, tmp_path, memory):
    """Then files have several segments, and clusters are read tile by tile."""
    few = replace(job, output=str(tmp_path / "out"), memory=memory)
    assert_same(run(few, backwards=True), whole)


@pytest.mark.slow
def test_finished_steps_are_not_done_again(job, whole, tmp_path):
    """A job that fails at its end leaves what it found; the next one reads no vector."""
    again = replace(job, output=str(tmp_path / "out"))
    in_the_way = tmp_path / "out" / "duplicates"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    with pytest.raises(Exception, match="duplicates"):
        run(again)
    in_the_way.unlink()
    files = [VectorFile(*each, job.source) for each in enumerate(vector_names(job.source))]
    moved = replace(again, source=str(tmp_path / "moved"))
    with TestPipeline(runner="FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(files) | ClusterVectors(moved, RECORD)
    assert_same(results(again), whole)
    assert not (tmp_path / "out" / "_state").exists()
