"""Decides which of near vectors are kept, whatever the order in which the pairs were found."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

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
