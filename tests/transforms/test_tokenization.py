"""Rows: equal ones run once, every document finds its own again."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bert.bundle import read_bundle
from transforms.part import Part
from transforms.sources import DocumentBlock
from transforms.tokenization import distinct_rows, take_rows, text_hashes, token_block


def flat(rows):
    values = np.array([each for row in rows for each in row], np.int32)
    return values, np.cumsum([0, *map(len, rows)])


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40))
def test_distinct_rows_stand_for_exactly_their_equals(rows):
    values, splits = flat(rows)
    first, row = distinct_rows(values, splits, np.arange(len(rows)))
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
    taken, taken_splits = take_rows(values, splits, np.array(sorted(chosen), np.int64))
    expected, expected_splits = flat([rows[each] for each in sorted(chosen)])
    np.testing.assert_array_equal(taken, expected)
    np.testing.assert_array_equal(taken_splits, expected_splits)


def test_a_text_without_tokens_is_rejected_alone(tiny_bundle):
    texts = ["a", "\u200b\x00", "a", "a b c d e f"]
    places = pa.array([f"in.txt:{n}" for n in range(4)])
    block = DocumentBlock(Part(0, 0, records=4), places, texts, places)
    found = token_block(block, read_bundle(tiny_bundle).load_tokenizer(), 5)
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2", "in.txt:3"]
    assert found.row.tolist() == [0, 0, 1]
    assert found.num_tokens.max() <= 5
    assert found.truncated.tolist() == [False, False, True]
    assert [(each.source, each.reason) for each in found.part.rejected] == [
        ("in.txt:1", "no tokens")
    ]


def test_text_hashes_are_the_same_everywhere():
    """XXH3 of UTF-8, as the algorithm's own test vectors have it for the empty input."""
    assert text_hashes([""]).view(np.uint64)[0] == 0x2D06800538D394C2
    assert text_hashes(["a", "b"])[0] != text_hashes(["a", "b"])[1]
