"""Figures of rankings equal those of the libraries of the field, and intervals hold the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from bert_embed.search.rankings import agreement, estimates, rank_correlation, relevance

IDS = [f"d{number}" for number in range(12)]
rankings = st.permutations(IDS).flatmap(
    lambda ids: st.integers(1, len(IDS)).map(lambda most: ids[:most])
)


@given(rankings, rankings)
def test_the_rank_correlation_is_that_of_scipy(one, other):
    documents = sorted({*one, *other})
    ranks = [
        [ranking.index(each) if each in ranking else len(IDS) for each in documents]
        for ranking in (one, other)
    ]
    found = rank_correlation(one, other)
    if len(documents) > 1 and len({*ranks[0]}) > 1 and len({*ranks[1]}) > 1:
        assert found == pytest.approx(spearmanr(*ranks).statistic)
    else:
        assert found == (1.0 if one == other else 0.0)


@given(st.permutations(IDS), st.sets(st.sampled_from(IDS), min_size=1))
def test_ndcg_is_that_of_scikit_learn(ranking, relevant):
    gains = np.array([[float(each in relevant) for each in ranking]])
    scores = -np.arange(len(IDS), dtype=float)[None]
    assert relevance(ranking, relevant)[0] == pytest.approx(ndcg_score(gains, scores, k=10))


# nDCG@10 and recall@100, computed by hand from their definitions.
@pytest.mark.parametrize(
    ("ranking", "relevant", "figures"),
    [
        (IDS, {"d1", "d4", "beyond"}, (0.4776, 2 / 3)),
        (IDS, {"d11"}, (0.0, 1.0)),
        ([], {"d0"}, (0.0, 0.0)),
    ],
)
def test_figures_of_relevance_by_hand(ranking, relevant, figures):
    np.testing.assert_allclose(relevance(ranking, relevant), figures, atol=5e-5)


def test_overlap_counts_what_both_have_of_the_longer():
    assert agreement(IDS, IDS[::-1]) == [0.0, 0.8, 1.0, -1.0]
    assert agreement(IDS[:2], IDS[:8])[:3] == [1.0, 0.25, 0.25]
    assert agreement([], IDS)[:3] == [0.0, 0.0, 0.0]


def test_intervals_cover_the_mean_about_as_often_as_they_say():
    draw = np.random.default_rng(5)
    inside = 0
    for number in range(100):
        (found,) = estimates(draw.beta(2, 1, (60, 1)), seed=number)
        inside += found.low <= 2 / 3 <= found.high
    assert 88 <= inside <= 99  # of 95%, with the binomial's spread


def test_estimates_are_paired_seeded_and_honest_about_few_queries():
    values = np.random.default_rng(0).random((50, 1))
    both = np.hstack([values, values + 0.1])
    one, other = estimates(both, seed=1)
    assert estimates(both, seed=1) == [one, other]
    assert other.low - one.low == pytest.approx(0.1)
    assert estimates(values[:1], seed=1)[0].low is None
