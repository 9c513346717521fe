"""Clusters and near-duplicates of vectors: k-means, assignment, neighbours, what is kept.

The seeds of k-means are those of k-means++ (Arthur and Vassilvitskii, 2007), with 1 - cosine, which
is half the squared distance of unit vectors; Lloyd's rounds follow (Dhillon and Modha, 2001).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_embed.base.arrays import pair_cosines, rounding, unit

WHICH_TO_KEEP = ("hard", "easy", "random")  # NeMo Curator's names
_KEPT, _REMOVED, _UNDECIDED = 0, 1, 2


def rank_keys(which_to_keep: str, distances: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """The keys, float64 `[rows]`; the smallest is kept first.

    `hard` keeps what is far from its centroid, `easy` what is near it, `random` what has the
    smaller of `chances`, float64 `[rows]`, which are equal for equal ids.
    """
    if which_to_keep == "random":
        return chances
    return distances.astype(np.float64) * (-1 if which_to_keep == "hard" else 1)


@dataclass(frozen=True)
class Decided:
    """What becomes of the vectors of pairs."""

    removed: np.ndarray  # int64 `[removed]`, rows in order
    kept: np.ndarray  # int64 `[removed]`, for each of them the row that is kept instead
    scores: np.ndarray  # float64 `[removed]`, the cosines of both
    # int64 `[undecided]`, rows whose neighbours beyond `MOST_NEIGHBOURS` matter
    undecided: np.ndarray


def decide(pairs: np.ndarray, full: np.ndarray) -> Decided:
    """Removes each vector near a kept one that ranks before it, in the order of ranks.

    So no two kept vectors are a pair. `pairs` are `PAIR` `[pairs]` of any number of clusters;
    `full`, int64, are rows that may have further neighbours.
    """
    rows, first = np.unique(np.concatenate([pairs["row"], pairs["other"]]), return_index=True)
    keys = np.concatenate([pairs["key"], pairs["other_key"]])[first]
    order = np.lexsort((rows, keys))
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.arange(len(rows))
    left = ranks[np.searchsorted(rows, pairs["row"])]
    right = ranks[np.searchsorted(rows, pairs["other"])]
    sort = np.lexsort((right, left))
    open_ended = np.zeros(len(rows), bool)
    open_ended[ranks[np.searchsorted(rows, np.intersect1d(full, rows))]] = True
    states, chosen = _states(left[sort], right[sort], open_ended)
    by_rank = rows[order]
    removed = np.flatnonzero(states == _REMOVED)
    pair = sort[chosen[removed]]
    in_order = np.argsort(by_rank[removed])
    return Decided(
        by_rank[removed][in_order],
        pairs["other"][pair][in_order],
        pairs["score"][pair][in_order],
        np.sort(by_rank[states == _UNDECIDED]),
    )


def _states(
    left: np.ndarray, right: np.ndarray, open_ended: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The state of each rank, and the number of the pair that removes it.

    `left`, int64 `[pairs]`, is in order; `right` has smaller ranks; those that `open_ended`, bool
    `[ranks]`, names may have further pairs.
    """
    states = np.zeros(len(open_ended), np.int8)
    chosen = np.full(len(open_ended), -1, np.int64)
    ranks, first = np.unique(left, return_index=True)
    splits = pairwise([*first.tolist(), len(left)])
    for rank, (start, stop) in zip(ranks.tolist(), splits, strict=True):
        near = states[right[start:stop]]
        at = int(near.argmin())  # the first of the smallest state
        if near[at] == _KEPT:
            states[rank], chosen[rank] = _REMOVED, start + at
        elif open_ended[rank] or near.max() == _UNDECIDED:
            states[rank] = _UNDECIDED
    return states, chosen


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


def _seeds(sample: np.ndarray, n_clusters: int, generator: "np.random.Generator") -> np.ndarray:
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


TILE = 8192  # vectors of a tile: 12 MiB at 384 numbers
MOST_NEIGHBOURS = 8  # of a vector in a search; a later search finds the next ones if they matter
EXACT = 1e-12  # what rounding in float64 can take from a cosine
_ROWS = 512  # of a product with a tile, 16 MiB


# A pair of near vectors: numbers of their rows, the keys by which they rank, and their cosine. The
# other one ranks before the first.
PAIR = np.dtype(
    [("row", "<i8"), ("key", "<f8"), ("other", "<i8"), ("other_key", "<f8"), ("score", "<f8")]
)


def member_type(number: str, width: int) -> np.dtype:
    """A vector of a cluster; of two the smaller key is kept, of equal keys the smaller row."""
    return np.dtype([("row", "<i8"), ("key", "<f8"), ("vector", number, (width,))])


@dataclass(frozen=True)
class NearPairs:
    """The pairs of some clusters."""

    # `PAIR` `[pairs]`: for each vector the first `MOST_NEIGHBOURS` of those that rank before it
    pairs: np.ndarray
    full: np.ndarray  # int64 `[rows]`, vectors that may have more of them


def find_pairs(
    tiles: int,
    tile: Callable[[int], np.ndarray],
    threshold: float,
    wanted: np.ndarray | None = None,
    removed: np.ndarray | None = None,
) -> NearPairs:
    """Finds for each vector of a cluster the ones of cosine `threshold` that rank before it.

    `tile` returns one by its number, `member_type` `[members]`, in the order of ranks. `wanted`,
    int64, are rows to search neighbours for, None for all; `removed` rows that are near to nothing.
    float32 products find candidates, whose cosines are then computed in float64: so neither tiles
    nor threads change a result.
    """

    def members_of(number: int) -> np.ndarray:
        members = tile(number)
        return members if removed is None else members[~np.isin(members["row"], removed)]

    pairs = [np.empty(0, PAIR)]
    full = [np.empty(0, np.int64)]
    for number in range(tiles):
        search = _Search(members_of(number), threshold, wanted)
        for earlier in range(number):
            if not search.active.any():  # no vector has room for neighbours
                break
            search.compare(members_of(earlier))
        search.compare_within()
        pairs += search.pairs
        full.append(search.full)
    return NearPairs(np.concatenate(pairs), np.concatenate(full))


class _Search:
    """Finds the neighbours of one tile."""

    def __init__(self, members: np.ndarray, threshold: float, wanted: np.ndarray | None) -> None:
        self._members, self._threshold = members, threshold
        self._unit = unit(members["vector"])
        self._margin = rounding(self._unit.shape[1])
        self._counts = np.zeros(len(members), np.int64)
        self._wanted = (
            np.ones(len(members), bool) if wanted is None else np.isin(members["row"], wanted)
        )
        self.pairs: list[np.ndarray] = []

    @property
    def active(self) -> np.ndarray:
        """bool `[members]`: those that are wanted and may have more neighbours."""
        return self._wanted & (self._counts < MOST_NEIGHBOURS)

    @property
    def full(self) -> np.ndarray:
        """int64: the rows of those that have as many neighbours as are kept."""
        return self._members["row"][self._counts >= MOST_NEIGHBOURS]

    def compare(self, others: np.ndarray) -> None:
        """Adds neighbours from a tile whose members rank before all of this one."""
        scaled = unit(others["vector"])
        for members in self._active_members():
            self._add(members, others, self._unit[members] @ scaled.T)

    def compare_within(self) -> None:
        """Adds neighbours from the tile itself."""
        for members in self._active_members():
            last = members[-1] + 1
            products = self._unit[members] @ self._unit[:last].T
            products[np.arange(last) >= members[:, None]] = -np.inf
            self._add(members, self._members, products)

    def _active_members(self) -> Iterator[np.ndarray]:
        active = np.flatnonzero(self.active)
        for at in range(0, len(active), _ROWS):
            yield active[at : at + _ROWS]

    def _add(self, members: np.ndarray, others: np.ndarray, products: np.ndarray) -> None:
        near = products >= self._threshold - self._margin
        many = np.flatnonzero(np.count_nonzero(near, axis=1) > MOST_NEIGHBOURS)
        if len(many):  # leave out what follows enough neighbours that no rounding puts in question
            sure = products[many] >= self._threshold + self._margin
            near[many] &= np.cumsum(sure, axis=1, dtype=np.int32) - sure < MOST_NEIGHBOURS
        at, column = np.nonzero(near)
        scores = pair_cosines(self._members["vector"], members[at], others["vector"], column)
        is_near = scores >= self._threshold - EXACT
        at, column, scores = at[is_near], column[is_near], scores[is_near]
        place = np.arange(len(at)) - np.searchsorted(at, at)  # in its row, which is in order
        has_room = place < MOST_NEIGHBOURS - self._counts[members[at]]
        at, column, scores = members[at[has_room]], column[has_room], scores[has_room]
        np.add.at(self._counts, at, 1)
        pairs = np.empty(len(at), PAIR)
        pairs["row"], pairs["key"] = self._members["row"][at], self._members["key"][at]
        pairs["other"], pairs["other_key"] = others["row"][column], others["key"][column]
        pairs["score"] = scores
        self.pairs.append(pairs)
