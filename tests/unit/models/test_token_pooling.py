"""Token pooling beside Ward's definition, in float64."""

import numpy as np
import pytest

from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.multi import pool_tokens, ward_clusters
from bert_embed.models.heads.vectors import MultiVectors


def merged_by_definition(points, clusters):
    """Merges the two clusters that add least to the squared distances from their means."""
    groups = [[number] for number in range(len(points))]

    def increase(one, other):
        apart = points[one].mean(axis=0) - points[other].mean(axis=0)
        return len(one) * len(other) / (len(one) + len(other)) * (apart @ apart)

    while len(groups) > clusters:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]
        a, b = min(pairs, key=lambda pair: increase(groups[pair[0]], groups[pair[1]]))
        groups[a] += groups.pop(b)
    return {frozenset(group) for group in groups}


@pytest.mark.parametrize("clusters", [1, 4, 12, 23, 24])
def test_clusters_are_those_of_wards_definition(clusters):
    points = np.random.default_rng(clusters).normal(size=(24, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    number = ward_clusters(distances, clusters)
    groups = {frozenset(np.flatnonzero(number == one).tolist()) for one in set(number.tolist())}
    assert groups == merged_by_definition(points, clusters)


def test_equal_points_are_merged_first():
    points = np.array([0.0, 7, 0, 7, 0, 30])
    assert ward_clusters(np.abs(points[:, None] - points), 3).tolist() == [0, 1, 0, 1, 0, 2]


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_the_first_vector_stays_and_the_others_are_means_of_similar_ones():
    one, other = np.array([1.0, 0, 0, 0.1]), np.array([0, 1.0, 0, -0.1])
    near = np.array([0, 0, 0.05, 0])
    vectors = unit(np.stack([[0, 0, 1.0, 0], one, other, one + near, other + near]))
    pooled = pool_tokens(MultiVectors(np.array([0, 5]), vectors), 2)
    assert pooled.splits.tolist() == [0, 3]
    means = unit(np.stack([vectors[[1, 3]].mean(axis=0), vectors[[2, 4]].mean(axis=0)]))
    np.testing.assert_allclose(pooled.vectors, [vectors[0], *means], atol=1e-6)


def test_rows_keep_a_vector_of_each_factor_and_depend_on_no_other_row():
    lengths = np.array([0, 1, 2, 3, 40, 9])
    vectors = unit(np.random.default_rng(1).normal(size=(lengths.sum(), 16)))
    documents = MultiVectors(splits_of(lengths), vectors)
    pooled = pool_tokens(documents, 3)
    assert np.diff(pooled.splits).tolist() == [0, 1, 2, 2, 14, 3]
    assert pooled.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(pooled.vectors, axis=1), 1, rtol=1e-6)
    alone = pool_tokens(MultiVectors(np.array([0, 40]), vectors[6:46]), 3)
    assert np.array_equal(alone.vectors, pooled.vectors[pooled.splits[4] : pooled.splits[5]])
    assert pool_tokens(documents, 1) is documents


def test_no_rows_stay_no_rows():
    nothing = MultiVectors(np.zeros(1, np.int64), np.empty((0, 8), np.float32))
    assert pool_tokens(nothing, 2).splits.tolist() == [0]
