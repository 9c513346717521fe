import numpy as np
import pytest

from bert_embed.backends.runner import NOT_FINITE, OUT_OF_MEMORY, run_halving


class Model:
    """Keeps which rows it was called with; `fails` tells for which it raises."""

    def __init__(self, fails=lambda rows: None):
        self.sizes, self.done, self._fails = [], [], fails

    def __call__(self, rows):
        self.sizes.append(len(rows))
        if error := self._fails(rows):
            raise error
        self.done += rows.tolist()
        return np.ones(len(rows), bool)


def test_rows_that_work_are_called_once():
    model = Model()
    assert run_halving(np.arange(7), model).failed == {}
    assert model.sizes == [7]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(MemoryError, OUT_OF_MEMORY), (ArithmeticError, "model error: ArithmeticError")],
)
def test_a_bad_row_fails_alone(error, reason):
    model = Model(lambda rows: error("one two three") if 12 in rows else None)
    done = run_halving(np.array([10, 11, 12, 13, 14]), model)
    assert done.failed == {12: reason}
    assert isinstance(done.error, error)
    assert sorted(model.done) == [10, 11, 13, 14]


def test_a_batch_too_large_for_memory_is_halved_until_it_fits():
    model = Model(lambda rows: MemoryError() if len(rows) > 3 else None)
    assert run_halving(np.arange(10), model).failed == {}
    assert sorted(model.done) == list(range(10))


def test_tensorflow_out_of_memory_is_known_by_its_name():
    import tensorflow as tf

    model = Model(lambda rows: tf.errors.ResourceExhaustedError(None, None, "too large"))
    assert run_halving(np.arange(1), model).failed == {0: OUT_OF_MEMORY}


def test_a_row_that_is_not_finite_fails():
    done = run_halving(np.array([5, 6, 7]), lambda rows: rows != 6)
    assert done.failed == {6: NOT_FINITE}
    assert done.error is None
