"""Merges similar vectors of a document's tokens, so that fewer of them are stored."""

import numpy as np

from bert_embed.heads.vectors import MultiVectors
from bert_embed.ragged import splits_of
from bert_embed.vectors import unit_length

_PROTECTED = 1  # first tokens, such as [CLS], that stay as they are


def pool_tokens(documents: MultiVectors, factor: int) -> MultiVectors:
    """Keeps one vector of `factor` in each row: the first, then means of clusters, of unit length.

    The others are clustered by Ward's method on `1 - cosine`, as HierarchicalTokenPooling of
    sentence-transformers does. Clusters are in the order of their first tokens. Vectors are
    float32 `[tokens, dim]` of unit length; a row depends on no other.
    """
    if factor == 1:
        return documents
    rows = [
        _pooled(vectors, factor) for vectors in np.split(documents.vectors, documents.splits[1:-1])
    ]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))[: len(documents.splits) - 1]
    return MultiVectors(splits_of(lengths), np.concatenate(rows))


def _pooled(vectors: np.ndarray, factor: int) -> np.ndarray:
    first, others = vectors[:_PROTECTED], vectors[_PROTECTED:]
    clusters = max(len(others) // factor, 1)
    if clusters >= len(others):
        return vectors
    # float64, so that no order of summation decides which tokens are the nearest.
    distances = np.clip(1 - np.vecdot(others[:, None], others[None], dtype=np.float64), 0, 2)
    number = ward_clusters(distances, clusters)
    members = number[:, None] == np.arange(number.max() + 1)
    means = np.stack([others[of_cluster].mean(axis=0) for of_cluster in members.T])
    return np.concatenate([first, unit_length(means)])


def ward_clusters(distances: np.ndarray, clusters: int) -> np.ndarray:
    """Returns the cluster of each point, int64 `[points]`, numbered by their first points.

    `distances` are float64 `[points, points]`, symmetric. Ward's method merges the two nearest
    clusters, of equally near ones the first, until there are so many. Each of a cluster's
    distances follows from those of its parts, by the formula of Lance and Williams.

    >>> points = np.array([0.0, 5.0, 0.5, 9.0])
    >>> ward_clusters(np.abs(points[:, None] - points), 3).tolist()
    [0, 1, 0, 2]
    """
    count = len(distances)
    squares = distances * distances
    np.fill_diagonal(squares, np.inf)
    sizes, number = np.ones(count), np.arange(count)
    nearest = squares.argmin(axis=1)
    least = squares[number, nearest]
    for _ in range(count - clusters):
        one = int(least.argmin())
        one, other = sorted((one, int(nearest[one])))
        total = sizes + (sizes[one] + sizes[other])
        merged = (sizes + sizes[one]) * squares[one] + (sizes + sizes[other]) * squares[other]
        with np.errstate(invalid="ignore"):  # infinity where a cluster is merged already, or itself
            merged = (merged - sizes * squares[one, other]) / total
        merged[[one, other]] = np.inf
        sizes[one] += sizes[other]
        squares[one], squares[:, one] = merged, merged
        squares[other], squares[:, other] = np.inf, np.inf
        number[number == other] = one
        # Rows whose nearest was merged look anew; to others the new cluster may be nearer.
        rows = np.flatnonzero((nearest == one) | (nearest == other))
        rows = np.append(rows, (one, other))
        nearest[rows] = squares[rows].argmin(axis=1)
        least[rows] = squares[rows, nearest[rows]]
        nearer = merged < least
        nearest[nearer], least[nearer] = one, merged[nearer]
    return np.unique(number, return_inverse=True)[1]
