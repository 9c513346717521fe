"""Finds pairs of near vectors within a cluster, by matrix products of one tile after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bert_embed.vectors import pair_cosines, rounding, unit

TILE = 8192  # vectors of a tile: 12 MiB at 384 numbers
MOST_NEIGHBOURS = 8  # of a vector in a search; a later search finds the next ones if they matter
EXACT = 1e-12  # what rounding in float64 can take from a cosine
_ROWS = 512  # of a product with a tile, 16 MiB


@dataclass(frozen=True)
class Members:
    """Some vectors of a cluster, those that are rather kept first."""

    rows: np.ndarray  # int64 `[members]`, numbers of rows, in the input's order
    # float64 `[members]`: of two vectors the one with the smaller key is kept; of equal keys the
    # one with the smaller row
    keys: np.ndarray
    vectors: np.ndarray  # `[members, width]`, of any type that float32 holds

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> "Members":
        """Those at some places, or where a mask is true."""
        return Members(self.rows[which], self.keys[which], self.vectors[which])


@dataclass(frozen=True)
class Pairs:
    """Pairs of near vectors; the second of each pair ranks before the first."""

    rows: np.ndarray  # int64 `[pairs]`, the first of each
    keys: np.ndarray  # float64 `[pairs]`, their keys
    others: np.ndarray  # int64 `[pairs]`, the second of each
    other_keys: np.ndarray  # float64 `[pairs]`, their keys
    scores: np.ndarray  # float64 `[pairs]`, cosines

    def __len__(self) -> int:
        return len(self.rows)


def join_pairs(several: Sequence[Pairs]) -> Pairs:
    """All pairs of several."""
    whole, number = np.empty(0, np.int64), np.empty(0)
    rows, others = (
        [whole, *(getattr(pairs, name) for pairs in several)] for name in ("rows", "others")
    )
    keys, other_keys, scores = (
        [number, *(getattr(pairs, name) for pairs in several)]
        for name in ("keys", "other_keys", "scores")
    )
    return Pairs(*map(np.concatenate, (rows, keys, others, other_keys, scores)))


@dataclass(frozen=True)
class Found:
    """The pairs of a cluster."""

    pairs: Pairs  # for each vector the first `MOST_NEIGHBOURS` of those that rank before it
    full: np.ndarray  # int64 `[rows]`, vectors that may have more of them


def find_pairs(
    tiles: int,
    tile: Callable[[int], Members],
    threshold: float,
    wanted: Callable[[np.ndarray], np.ndarray] | None = None,
    left_out: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Found:
    """Finds for each vector of a cluster the near ones that rank before it.

    Products of float32 vectors find the candidates, whose cosines are then computed in float64. So
    neither tiles nor threads change a result.

    Args:
        tiles: Number of tiles.
        tile: Returns a tile by its number; tiles and their members are in the order of ranks.
        threshold: Least cosine of a pair.
        wanted: Says of rows whether to search for what is near them; None wants all.
        left_out: Says of rows whether they are near to nothing; None leaves none out.
    """

    def members_of(number: int) -> Members:
        members = tile(number)
        return members if left_out is None else members.take(~left_out(members.rows))

    pairs: list[Pairs] = []
    full: list[np.ndarray] = [np.empty(0, np.int64)]
    for number in range(tiles):
        members = members_of(number)
        search = _Search(members, threshold, None if wanted is None else wanted(members.rows))
        for earlier in range(number):
            if not search.active.any():  # no vector has room for neighbours
                break
            search.compare(members_of(earlier))
        search.compare_within()
        pairs += search.pairs
        full.append(search.full)
    return Found(join_pairs(pairs), np.concatenate(full))


class _Search:
    """Finds the neighbours of one tile."""

    def __init__(self, members: Members, threshold: float, wanted: np.ndarray | None) -> None:
        self._members, self._threshold = members, threshold
        self._unit = unit(members.vectors)
        self._margin = rounding(members.vectors.shape[1])
        self._counts = np.zeros(len(members), np.int64)
        self._wanted = np.ones(len(members), bool) if wanted is None else wanted
        self.pairs: list[Pairs] = []

    @property
    def active(self) -> np.ndarray:
        """bool `[members]`: those that are wanted and may have more neighbours."""
        return self._wanted & (self._counts < MOST_NEIGHBOURS)

    @property
    def full(self) -> np.ndarray:
        """int64: the rows of those that have as many neighbours as are kept."""
        return self._members.rows[self._counts >= MOST_NEIGHBOURS]

    def compare(self, other: Members) -> None:
        """Adds neighbours from a tile whose members rank before all of this one."""
        scaled = unit(other.vectors)
        active = np.flatnonzero(self.active)
        for at in range(0, len(active), _ROWS):
            some = active[at : at + _ROWS]
            self._add(some, other, self._unit[some] @ scaled.T)

    def compare_within(self) -> None:
        """Adds neighbours from the tile itself."""
        active = np.flatnonzero(self.active)
        for at in range(0, len(active), _ROWS):
            some = active[at : at + _ROWS]
            last = some[-1] + 1
            products = self._unit[some] @ self._unit[:last].T
            products[np.arange(last) >= some[:, None]] = -np.inf
            self._add(some, self._members, products)

    def _add(self, some: np.ndarray, other: Members, products: np.ndarray) -> None:
        near = products >= self._threshold - self._margin
        many = np.flatnonzero(np.count_nonzero(near, axis=1) > MOST_NEIGHBOURS)
        if len(many):  # leave out what follows enough neighbours that no rounding puts in question
            sure = products[many] >= self._threshold + self._margin
            near[many] &= np.cumsum(sure, axis=1, dtype=np.int32) - sure < MOST_NEIGHBOURS
        at, column = np.nonzero(near)
        scores = pair_cosines(self._members.vectors, some[at], other.vectors, column)
        kept = scores >= self._threshold - EXACT
        at, column, scores = at[kept], column[kept], scores[kept]
        place = np.arange(len(at)) - np.searchsorted(at, at)  # in its row, which is in order
        kept = place < MOST_NEIGHBOURS - self._counts[some[at]]
        at, column, scores = some[at[kept]], column[kept], scores[kept]
        np.add.at(self._counts, at, 1)
        mine = self._members
        self.pairs.append(
            Pairs(mine.rows[at], mine.keys[at], other.rows[column], other.keys[column], scores)
        )
