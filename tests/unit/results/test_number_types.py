"""Each output type is what others know by its name, and each vector is rounded for itself."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from bert_embed.results.names import OUTPUT_DTYPES, restored, stored, stored_type, stored_width


def vectors(most):
    numbers = st.floats(-most, most, width=32)
    return arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=20), elements=numbers)


@given(vectors(65504))
def test_float16_rounds_as_numpy(given):
    found = stored(given, "float16").values
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, given.astype(np.float16))


@given(vectors(2.0**127))
def test_bfloat16_holds_the_bits_of_ml_dtypes(given):
    found = stored(given, "bfloat16")
    assert found.values.dtype == np.uint16
    rounded = given.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.values, rounded.view(np.uint16))
    back = restored(found.values, None, "bfloat16", given.shape[1])
    np.testing.assert_array_equal(back, rounded.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_go_to_the_even_number_and_no_number_becomes_infinite(dtype):
    step = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    largest = {"float16": 65504.0, "bfloat16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)}
    extreme = np.finfo(np.float32).max
    halves = [1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2.0**-20]
    values = stored(np.array([[*halves, extreme, -extreme]], np.float32), dtype).values
    expected = [[1, 1 + 2 * step, 1 + step, largest[dtype], -largest[dtype]]]
    assert restored(values, None, dtype, 5).tolist() == expected


def test_every_float16_comes_back_as_it_was():
    """Also those that others wrote, which may be infinite or no number."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[None]
    wide = every.astype(np.float32)
    np.testing.assert_array_equal(restored(every, None, "float16", 0), wide)


@given(vectors(2.0**100))
def test_int8_is_within_half_a_step_of_the_scale(given):
    given = np.where(np.abs(given) < 2.0**-100, np.float32(0), given)
    found = stored(given, "int8")
    assert found.values.dtype == np.int8
    assert np.abs(found.values.astype(int)).max() <= 127
    np.testing.assert_array_equal(found.scale, np.abs(given).max(axis=1) / np.float32(127))
    back = restored(found.values, found.scale, "int8", given.shape[1])
    half = found.scale[:, None].astype(np.float64) / 2
    assert (np.abs(back.astype(np.float64) - given) <= half * (1 + 1e-4)).all()


def test_int8_uses_its_whole_range_and_knows_zero():
    found = stored(np.array([[2.54, -1.27, 0.01], [0, 0, 0]], np.float32), "int8")
    assert found.values.tolist() == [[127, -64, 0], [0, 0, 0]]
    np.testing.assert_allclose(found.scale, [0.02, 0], rtol=1e-6)
    assert restored(found.values, found.scale, "int8", 3)[1].tolist() == [0, 0, 0]
    smallest = np.full((1, 2), np.finfo(np.float32).smallest_subnormal)
    assert stored(smallest, "int8").values.tolist() == [[0, 0]]


def test_what_has_no_scale_or_no_type_is_refused():
    with pytest.raises(ValueError, match="require their column scale"):
        restored(np.zeros((1, 2), np.int8), None, "int8", 2)
    with pytest.raises(ValueError, match=r"output_dtype must be one of float32, .*, got 'fp8'"):
        stored(np.zeros((1, 1), np.float32), "fp8")


@given(vectors(10.0))
def test_ubinary_equals_the_rule_of_sentence_transformers(given):
    """Its `quantize_embeddings`: packbits over what is above 0; widths there are whole bytes."""
    given = np.tile(given, (1, 8))
    found = stored(given, "ubinary").values
    np.testing.assert_array_equal(found, np.packbits(given > 0).reshape(len(given), -1))
    back = restored(found, None, "ubinary", given.shape[1])
    np.testing.assert_array_equal(back, np.where(given > 0, 1, -1))


def test_ubinary_fills_the_last_byte_with_zeros():
    values = stored(np.array([[1, -1, 0, 1, 1, 1, 1, 1, 1, -1]], np.float32), "ubinary").values
    assert values.tolist() == [[0b10011111, 0b10000000]]
    back = restored(values, None, "ubinary", 10)
    assert back.tolist() == [[1, -1, -1, 1, 1, 1, 1, 1, 1, -1]]


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
@given(given=vectors(1e4))
def test_a_row_alone_equals_the_row_in_a_batch(dtype, given):
    kept = given.copy()
    together = stored(given, dtype)
    np.testing.assert_array_equal(given, kept)
    assert together.values.dtype == stored_type(dtype)
    assert together.values.shape == (len(given), stored_width(dtype, given.shape[1]))
    for row in range(len(given)):
        alone = stored(given[row : row + 1], dtype)
        np.testing.assert_array_equal(alone.values[0], together.values[row])
        if dtype == "int8":
            assert alone.scale[0] == together.scale[row]
    none = stored(np.empty((0, 9), np.float32), dtype)
    assert restored(none.values, none.scale, dtype, 9).shape == (0, 9)
