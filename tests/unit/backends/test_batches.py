import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.backends.runner import pad_rows, plan_batches


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


def test_longest_come_first_and_equal_lengths_in_their_order():
    batches = plan_batches(np.array([5, 7, 5, 7, 5]), budget=10_000)
    assert [batch.tolist() for batch in batches] == [[1, 3, 0, 2, 4]]


def test_a_row_over_the_budget_runs_alone():
    batches = plan_batches(np.array([3, 900, 3]), budget=100)
    assert [batch.tolist() for batch in batches] == [[1], [0, 2]]


def test_natural_lengths_are_hardly_padded():
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3, 0.6, 5000), 3, 256).astype(np.int64)
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in plan_batches(lengths, 1024))
    assert 1 - lengths.sum() / padded < 0.03


def test_no_rows_make_no_batch():
    assert plan_batches(np.zeros(0, np.int64), 100) == []


def test_padding_fills_with_zeros_at_the_end():
    values, mask = pad_rows(
        np.arange(1, 7, dtype=np.int32), np.array([0, 2, 2, 6]), np.array([2, 0])
    )
    assert values.tolist() == [[3, 4, 5, 6], [1, 2, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert values.dtype == mask.dtype == np.int32


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
