"""Compares rankings of documents: overlap, rank correlation, measures of relevance, intervals."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

FIRST = (1, 10, 100)  # of how many neighbours the overlap is measured
DEPTH = 100  # documents of a ranking that count
_DISCOUNTS = 1 / np.log2(np.arange(2, 12))  # of nDCG's first 10 ranks, as trec_eval's `ndcg_cut`
_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over queries, and its 95% confidence interval."""

    mean: float
    low: float | None  # None of fewer than two queries, as `high`
    high: float | None
    queries: int  # over how many


def agreement(one: Sequence[str], other: Sequence[str]) -> list[float]:
    """The shares of the `FIRST` documents that two rankings have in common; their correlation.

    >>> agreement(["a", "b", "c"], ["b", "d", "a"])[1]
    0.6666666666666666
    """
    few = [({*one[:first]}, {*other[:first]}) for first in FIRST]
    shares = [len(some & others) / max(len(some), len(others), 1) for some, others in few]
    return [*shares, rank_correlation(one, other)]


def rank_correlation(one: Sequence[str], other: Sequence[str]) -> float:
    """Spearman's rho of the ranks that two rankings give to the documents of either.

    A document that a ranking lacks ranks behind all that it has, tied with the others it lacks, as
    in Fagin, Kumar and Sivakumar, "Comparing top k lists" (2003), and ties share their mean rank.
    1 is the same order; rankings with nothing in common are below 0.

    >>> rank_correlation(["a", "b", "c"], ["a", "c", "b"])
    0.5
    """
    if list(one) == list(other):
        return 1.0
    documents = {*one, *other}
    centred = []
    for ranking in (one, other):
        places = {document: rank for rank, document in enumerate(ranking, 1)}
        behind = (len(ranking) + 1 + len(documents)) / 2  # the mean rank of those that it lacks
        ranks = np.array([places.get(document, behind) for document in sorted(documents)])
        centred.append(ranks - ranks.mean())
    first, second = centred
    scale = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / scale if scale else 0.0


def relevance(ranking: Sequence[str], relevant: Collection[str]) -> tuple[float, float]:
    """nDCG@10 with gains of 0 and 1, and recall@100, as trec_eval has them."""
    hits = [document in relevant for document in ranking[:DEPTH]]
    gains = _DISCOUNTS[: len(hits)] @ hits[:10]
    return float(gains / _DISCOUNTS[: len(relevant)].sum()), sum(hits) / len(relevant)


def estimates(values: np.ndarray, seed: int) -> list[Estimate]:
    """The means of float64 `[queries, figures]`, with 95% percentile bootstrap intervals.

    Queries are drawn again with replacement, 2,000 times, for all figures at once, so that the
    interval of a difference of two figures is a paired one (Efron and Tibshirani, "An Introduction
    to the Bootstrap", 1993, chapter 13; Sakai, SIGIR 2006, for retrieval).
    """
    queries, means = len(values), values.mean(axis=0).tolist()
    if queries < 2:
        return [Estimate(mean, None, None, queries) for mean in means]
    draw = np.random.default_rng(seed)
    resampled = [values[draw.integers(0, queries, queries)].mean(axis=0) for _ in range(_RESAMPLES)]
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0).tolist()
    return [Estimate(*figures, queries) for figures in zip(means, low, high, strict=True)]
