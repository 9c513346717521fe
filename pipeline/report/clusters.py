"""Groups vectors by k-means, and says what each cluster is about."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

_SEED = 7
_MOST = 10  # as many as there are colours that can be told apart
_FEWEST_ROWS = 20  # below, groups are chance
_ROUNDS = 25
_CENTRAL = 3  # documents that stand for a cluster
_WORDS = 6
_WORD = re.compile(r"[^\W\d_]{3,}")


def clusters(places: np.ndarray) -> np.ndarray:
    """int64 `[rows]`: the cluster of each row, the largest cluster first; the same every time.

    Args:
        places: float32 `[rows, directions]`.
    """
    if len(places) < _FEWEST_ROWS:
        return np.zeros(len(places), np.int64)
    count = min(_MOST, max(2, round(math.sqrt(len(places) / 8))))
    centres = _first_centres(places, count)
    of = np.full(len(places), -1)
    for _ in range(_ROUNDS):
        nearest = _distances(places, centres).argmin(axis=1)
        if (nearest == of).all():
            break
        of = nearest
        for number in range(count):
            if (own := of == number).any():
                centres[number] = places[own].mean(axis=0)
    sizes = np.bincount(of, minlength=count)
    rank = np.empty(count, np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(count)
    return rank[of]


def _first_centres(places: np.ndarray, count: int) -> np.ndarray:
    """Rows that are far from each other (k-means++), with a fixed seed."""
    draw = np.random.default_rng(_SEED)
    chosen = [int(draw.integers(len(places)))]
    distance = _distances(places, places[chosen])[:, 0]
    for _ in range(count - 1):
        sums = np.cumsum(distance, dtype=np.float64)
        at = int(np.searchsorted(sums, draw.random() * sums[-1]))
        chosen.append(min(at, len(places) - 1))
        distance = np.minimum(distance, _distances(places, places[chosen[-1:]])[:, 0])
    return places[chosen].copy()


def _distances(places: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """float32 `[rows, centres]`, squared."""
    squares = np.vecdot(places, places)[:, None] + np.vecdot(centres, centres)
    return np.maximum(squares - 2 * (places @ centres.T), 0)


def describe(
    places: np.ndarray, of: np.ndarray, texts: Sequence[str | None] | None
) -> list[dict[str, Any]]:
    """For each cluster its size, the rows nearest to its middle, and its words if texts are given.

    Args:
        places: float32 `[rows, directions]`.
        of: int64 `[rows]`, their clusters.
        texts: Their texts; None where they must not be shown.
    """
    words = None if texts is None else [set(map(str.lower, _WORD.findall(t or ""))) for t in texts]
    everywhere = Counter(word for some in words or () for word in some)
    found = []
    for number in range(int(of.max(initial=-1)) + 1):
        own = np.flatnonzero(of == number)
        middle = places[own].mean(axis=0, keepdims=True)
        near = own[np.argsort(_distances(places[own], middle)[:, 0], kind="stable")[:_CENTRAL]]
        row: dict[str, Any] = {"size": len(own), "central": near.tolist()}
        if words is not None:
            counts = Counter(word for at in own.tolist() for word in words[at])
            row["words"] = _telling(counts, len(own), everywhere, len(places))
        found.append(row)
    return found


def _telling(counts: Counter, own: int, everywhere: Counter, rows: int) -> list[str]:
    """The words that are frequent in a cluster and rarer elsewhere."""

    def weight(item: tuple[str, int]) -> tuple[float, str]:
        word, count = item
        return -count / own * math.log(count / own * rows / everywhere[word] + 1e-9), word

    several = [item for item in counts.items() if item[1] > 1]
    return [word for word, _ in sorted(several, key=weight)[:_WORDS]]
