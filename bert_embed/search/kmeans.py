"""K-means on cosines.

The seeds are those of k-means++ (Arthur and Vassilvitskii, 2007), with 1 - cosine, which is half
the squared distance of unit vectors; Lloyd's rounds follow (Dhillon and Modha, 2001).
"""

import numpy as np

_PER_SEED = 8  # vectors among which seeds are chosen: each seed takes a pass over them
_ROUNDS = 20
_SETTLED = 0.001  # share of the vectors that still changes its cluster


def train(vectors: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Computes centroids, float32 `[clusters, width]` of unit length, of unit `[rows, width]`.

    A cluster that a round leaves without vectors gets the vector that is farthest from its own
    centroid. There are fewer than `n_clusters` where there are fewer different vectors.
    """
    generator = np.random.default_rng(seed)
    candidates = vectors
    if len(vectors) > _PER_SEED * n_clusters:
        chosen = generator.choice(len(vectors), _PER_SEED * n_clusters, replace=False)
        candidates = vectors[np.sort(chosen)]
    centroids = _seeds(candidates, n_clusters, generator)
    if not len(centroids):
        return centroids
    labels = np.full(len(vectors), -1)
    for _ in range(_ROUNDS):
        before, cosines = labels, vectors @ centroids.T
        labels = cosines.argmax(axis=1)
        if np.count_nonzero(labels != before) <= _SETTLED * len(vectors):
            break
        centroids = _means(vectors, labels, cosines.max(axis=1), centroids)
    return centroids


def _seeds(vectors: np.ndarray, n_clusters: int, generator: "np.random.Generator") -> np.ndarray:
    """Chooses each seed with a chance in proportion to its distance to the nearest one so far."""
    chosen: list[int] = []
    distances = np.ones(len(vectors))
    same = np.finfo(np.float32).eps * 8 * vectors.shape[1]  # what rounding makes of equal vectors
    while len(chosen) < n_clusters:
        upto = np.cumsum(np.where(distances > same, distances, 0))
        if not len(upto) or upto[-1] == 0:
            break
        row = int(np.searchsorted(upto, generator.random() * upto[-1], side="right"))
        chosen.append(row)
        distances = np.minimum(distances, 1 - vectors @ vectors[row])
    return vectors[chosen].copy()


def _means(
    vectors: np.ndarray, labels: np.ndarray, scores: np.ndarray, centroids: np.ndarray
) -> np.ndarray:
    """The centroids of `labels`; `scores` are the cosines of vectors and their old centroids."""
    sums = np.zeros(centroids.shape)
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    sums[present] = np.add.reduceat(vectors[order].astype(np.float64), first, axis=0)
    lengths = np.sqrt((sums * sums).sum(axis=1))
    filled = lengths > 0
    means = centroids.copy()
    means[filled] = (sums[filled] / lengths[filled, None]).astype(np.float32)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
    farthest = np.argsort(scores, kind="stable")[: len(empty)]
    means[empty[: len(farthest)]] = vectors[farthest]
    return means
