"""Finds the centroids of a sample of vectors by spherical k-means.

The seeds are those of k-means++ (Arthur and Vassilvitskii, 2007), with 1 - cosine, which is half
the squared distance of unit vectors; Lloyd's rounds follow (Dhillon and Modha, 2001).
"""

import math

import numpy as np

MOST_BY_DEFAULT = 4096  # clusters; more cost more in the assignment than they save among pairs
_PER_CLUSTER = 64  # vectors of the sample
_MOST_SAMPLE = 1 << 18  # vectors: 384 MiB at 384 numbers
_PER_SEED = 8  # vectors among which seeds are chosen: each seed takes a pass over them
_ROUNDS = 20
_SETTLED = 0.001  # share of the sample that still changes its cluster
_PRODUCTS = 1 << 22  # float32 numbers of a matrix product, 16 MiB


def default_clusters(vectors: int) -> int:
    """Returns the square root of the number of vectors, rounded up, at most 4,096.

    With it the products with centroids cost about as much as those within clusters.
    """
    return max(1, min(math.isqrt(max(vectors - 1, 0)) + 1, MOST_BY_DEFAULT))


def sample_share(vectors: int, n_clusters: int) -> float:
    """Returns the share of the vectors from which centroids are computed.

    >>> sample_share(1000, 32), sample_share(1_000_000, 1000)
    (1.0, 0.064)
    """
    wanted = max(min(_PER_CLUSTER * n_clusters, _MOST_SAMPLE), n_clusters)
    return min(1.0, wanted / max(vectors, 1))


def in_sample(rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Returns which rows are in a sample, bool `[rows]`; only numbers and seed decide."""
    if share >= 1:
        return np.ones(len(rows), bool)
    # splitmix64, which turns a count into bits that look random
    begin = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = rows.astype(np.uint64) + np.uint64(begin)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))) < np.uint64(int(share * 2**64))


def train(sample: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Computes centroids of a sample, float32 `[clusters, width]` of unit length.

    A cluster that a round leaves without vectors gets the vector that is farthest from its own
    centroid. There are fewer than `n_clusters` where the sample has fewer different vectors.
    """
    generator = np.random.default_rng(seed)
    candidates = sample
    if len(sample) > _PER_SEED * n_clusters:
        chosen = generator.choice(len(sample), _PER_SEED * n_clusters, replace=False)
        candidates = sample[np.sort(chosen)]
    centroids = _seeds(candidates, n_clusters, generator)
    if not len(centroids):
        return centroids
    labels = np.full(len(sample), -1, np.int32)
    for _ in range(_ROUNDS):
        before = labels
        labels, scores = _nearest(sample, centroids)
        if np.count_nonzero(labels != before) <= _SETTLED * len(sample):
            break
        centroids = _means(sample, labels, scores, centroids)
    return centroids


def _seeds(sample: np.ndarray, n_clusters: int, generator: np.random.Generator) -> np.ndarray:
    """Chooses each seed with a chance in proportion to its distance to the nearest one so far."""
    chosen: list[int] = []
    distances = np.ones(len(sample))
    same = np.finfo(np.float32).eps * 8 * sample.shape[1]  # what rounding makes of equal vectors
    while len(chosen) < n_clusters:
        upto = np.cumsum(np.where(distances > same, distances, 0))
        if not len(upto) or upto[-1] == 0:
            break
        row = int(np.searchsorted(upto, generator.random() * upto[-1], side="right"))
        chosen.append(row)
        distances = np.minimum(distances, 1 - sample @ sample[row])
    return sample[chosen].copy()


def _nearest(sample: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels = np.empty(len(sample), np.int32)
    scores = np.empty(len(sample), np.float32)
    rows = product_rows(len(centroids))
    for at in range(0, len(sample), rows):
        products = sample[at : at + rows] @ centroids.T
        best = products.argmax(axis=1)
        labels[at : at + rows] = best
        scores[at : at + rows] = products[np.arange(len(best)), best]
    return labels, scores


def product_rows(columns: int) -> int:
    """Returns the rows of a matrix product with so many columns, such that it is 16 MiB or less."""
    return max(1, min(8192, _PRODUCTS // max(columns, 1)))


def _means(
    sample: np.ndarray, labels: np.ndarray, scores: np.ndarray, centroids: np.ndarray
) -> np.ndarray:
    sums = np.zeros(centroids.shape)
    rows = product_rows(sample.shape[1])
    for at in range(0, len(sample), rows):
        labels_here = labels[at : at + rows]
        order = np.argsort(labels_here, kind="stable")
        present, first = np.unique(labels_here[order], return_index=True)
        wide = sample[at : at + rows][order].astype(np.float64)
        sums[present] += np.add.reduceat(wide, first, axis=0)
    lengths = np.sqrt((sums * sums).sum(axis=1))
    filled = lengths > 0
    means = centroids.copy()
    means[filled] = (sums[filled] / lengths[filled, None]).astype(np.float32)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
    if len(empty):
        farthest = np.argsort(scores, kind="stable")[: len(empty)]
        means[empty[: len(farthest)]] = sample[farthest]
    return means
