"""Assigns vectors to the clusters of their nearest centroids."""

from dataclasses import dataclass

import numpy as np

from bert_embed.clusters.kmeans import product_rows
from bert_embed.vectors import pair_cosines, rounding, unit

MOST_CLUSTERS = 16384  # their distances to each other then take 1 GiB


@dataclass(frozen=True)
class Assigned:
    """The clusters of vectors."""

    cluster: np.ndarray  # int32 `[rows]`, the cluster of the nearest centroid
    distance: np.ndarray  # float32 `[rows]`, 1 - cosine of the vector and that centroid
    # int32 `[rows, others]`, further clusters in which to compare a vector, nearest border first,
    # then -1
    visits: np.ndarray
    beyond: np.ndarray  # bool `[rows]`, whether still more clusters may hold a vector within reach


class Assigner:
    """Assigns vectors to clusters; equal vectors always get the same one.

    A vector visits a cluster if the border between that cluster and its own is within `reach`: only
    then can a vector there be so near.
    """

    def __init__(self, centroids: np.ndarray, reach: float = 0.0, n_nearest: int = 1) -> None:
        """Prepares centroids, float32 `[clusters, width]` of unit length; none for no vectors."""
        self._centroids = centroids
        self._reach, self._others = reach, max(0, min(n_nearest, len(centroids)) - 1)
        self._margin = rounding(centroids.shape[1])
        self._factors = _inverse_distances(centroids) if self._others else np.empty((0, 0))

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return len(self._centroids)

    def __call__(self, vectors: np.ndarray) -> Assigned:
        """Assigns float32 `[rows, width]`, all of which have a direction."""
        if not len(vectors):
            none = np.empty(0, np.int32)
            visits = np.empty((0, self._others), np.int32)
            return Assigned(none, np.empty(0, np.float32), visits, np.empty(0, bool))
        rows = product_rows(len(self._centroids))
        scaled = unit(vectors)
        parts = [
            self._assign_rows(vectors[at : at + rows], scaled[at : at + rows])
            for at in range(0, len(vectors), rows)
        ]
        cluster, distance, visits, beyond = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return Assigned(cluster, distance, visits, beyond)

    def _assign_rows(self, vectors: np.ndarray, scaled: np.ndarray) -> tuple[np.ndarray, ...]:
        products = scaled @ self._centroids.T
        cluster = self._nearest(products, vectors)
        cosines = pair_cosines(vectors, np.arange(len(vectors)), self._centroids, cluster)
        distance = np.maximum(1 - cosines, 0).astype(np.float32)
        visits = np.full((len(vectors), self._others), -1, np.int32)
        beyond = np.zeros(len(vectors), bool)
        if self._others:
            self._add_visits(products, cluster, visits, beyond)
        return cluster.astype(np.int32), distance, visits, beyond

    def _nearest(self, products: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Returns the nearest centroid of those in question, so that rounding decides nothing."""
        cluster = products.argmax(axis=1)
        limits = products[np.arange(len(products)), cluster] - self._margin
        near = products >= limits[:, None]
        unclear = np.flatnonzero(np.count_nonzero(near, axis=1) > 1)
        rows, columns = np.nonzero(near[unclear])
        cosines = pair_cosines(vectors, unclear[rows], self._centroids, columns)
        order = np.lexsort((columns, -cosines, rows))
        first = np.searchsorted(rows, np.arange(len(unclear)))
        cluster[unclear] = columns[order[first]]
        return cluster

    def _add_visits(
        self, products: np.ndarray, cluster: np.ndarray, visits: np.ndarray, beyond: np.ndarray
    ) -> None:
        """Fills `visits` and `beyond` by the distances to the borders with other clusters."""
        nearest_centroids = np.arange(len(products)), cluster
        gaps = (products[nearest_centroids][:, None] - products) * self._factors[cluster]
        gaps[nearest_centroids] = np.inf
        within = np.count_nonzero(gaps <= self._reach + self._margin, axis=1)
        rows = np.flatnonzero(within)
        if not len(rows):
            return
        few = min(self._others, gaps.shape[1] - 1)
        nearest = np.argpartition(gaps[rows], few - 1, axis=1)[:, :few]
        distances = np.take_along_axis(gaps[rows], nearest, axis=1)
        order = np.lexsort((nearest, distances), axis=1)
        nearest = np.take_along_axis(nearest, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
        visits[rows] = np.where(distances <= self._reach + self._margin, nearest, -1)
        beyond[rows] = within[rows] > self._others


def _inverse_distances(centroids: np.ndarray) -> np.ndarray:
    """float32 `[clusters, clusters]`, 0 where two centroids are the same."""
    squares = centroids @ centroids.T
    np.multiply(squares, -2, out=squares)
    squares += 2
    lengths = np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
