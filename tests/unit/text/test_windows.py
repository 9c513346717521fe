"""Windows and words: every token is covered, and seen from where it has most around it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.settings import WORD_POOLINGS
from bert_embed.text.documents import merge_tokens
from bert_embed.text.windows import build_windows, widest_context
from tests.support.rounding import UNIT_ROUNDOFF

CLS, SEP = 101, 102


def texts_of(lengths, prompt_tokens=0):
    """Documents whose tokens are 1000 * document + place, behind a prompt of 1, 2, …"""
    prompt = range(1, prompt_tokens + 1)
    rows = [[*prompt, *range(1000 * n, 1000 * n + length)] for n, length in enumerate(lengths, 1)]
    ids = np.array([each for row in rows for each in row], np.int32)
    return ids, np.cumsum([0, *map(len, rows)])


def plain_windows(lengths, longest, overlap):
    """Spans of each document, one by one."""
    spans = []
    for length in lengths:
        start, own = 0, []
        while True:
            own.append((start, min(start + longest, length)))
            if start + longest >= length:
                break
            start += longest - overlap
        spans.append(own)
    return spans


@given(
    lengths=st.lists(st.integers(1, 60), max_size=6),
    longest=st.integers(2, 20),
    prompt_tokens=st.integers(0, 3),
    data=st.data(),
)
def test_windows_cover_each_text_as_asked(lengths, longest, prompt_tokens, data):
    overlap = data.draw(st.integers(0, longest - 1))
    ids, splits = texts_of(lengths, prompt_tokens)
    rows, windows = build_windows(
        ids, splits, longest + prompt_tokens + 2, CLS, SEP, overlap, prompt_tokens
    )
    wanted = plain_windows(lengths, longest, overlap)
    assert np.diff(windows.splits).tolist() == [len(own) for own in wanted]
    flat = [[n, *span] for n, own in enumerate(wanted) for span in own]
    found = np.stack([windows.document, windows.first, windows.first + windows.count], axis=1)
    assert found.tolist() == flat
    for (n, start, stop), (a, b) in zip(flat, pairwise(rows.row_splits), strict=True):
        text = range(1000 * (n + 1) + start, 1000 * (n + 1) + stop)
        wanted = [CLS, *range(1, prompt_tokens + 1), *text, SEP]
        assert rows.input_ids[a:b].tolist() == wanted


def plain_max_context(spans, token):
    """`_check_is_max_context` of google-research/bert's run_squad.py, from its description."""
    best = None
    for number, (start, stop) in enumerate(spans):
        if start <= token < stop:
            score = min(token - start, stop - 1 - token) + 0.01 * (stop - start)
            if best is None or score > best[0]:
                best = (score, number)
    return best[1]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    longest=st.integers(2, 20),
    data=st.data(),
)
def test_a_token_is_taken_from_the_window_with_most_around_it(lengths, longest, data):
    overlap = data.draw(st.integers(0, longest - 1))
    ids, splits = texts_of(lengths)
    _, windows = build_windows(ids, splits, longest + 2, CLS, SEP, overlap)
    window, inside = widest_context(windows)
    spans = plain_windows(lengths, longest, overlap)
    wanted = [
        windows.splits[n] + plain_max_context(own, token)
        for n, (length, own) in enumerate(zip(lengths, spans, strict=True))
        for token in range(length)
    ]
    assert window.tolist() == wanted
    tokens = [token for length in lengths for token in range(length)]
    assert (windows.first[window] + inside).tolist() == tokens


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
