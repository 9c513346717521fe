import numpy as np
import pytest

from bert_embed.base.arrays import conditions, unit
from bert_embed.search.clusters import Assigner, in_sample, train
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


def test_a_sample_depends_on_numbers_of_rows_alone():
    rows = np.arange(100_000) + (7 << 32)
    chosen = in_sample(rows, 0.1, 3)
    assert 9_500 < chosen.sum() < 10_500
    assert np.array_equal(in_sample(rows[500:700], 0.1, 3), chosen[500:700])
    assert not np.array_equal(in_sample(rows, 0.1, 4), chosen)
    assert in_sample(rows, 1.0, 3).all()


def test_equal_vectors_get_the_same_cluster_wherever_they_are(sample):
    centroids = train(sample, 40, 0)
    between = unit(centroids[:-1] + centroids[1:])  # as near to one centroid as to another
    some = np.concatenate([between, sample[:300]])
    assigner = Assigner(centroids)
    whole = assigner(some).cluster
    for size in (1, 7, 64):
        parts = [assigner(some[at : at + size]).cluster for at in range(0, len(some), size)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_a_cluster_is_that_of_the_nearest_centroid(sample):
    centroids = train(sample, 30, 0)
    assigned = Assigner(centroids)(sample * 3)
    cosines = sample.astype(float) @ centroids.T.astype(float)
    assert np.array_equal(assigned.cluster, cosines.argmax(axis=1))
    assert np.allclose(assigned.distance, 1 - cosines.max(axis=1), atol=1e-6)


def test_every_pair_within_reach_shares_a_cluster_if_nothing_is_beyond(sample):
    """The border of two clusters is a plane: what is near each other is near it."""
    threshold = 0.9
    assigner = Assigner(train(sample, 60, 0), np.sqrt(2 - 2 * threshold), 60)
    assigned = assigner(sample)
    assert not assigned.beyond.any()
    assert (assigned.visits < 0).any()  # not every cluster is visited
    places = [
        {int(own), *(int(each) for each in others if each >= 0)}
        for own, others in zip(assigned.cluster, assigned.visits, strict=True)
    ]
    left, right = np.nonzero(np.triu(sample @ sample.T >= threshold, 1))
    across = assigned.cluster[left] != assigned.cluster[right]
    assert across.any()
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    assert all(places[a] & places[b] for a, b in pairs)


def test_visits_are_limited_and_what_is_left_out_is_counted(sample):
    assigned = Assigner(train(sample, 20, 0), 0.5, 3)(sample)
    assert assigned.visits.shape == (len(sample), 2)
    assert assigned.beyond.any()


def test_vectors_without_a_direction_are_recognized():
    vectors = np.array([[1, 2], [0, 0], [np.inf, 1], [np.nan, 0], [1e-45, 0]], np.float32)
    assert conditions(vectors).tolist() == [0, 1, 2, 2, 0]
    assert np.allclose(unit(vectors[[0, 4]]), [[0.4472136, 0.8944272], [1, 0]])
