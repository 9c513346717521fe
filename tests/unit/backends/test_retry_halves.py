import numpy as np
import pytest
import tensorflow as tf

from bert_embed.backends.runner import NOT_FINITE, OUT_OF_MEMORY, run_halving

TOO_LARGE = tf.errors.ResourceExhaustedError(None, None, "too large")


@pytest.mark.parametrize(
    ("fails", "failed"),
    [
        (lambda rows: None, {}),
        (lambda rows: MemoryError("one two") if 12 in rows else None, {12: OUT_OF_MEMORY}),
        (lambda rows: TOO_LARGE if 12 in rows else None, {12: OUT_OF_MEMORY}),
        (
            lambda rows: ValueError("one two three") if 12 in rows else None,
            {12: "model error: ValueError"},
        ),
        (lambda rows: MemoryError() if len(rows) > 3 else None, {}),  # halved until it fits
    ],
    ids=["none", "memory", "memory of TensorFlow", "another", "size"],
)
def test_a_bad_row_fails_alone(fails, failed):
    sizes, finished, rows = [], [], np.arange(10, 17)

    def model(some):
        sizes.append(len(some))
        if error := fails(some):
            raise error
        finished.extend(some.tolist())
        return np.ones(len(some), bool)

    done = run_halving(rows, model)
    assert done.failed == failed
    assert sorted(finished) == [row for row in rows if row not in failed]
    assert isinstance(done.error, type(fails([12]))) or not failed
    assert (sizes == [7]) == (fails(rows) is None)


def test_a_row_that_is_not_finite_fails():
    done = run_halving(np.array([5, 6, 7]), lambda rows: rows != 6)
    assert (done.failed, done.error) == ({6: NOT_FINITE}, None)
