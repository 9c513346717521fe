"""Compares rankings of documents: overlap, rank correlation, measures of relevance, intervals."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

FIRST = (1, 10, 100)  # of how many neighbours the overlap is measured
DEPTH = 100  # documents of a ranking that count
_GAIN_DEPTH = 10  # of nDCG
_RESAMPLES = 2000
_LEVEL = 0.95
_LEAST = 2  # queries of which an interval can be told


@dataclass(frozen=True)
class Estimate:
    """A mean over queries, and its 95% confidence interval."""

    mean: float
    low: float | None  # None of fewer than two queries, as `high`
    high: float | None
    queries: int  # over how many


def overlap(one: Sequence[str], other: Sequence[str], first: int) -> float:
    """The share of the first documents of two rankings that both have.

    The longer of the two counts as the whole where both have fewer than `first`; 1 if both are
    empty.

    >>> overlap(["a", "b", "c"], ["b", "d", "a"], 2)
    0.5
    """
    longest = max(len(one[:first]), len(other[:first]))
    return len({*one[:first]} & {*other[:first]}) / longest if longest else 1.0


def rank_correlation(one: Sequence[str], other: Sequence[str]) -> float:
    """Spearman's rho of the ranks that two rankings give to the documents of either.

    A document that a ranking lacks ranks behind all that it has, tied with the others it lacks, as
    in Fagin, Kumar and Sivakumar, "Comparing top k lists" (2003), and ties share their mean rank.
    1 is the same order; rankings with nothing in common are below 0. Of fewer than two documents
    it is 1.

    >>> rank_correlation(["a", "b", "c"], ["a", "c", "b"])
    0.5
    """
    documents = list(dict.fromkeys([*one, *other]))
    if len(documents) < 2 or list(one) == list(other):
        return 1.0
    first, second = (_ranks(ranking, documents) for ranking in (one, other))
    first, second = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else 0.0


def _ranks(ranking: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    places = {document: rank for rank, document in enumerate(ranking, 1)}
    behind = (len(ranking) + 1 + len(documents)) / 2  # the mean rank of those that it lacks
    return np.array([places.get(document, behind) for document in documents], np.float64)


def ndcg(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """nDCG of the first 10 documents with gains of 0 and 1 (Järvelin and Kekäläinen, 2002).

    The discount of rank r is 1 / log2(r + 1), as trec_eval's `ndcg_cut`.

    >>> round(ndcg(["a", "b", "c"], {"b", "z"}), 4)
    0.3869
    """
    gains = [1 / math.log2(rank + 1) for rank in range(1, _GAIN_DEPTH + 1)]
    got = sum(gain for gain, one in zip(gains, ranking, strict=False) if one in relevant)
    return got / sum(gains[: len(relevant)])


def recall(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """The share of the relevant documents that are among the first 100, as trec_eval's `recall`."""
    return len({*ranking[:DEPTH]} & {*relevant}) / len(relevant)


def estimates(values: np.ndarray, seed: int) -> list[Estimate]:
    """The means of float64 `[queries, figures]`, with 95% percentile bootstrap intervals.

    Queries are drawn again with replacement, 2,000 times, for all figures at once, so that the
    interval of a difference of two figures is a paired one (Efron and Tibshirani, "An Introduction
    to the Bootstrap", 1993, chapter 13; Sakai, SIGIR 2006, for retrieval).
    """
    queries, means = len(values), values.mean(axis=0).tolist()
    if queries < _LEAST:
        return [Estimate(mean, None, None, queries) for mean in means]
    draw = np.random.default_rng(seed)
    resampled = [values[draw.integers(0, queries, queries)].mean(axis=0) for _ in range(_RESAMPLES)]
    low, high = np.quantile(resampled, ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2), axis=0).tolist()
    return [Estimate(*figures, queries) for figures in zip(means, low, high, strict=True)]
