"""Finds pairs of near vectors within a cluster, by matrix products of one tile after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bert_embed.vectors import pair_cosines, rounding, unit

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
