"""Batches: every row runs once, in one that fits, and little of them is padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.backends.runner import FixedShapes, pad_rows, padded_to, plan_batches


@given(st.lists(st.integers(1, 600), max_size=300), st.integers(1, 3000))
def test_every_row_runs_once_in_a_batch_that_fits(lengths, budget):
    lengths = np.array(lengths, np.int64)
    batches = plan_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = lengths[batch].max()
        assert len(batch) == 1 or len(batch) * longest <= budget
        full = [at for at in range(1, len(batch)) if at * longest >= 512]
        assert all(lengths[batch[at]] >= 0.9 * longest for at in full)


@given(
    lengths=st.lists(st.integers(1, 300), max_size=200),
    budget=st.integers(1, 3000),
    longest=st.integers(300, 600),
)
def test_every_row_runs_once_and_in_a_shape_of_the_ladder(lengths, budget, longest):
    ladder = FixedShapes(budget, longest)
    batches = ladder.plan(np.array(lengths, np.int64))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[row] for row in batch.rows]
        assert batch.shape in ladder.shapes
        assert max(own) == own[0] <= batch.shape[1]
        assert len(own) <= batch.shape[0]
        assert batch.tokens <= max(budget, batch.shape[1])


def test_longest_come_first_and_equal_lengths_in_their_order():
    for lengths, budget, wanted in (
        ([5, 7, 5, 7, 5], 10_000, [[1, 3, 0, 2, 4]]),
        ([3, 900, 3], 100, [[1], [0, 2]]),  # one over the budget runs alone
    ):
        found = plan_batches(np.array(lengths), budget)
        assert [batch.tolist() for batch in found] == wanted


def test_shapes_are_few_and_the_last_rung_is_what_the_model_takes():
    counts = {longest: len(FixedShapes(16384, longest).shapes) for longest in (512, 256, 128)}
    assert counts == {512: 46, 256: 38, 128: 30}
    assert FixedShapes(16384, 500).lengths[-2:] == [448, 500]
    assert FixedShapes(16384, 4).lengths == [4]
    with pytest.raises(ValueError, match="batch_tokens must be at least 1"):
        FixedShapes(0, 16)


def test_natural_lengths_are_hardly_padded():
    # Lengths of English sentences are near to log-normal; a million tokens are a block.
    lengths = np.random.default_rng(0).lognormal(2.95, 0.5, 48_000).astype(int).clip(4, 256)
    computed = sum(batch.tokens for batch in FixedShapes(16384, 256).plan(lengths))
    assert 1 - lengths.sum() / computed < 0.12
    batches = plan_batches(lengths[:5000], 1024)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in batches)
    assert 1 - lengths[:5000].sum() / padded < 0.03


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.randoms())
def test_padded_rows_are_the_rows_with_zeros_behind(lengths, random):
    splits = np.cumsum([0, *lengths])
    values = np.arange(1, splits[-1] + 1, dtype=np.int32)
    rows = np.array(random.sample(range(len(lengths)), random.randint(1, len(lengths))))
    padded, mask = pad_rows(values, splits, rows)
    longest = max(lengths[row] for row in rows)
    own = [values[splits[row] : splits[row + 1]].tolist() for row in rows]
    assert padded.tolist() == [row + [0] * (longest - len(row)) for row in own]
    assert mask.tolist() == [[1] * len(row) + [0] * (longest - len(row)) for row in own]
    assert padded.dtype == mask.dtype == np.int32


def test_a_batch_is_filled_with_zeros_behind_rows_and_with_its_first_row():
    found = padded_to(np.array([[1, 2], [3, 0]], np.int32), (3, 4))
    np.testing.assert_array_equal(found, [[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 0, 0]])
