"""Describes vectors of every kind: their health, their clusters, by a sample of them."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from bert_embed.base.arrays import FINE, conditions, cosines, pair_cosines, unit

_SEED_OF_PAIRS = 20_000
_PAIRS = 20_000
_BINS = 40
_ALIKE = 0.7  # mean cosine of random pairs above which vectors hardly tell texts apart
_MANY_EQUAL = 0.1
_FEW = 10  # vectors, which are alike by chance, and of which cosines tell nothing


@dataclass(frozen=True)
class Finding:
    """One fact about the vectors."""

    name: str  # what was looked at
    value: str  # what was found, for people
    normal: str  # what is normal, in one sentence
    healthy: bool  # whether it is


def usable_rows(vectors: np.ndarray) -> np.ndarray:
    """int64 `[rows]`: the numbers of the vectors that are finite and not zero."""
    return np.flatnonzero(conditions(vectors) == FINE)


def health(vectors: np.ndarray, repeated: int | None) -> dict[str, Any]:
    """What the report says of float32 `[rows, width]`, with a histogram of cosines."""
    usable = vectors[usable_rows(vectors)]
    cosines = random_cosines(usable)
    bad = int((~np.isfinite(vectors)).any(axis=1).sum())
    zero = len(vectors) - len(usable) - bad
    rows = np.ascontiguousarray(vectors)  # of which some are equal to earlier ones, bit for bit
    equal = len(rows) - len({xxhash.xxh3_64_intdigest(row) for row in rows})
    findings = [_broken(bad, zero)]
    if len(cosines):
        findings += [_cosines(cosines, len(usable)), _equal(equal, len(vectors), repeated)]
    return {
        "rows": len(vectors),
        "findings": [vars(finding) for finding in findings],
        "cosines": histogram(cosines),
        "mean_cosine": round(float(cosines.mean()), 4) if len(cosines) else None,
        "equal": equal,
        "not_finite": bad,
        "zero": zero,
    }


def random_cosines(vectors: np.ndarray) -> np.ndarray:
    """float64 `[pairs]`: cosines of pairs of different rows, drawn with a fixed seed."""
    if len(vectors) < 2:
        return np.empty(0)
    draw = np.random.default_rng(_SEED_OF_PAIRS)
    left = draw.integers(0, len(vectors), _PAIRS)
    right = (left + draw.integers(1, len(vectors), _PAIRS)) % len(vectors)
    return pair_cosines(vectors, left, vectors, right)


def histogram(values: np.ndarray) -> dict[str, Any]:
    """Counts of values in equal bins, with the ends of the range."""
    if not len(values):
        return {"low": 0, "high": 0, "counts": []}
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6 * max(abs(high), 1e-6):  # no more than rounding
        low, high = low - abs(low) / 100, high + abs(high) / 100
    counts, _ = np.histogram(values, _BINS, (low, high))
    return {"low": round(low, 6), "high": round(high, 6), "counts": counts.tolist()}


def _broken(bad: int, zero: int) -> Finding:
    return Finding(
        "NaN and zero vectors",
        f"{bad:,} not finite, {zero:,} of zeros" if bad or zero else "none",
        "Normal is none. A NaN spoils sums and indexes. The cosine of zeros with any vector is 0 "
        "here, and NaN in most databases.",
        bad == zero == 0,
    )


def _cosines(cosines: np.ndarray, rows: int) -> Finding:
    mean = float(cosines.mean())
    return Finding(
        "Cosine of random pairs",
        f"{mean:.3f} on average",
        "Sentence models give 0 to 0.4 on a mixed corpus; pooled vectors of a plain BERT 0.5 to "
        f"0.8. Above {_ALIKE} scores differ little, and thresholds are hard to set.",
        mean <= _ALIKE or rows < _FEW,
    )


def _equal(count: int, rows: int, repeated: int | None) -> Finding:
    texts = "" if repeated is None else f"; {repeated:,} have the text of an earlier one"
    return Finding(
        "Equal vectors",
        f"{count:,} of {rows:,} ({100 * count / rows:.1f}%) are equal to an earlier one{texts}",
        "As many as there are repeated texts is normal. More means that different texts became "
        "the same tokens: they were cut to the same beginning, differ in case or spaces only, or "
        "hold words that the model does not know.",
        count - (repeated or 0) <= _MANY_EQUAL * rows or rows < _FEW,
    )


_SEED_OF_CLUSTERS = 7
_MOST = 10  # as many as there are colours that can be told apart
_FEWEST_ROWS = 20  # below, groups are chance
_ROUNDS, _TINY = 20, 1e-12
_CENTRAL = 3  # documents that stand for a cluster
_WORDS = 6
_RARER = 1.5  # times as frequent as elsewhere a word is that names a cluster, at least
_WORD = re.compile(r"[^\W\d_]{3,}")


def clusters(places: np.ndarray) -> np.ndarray:
    """int64 `[rows]`: the clusters of float32 `[rows, directions]`, the largest is 0.

    K-means on cosines, with the seeds of k-means++ (Arthur and Vassilvitskii, 2007).
    """
    if len(places) < _FEWEST_ROWS:
        return np.zeros(len(places), np.int64)
    count = min(_MOST, max(2, round(math.sqrt(len(places) / 8))))
    scaled, draw = unit(places.astype(np.float64)), np.random.default_rng(_SEED_OF_CLUSTERS)
    centroids = scaled[:1]
    while len(centroids) < count:
        distances = np.maximum(1 - (scaled @ centroids.T).max(axis=1), _TINY)
        row = draw.choice(len(scaled), p=distances / distances.sum())
        centroids = np.vstack([centroids, scaled[row]])
    for _ in range(_ROUNDS):
        labels = (scaled @ centroids.T).argmax(axis=1)
        centroids = unit(np.stack([scaled[labels == at].sum(axis=0) for at in range(count)]))
    rank = np.empty(count, np.int64)
    rank[np.argsort(-np.bincount(labels, minlength=count), kind="stable")] = np.arange(count)
    return rank[labels]


def describe(
    places: np.ndarray, of: np.ndarray, texts: Sequence[str | None] | None
) -> list[dict[str, Any]]:
    """For each cluster its size, the rows nearest to its middle, and its words, of given texts."""
    words = [_WORD.findall((text or "").lower()) for text in texts or ()]
    everywhere = Counter(word for of_text in words for word in of_text)
    rows, clusters = [], int(of.max(initial=-1)) + 1
    for number in range(clusters):
        members = np.flatnonzero(of == number)
        [middle] = unit(places[members].mean(axis=0, keepdims=True))
        near = members[np.argsort(-cosines(places[members], middle), kind="stable")[:_CENTRAL]]
        row: dict[str, Any] = {"size": len(members), "central": near.tolist()}
        if texts is not None:
            counts = Counter(word for at in members.tolist() for word in words[at])
            row["words"] = _telling(counts, everywhere, clusters)
        rows.append(row)
    return rows


def _telling(counts: Counter, everywhere: Counter, clusters: int) -> list[str]:
    """The words that set a cluster apart, by class-based TF-IDF (Grootendorst, 2022)."""
    # In its variants for words that are frequent everywhere: a share's root, the weight of BM25.
    own, total = counts.total(), everywhere.total()
    mean = total / clusters  # words of a cluster

    def weight(word: str) -> float:
        count = everywhere[word]
        return math.sqrt(counts[word] / own) * math.log(1 + (mean - count + 0.5) / (count + 0.5))

    def is_telling(word: str, count: int) -> bool:
        elsewhere = (everywhere[word] - count) / max(total - own, 1)
        return count > 1 and everywhere[word] <= mean and count / own > _RARER * elsewhere

    telling = [word for word, count in counts.items() if is_telling(word, count)]
    return sorted(telling, key=lambda word: (-weight(word), word))[:_WORDS]
