import numpy as np
import pytest

from bert_embed.base.arrays import conditions, unit
from bert_embed.search.kmeans import train
from tests.support.outputs import clustered_vectors


@pytest.fixture(scope="module")
def sample():
    return unit(clustered_vectors(2000, width=16, groups=10))


def test_centroids_are_found_where_vectors_are_dense():
    centres = unit(np.random.default_rng(1).normal(size=(8, 24)).astype(np.float32))
    noise = 0.01 * np.random.default_rng(2).normal(size=(1600, 24))
    centroids = train(unit((np.repeat(centres, 200, axis=0) + noise).astype(np.float32)), 8, 0)
    cosines = centres @ centroids.T
    assert (cosines.max(axis=1) > 0.99).all()
    assert sorted(cosines.argmax(axis=1).tolist()) == list(range(8))


def test_the_same_seed_gives_the_same_centroids(sample):
    assert np.array_equal(train(sample, 12, 5), train(sample, 12, 5))
    assert not np.array_equal(train(sample, 12, 5), train(sample, 12, 6))


def test_centroids_have_unit_length(sample):
    assert np.allclose(np.linalg.norm(train(sample, 12, 0), axis=1), 1)


def test_fewer_different_vectors_than_clusters_give_a_centroid_each():
    three = unit(np.eye(3, 8, dtype=np.float32))
    assert len(train(np.repeat(three, 50, axis=0), 10, 0)) == 3
    assert train(three[:0], 4, 0).shape == (0, 8)


def test_vectors_without_a_direction_are_recognized():
    vectors = np.array([[1, 2], [0, 0], [np.inf, 1], [np.nan, 0], [1e-45, 0]], np.float32)
    assert conditions(vectors).tolist() == [0, 1, 2, 2, 0]
    assert np.allclose(unit(vectors[[0, 4]]), [[0.4472136, 0.8944272], [1, 0]])
