"""Words and chunks: which tokens make them up, and what becomes of these."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.settings import WORD_POOLINGS
from bert_embed.text.documents import merge_tokens, overlapping_tokens, word_ranges
from tests.support.rounding import UNIT_ROUNDOFF


@given(st.lists(st.lists(st.booleans(), max_size=8), max_size=6))
def test_a_word_is_a_piece_and_what_goes_on_with_it(documents):
    flags = np.array([flag for document in documents for flag in document], bool)
    splits = np.cumsum([0, *map(len, documents)])
    word_splits, first, last = word_ranges(flags, splits)
    wanted = []
    for document, begin in zip(documents, splits, strict=False):
        own = []
        for place, continues in enumerate(document):
            if continues and own:
                own[-1][1] += 1
            else:
                own.append([begin + place, begin + place + 1])
        wanted.append(own)
    assert np.diff(word_splits).tolist() == [len(own) for own in wanted]
    assert np.stack([first, last], 1).tolist() == [word for own in wanted for word in own]


def stretches(most):
    return st.lists(
        st.tuples(st.integers(0, most), st.integers(0, most)).map(lambda ab: (min(ab), max(ab))),
        max_size=6,
    )


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=8), stretches(20)), max_size=4),
)
def test_a_range_of_characters_has_the_tokens_that_overlap_it(documents):
    """Tokens of 0 to 3 characters with a gap behind each; every range may take any of them."""
    starts, stops, wanted = [], [], []
    for lengths, own in documents:
        at, tokens = 0, []
        for length in lengths:
            tokens.append((at, at + length + 1))
            at += length + 2
        offset = len(starts)
        starts += [token[0] for token in tokens]
        stops += [token[1] for token in tokens]
        wanted += [
            [offset + n for n, (a, b) in enumerate(tokens) if a < stop and b > start]
            for start, stop in own
            if stop > start
        ]
    ranges_of = [[one for one in own if one[1] > one[0]] for _, own in documents]
    flat = np.array([one for own in ranges_of for one in own], np.int64).reshape(-1, 2)
    tokens = np.array(starts, np.int64), np.array(stops, np.int64)
    counts = [len(lengths) for lengths, _ in documents], map(len, ranges_of)
    splits = [np.cumsum([0, *some]) for some in counts]
    first, last = overlapping_tokens(*tokens, *splits, *flat.T)
    found = [list(range(a, b)) for a, b in zip(first, last, strict=True)]
    assert found == wanted


PLAIN = {
    "mean": lambda tokens: tokens.mean(0),
    "sum": lambda tokens: tokens.sum(0),
    "first": lambda tokens: tokens[0],
    "last": lambda tokens: tokens[-1],
    "max": lambda tokens: tokens.max(0),
}


SOME = np.array([0, 3, 3, 7, 19, 0]), np.array([1, 8, 3, 20, 20, 0])
# Each of 150 tokens begins a unit to each later one: 11,325 units of 570,000 tokens.
MANY = np.triu_indices(150)[0], np.triu_indices(150)[1] + 1


@pytest.mark.parametrize("pooling", WORD_POOLINGS)
@pytest.mark.parametrize(("units", "step"), [(SOME, 1), (MANY, 97)], ids=["some", "many"])
def test_each_pooling_of_a_word_equals_numpy(pooling, units, step):
    """But for the order in which at most all tokens are added up.

    n roundings of partial sums, each of which is at most the sum of absolute values.
    """
    tokens = np.random.default_rng(3).normal(size=(150, 2)).astype(np.float32)
    merged = merge_tokens(tokens, *units, pooling)
    for row in [*range(0, len(merged), step), len(merged) - 1]:
        exact = tokens[units[0][row] : units[1][row]].astype(np.float64)
        wanted = PLAIN[pooling](exact) if len(exact) else np.zeros(2)
        allowed = len(exact) * UNIT_ROUNDOFF["float32"] * np.abs(exact).sum(0)
        assert (np.abs(merged[row] - wanted) <= allowed).all()


def test_no_units_give_no_vectors():
    none = np.empty(0, np.int64)
    assert merge_tokens(np.ones((3, 4), np.float32), none, none, "max").shape == (0, 4)
