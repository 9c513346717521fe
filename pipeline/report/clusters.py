"""Groups vectors by k-means, and says what each cluster is about."""

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from bert_embed.clusters.kmeans import train
from bert_embed.run_record import Unknown
from bert_embed.transforms.tokenize import script_of
from bert_embed.vectors import cosines, unit

_SEED = 7
_MOST = 10  # as many as there are colours that can be told apart
_FEWEST_ROWS = 20  # below, groups are chance
_CENTRAL = 3  # documents that stand for a cluster
_WORDS = 6
_RARER = 1.5  # times as frequent as elsewhere a word is that names a cluster, at least
_MANY, _OFTEN = 0.02, 0.1  # share of [UNK] in a file, and of a script among them, that tell
_READ = ("Latin", "symbols")  # what every vocabulary has, but for some words
_WORD = re.compile(r"[^\W\d_]{3,}")


def clusters(places: np.ndarray) -> np.ndarray:
    """int64 `[rows]`: the clusters of float32 `[rows, directions]`, the largest is 0."""
    if len(places) < _FEWEST_ROWS:
        return np.zeros(len(places), np.int64)
    count = min(_MOST, max(2, round(math.sqrt(len(places) / 8))))
    scaled = unit(places)
    labels = (scaled @ train(scaled, count, _SEED).T).argmax(axis=1)
    rank = np.empty(count, np.int64)
    rank[np.argsort(-np.bincount(labels, minlength=count), kind="stable")] = np.arange(count)
    return rank[labels]


def unread_scripts(unknown: Unknown) -> list[str]:
    """The scripts whose words a run's model mostly does not know."""
    shares = [unknown.share, *(file.share for file in unknown.files)]
    least = _OFTEN * sum(unknown.scripts.values())
    return [
        name
        for name, count in unknown.scripts.items()
        if max(shares) > _MANY and count >= least and name not in _READ
    ]


def describe(
    places: np.ndarray,
    of: np.ndarray,
    texts: Sequence[str | None] | None,
    unread: Collection[str] = (),
) -> list[dict[str, Any]]:
    """For each cluster its size, the rows nearest to its middle, and its words if texts are given.

    Where most texts are in a script that the model does not read, `unread` names it instead.
    """
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
            row["unread"] = _script_of_most([texts[at] or "" for at in members.tolist()], unread)
        rows.append(row)
    return rows


def _script_of_most(texts: Sequence[str], scripts: Collection[str]) -> str | None:
    """The one of some scripts in which more than half of the texts begin."""
    counts = Counter(map(script_of, texts)) if scripts else Counter()
    script, count = max(counts.items(), key=itemgetter(1), default=("", 0))
    return script if script in scripts and 2 * count > len(texts) else None


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
