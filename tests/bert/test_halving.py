import numpy as np
import pytest

from bert.halving import NOT_FINITE, OUT_OF_MEMORY, run_halving


def squares(rows):
    return np.stack([rows, rows * rows], axis=1).astype(np.float32)


def test_rows_that_work_are_called_once():
    calls = []
    done = run_halving(np.arange(7), 2, lambda rows: (calls.append(len(rows)), squares(rows))[1])
    assert calls == [7]
    assert done.failed == {}
    np.testing.assert_array_equal(done.vectors, squares(np.arange(7)))


@pytest.mark.parametrize(
    ("error", "reason"),
    [(MemoryError, OUT_OF_MEMORY), (ArithmeticError, "model error: ArithmeticError")],
)
def test_a_bad_row_fails_alone(error, reason):
    def call(rows):
        if 12 in rows:
            raise error("one two three")
        return squares(rows)

    rows = np.array([10, 11, 12, 13, 14])
    done = run_halving(rows, 2, call)
    assert done.failed == {2: reason}
    assert isinstance(done.error, error)
    good = np.array([0, 1, 3, 4])
    np.testing.assert_array_equal(done.vectors[good], squares(rows[good]))
    assert not done.vectors[2].any()


def test_a_batch_too_large_for_memory_is_halved_until_it_fits():
    sizes = []

    def call(rows):
        sizes.append(len(rows))
        if len(rows) > 3:
            raise MemoryError
        return squares(rows)

    done = run_halving(np.arange(10), 2, call)
    assert done.failed == {}
    assert sum(size for size in sizes if size <= 3) == 10
    np.testing.assert_array_equal(done.vectors, squares(np.arange(10)))


def test_tensorflow_out_of_memory_is_known_by_its_name():
    import tensorflow as tf

    def call(rows):
        raise tf.errors.ResourceExhaustedError(None, None, "too large")

    assert run_halving(np.arange(1), 2, call).failed == {0: OUT_OF_MEMORY}


def test_a_vector_that_is_not_finite_fails_and_is_zero():
    def call(rows):
        return np.where(rows[:, None] == 1, np.nan, squares(rows)).astype(np.float32)

    done = run_halving(np.arange(3), 2, call)
    assert done.failed == {1: NOT_FINITE}
    np.testing.assert_array_equal(done.vectors, [[0, 0], [0, 0], [2, 4]])
