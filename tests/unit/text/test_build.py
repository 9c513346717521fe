"""Rows for the model equal what google-research builds one by one, and the tokenizers library."""

import random
from typing import NamedTuple

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.text.documents import (
    NO_TOKEN,
    TokenRows,
    build_pairs,
    build_rows,
    unique_rows,
)
from bert_embed.text.windows import build_windows

CLS, SEP = 101, 102


class PairMarks(NamedTuple):
    """What a tokenizer says of pairs."""

    cls_id: int
    sep_id: int
    separators: int = 1
    of_library: bool = False


def reference_row(
    a: list[int], b: list[int], max_seq_length: int, separators: int = 1
) -> tuple[list[int], list[int]]:
    """Input ids and token type ids of one row, tokens dropped one at a time."""
    a, b = list(a), list(b)
    if b:
        while len(a) + len(b) > max_seq_length - 2 - separators:
            (a if len(a) > len(b) else b).pop()
    else:
        a = a[: max_seq_length - 2]
    ids, types = [CLS, *a, SEP], [0] * (len(a) + 2)
    if b:
        ids += [*[SEP] * (separators - 1), *b, SEP]
        types += [1] * (len(b) + separators)
    return ids, types


def flat(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([token for row in rows for token in row], np.int32)
    return ids, np.cumsum([0, *map(len, rows)])


def assert_rows(rows, ids, types) -> None:
    for values, expected in ((rows.input_ids, ids), (rows.token_type_ids, types)):
        wanted, splits = flat(expected)
        np.testing.assert_array_equal(values, wanted)
        np.testing.assert_array_equal(rows.row_splits, splits)


@pytest.mark.parametrize(
    ("max_seq_length", "separators"),
    [(3, 1), (4, 1), (5, 1), (8, 1), (16, 1), (33, 1), (4, 2), (5, 2), (16, 2)],
)
def test_pairs_are_cut_as_the_reference_cuts_them(max_seq_length, separators):
    draw = random.Random(max_seq_length)
    pairs = [
        [[draw.randrange(1000, 30_000) for _ in range(draw.randrange(25))] for _ in range(2)]
        for _ in range(2000)
    ]
    first, second = ([pair[side] for pair in pairs] for side in range(2))
    rows = build_pairs(flat(first), flat(second), max_seq_length, PairMarks(CLS, SEP, separators))
    expected = [reference_row(a, b, max_seq_length, separators) for a, b in pairs]
    assert_rows(rows, *zip(*expected, strict=True))
    whole = [len(reference_row(a, b, 99, separators)[0]) for a, b in pairs]
    assert rows.truncated.tolist() == (np.diff(rows.row_splits) < whole).tolist()


@pytest.mark.parametrize("max_seq_length", [4, 5, 8, 11, 34])
def test_pairs_of_the_library_are_cut_as_it_cuts_them(max_seq_length):
    draw = random.Random(max_seq_length)
    vocab = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, **{str(number): number for number in range(3, 9)}}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    pairs = [
        [[draw.randrange(3, 9) for _ in range(draw.randrange(30))] for _ in range(2)]
        for _ in range(1000)
    ]
    texts = [tuple(" ".join(map(str, text)) for text in pair) for pair in pairs]
    library.enable_truncation(max_seq_length)
    expected = library.encode_batch(texts)
    first, second = ([pair[side] for pair in pairs] for side in range(2))
    every = np.ones(len(pairs), bool)  # also those whose second text is empty
    marks = PairMarks(1, 2, of_library=True)
    rows = build_pairs(flat(first), flat(second), max_seq_length, marks, every)
    assert_rows(rows, [row.ids for row in expected], [row.type_ids for row in expected])
    assert rows.truncated.tolist() == [bool(row.overflowing) for row in expected]


@pytest.mark.parametrize(("length", "separators"), [(2, 1), (3, 2)])
def test_rows_without_room_for_a_pair_are_refused(length, separators):
    with pytest.raises(ValueError, match=f"must leave room for a pair, got {length}"):
        build_pairs(flat([[1]]), flat([[2]]), length, PairMarks(CLS, SEP, separators))


def test_rows_of_a_model_without_special_tokens_are_texts_alone():
    rows = build_rows(np.array([7, 8, 9]), np.array([0, 1, 1, 3]), 1, NO_TOKEN, NO_TOKEN)
    assert rows.input_ids.tolist() == [7, 8]
    assert rows.row_splits.tolist() == [0, 1, 1, 2]
    assert rows.truncated.tolist() == [False, False, True]
    texts = (np.array([7, 8, 9, 5]), np.array([0, 4]))
    rows, windows = build_windows(*texts, 3, NO_TOKEN, NO_TOKEN, overlap=1)
    assert rows.input_ids.tolist() == [7, 8, 9, 9, 5]
    assert windows.count.tolist() == [3, 2]
    second, marks = flat([[6]]), PairMarks(NO_TOKEN, NO_TOKEN, separators=0)
    pairs = build_pairs(texts, second, 3, marks)
    assert pairs.input_ids.tolist() == [7, 8, 6]


def listed(rows):
    return [tuple(part.tolist()) for part in np.split(rows.input_ids, rows.row_splits[1:-1])]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=40))
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
