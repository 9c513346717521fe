import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.backends.runner import FixedShapes, padded_to


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


def test_there_are_few_shapes():
    assert len(FixedShapes(16384, 512).shapes) == 46
    assert len(FixedShapes(16384, 256).shapes) == 38
    assert len(FixedShapes(16384, 128).shapes) == 30


def test_the_last_rung_is_what_the_model_takes():
    assert FixedShapes(16384, 500).lengths[-2:] == [448, 500]
    assert FixedShapes(16384, 4).lengths == [4]


def test_little_is_filled_on_text_of_natural_lengths():
    # Lengths of English sentences are near to log-normal; a million tokens are a block.
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(2.95, 0.5, 48_000).astype(int), 4, 256)
    ladder = FixedShapes(16384, 256)
    computed = sum(batch.tokens for batch in ladder.plan(lengths))
    assert 1 - lengths.sum() / computed < 0.12


def test_a_batch_is_filled_with_zeros_behind_rows_and_with_its_first_row():
    found = padded_to(np.array([[1, 2], [3, 0]], np.int32), (3, 4))
    np.testing.assert_array_equal(found, [[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 0, 0]])


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch_tokens must be at least 1"):
        FixedShapes(0, 16)
