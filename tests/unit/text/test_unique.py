"""Equal rows are found, and no others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.base.arrays import take_rows
from bert_embed.text.documents import TokenRows, tokenize_documents, unique_rows
from bert_embed.text.tokenizer import Tokenizer


def flat(rows):
    values = np.array([value for row in rows for value in row], np.int32)
    return values, np.cumsum([0, *map(len, rows)])


def listed(rows):
    return [tuple(part.tolist()) for part in np.split(rows.input_ids, rows.row_splits[1:-1])]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=40))
def test_distinct_rows_stand_for_exactly_their_equals(rows):
    values, splits = flat(rows)
    truncated = np.arange(len(rows)) % 2 == 1
    unique, row = unique_rows(TokenRows(values, splits, values % 2, truncated), values)
    kinds = listed(unique)
    assert kinds == list(dict.fromkeys(map(tuple, rows)))
    assert row.dtype == np.int32
    assert [kinds[number] for number in row] == [tuple(values) for values in rows]
    assert unique.token_type_ids.tolist() == (unique.input_ids % 2).tolist()
    assert unique.truncated.tolist() == [rows.index(list(kind)) % 2 == 1 for kind in kinds]


def test_a_key_may_keep_equal_ids_apart():
    values, splits = flat([[1, 2], [1, 2], [1, 2]])
    rows = TokenRows(values, splits, None, np.zeros(3, bool))
    unique, row = unique_rows(rows, np.array([0, 1, 0, 2, 0, 1], np.int32))
    assert (listed(unique), row.tolist()) == ([(1, 2), (1, 2)], [0, 1, 0])


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=20),
    st.data(),
)
def test_take_rows_lays_rows_end_to_end(rows, data):
    values, splits = flat(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=len(rows), unique=True))
    at, taken_splits = take_rows(splits, np.array(sorted(chosen), np.int64))
    expected, expected_splits = flat([rows[number] for number in sorted(chosen)])
    np.testing.assert_array_equal(values[at], expected)
    np.testing.assert_array_equal(taken_splits, expected_splits)


def test_documents_are_taken_in_the_order_that_is_asked_for():
    tokenizer = Tokenizer(["[UNK]", "[CLS]", "[SEP]", "the", "bank", "river"])
    texts = ["the bank", "river", "bank bank the"]
    documents = tokenize_documents(tokenizer, texts)
    for order in ([2, 0, 1], [1], []):
        taken = documents.take(np.array(order, np.int64))
        assert taken.texts == [texts[row] for row in order]
        assert taken.lengths.tolist() == [[2, 1, 3][row] for row in order]
