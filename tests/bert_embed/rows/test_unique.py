"""Equal rows are found, and no others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.ragged import take_rows
from bert_embed.rows.unique import distinct_rows


def flat(rows):
    values = np.array([each for row in rows for each in row], np.int32)
    return values, np.cumsum([0, *map(len, rows)])


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40))
def test_distinct_rows_stand_for_exactly_their_equals(rows):
    values, splits = flat(rows)
    first, row = distinct_rows(values, splits)
    kinds = [tuple(rows[each]) for each in first]
    assert len(set(kinds)) == len(kinds) == len({tuple(each) for each in rows})
    assert [kinds[each] for each in row] == [tuple(each) for each in rows]
    assert list(first) == sorted(first)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=20),
    st.data(),
)
def test_take_rows_lays_rows_end_to_end(rows, data):
    values, splits = flat(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=len(rows), unique=True))
    at, taken_splits = take_rows(splits, np.array(sorted(chosen), np.int64))
    expected, expected_splits = flat([rows[each] for each in sorted(chosen)])
    np.testing.assert_array_equal(values[at], expected)
    np.testing.assert_array_equal(taken_splits, expected_splits)
