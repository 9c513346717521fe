"""Keys against plain dicts."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.base.arrays import text_hashes
from bert_embed.transforms.blocks import places, rows_of_part
from bert_embed.transforms.increments import (
    EarlierKeys,
    InputKeys,
    compared,
    in_buckets,
    last_of_each_id,
)

DOCUMENTS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)))
EARLIER = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 3), st.integers(0, 2)))


def input_of(documents):
    return InputKeys(
        text_hashes([document for document, _ in documents]),
        np.array([text for _, text in documents], np.int64),
        np.zeros(len(documents), np.int64),
        np.arange(len(documents), dtype=np.int64),
    )


def earlier_of(rows):
    return EarlierKeys(
        text_hashes([document for document, _, _ in rows]),
        np.array([text for _, text, _ in rows], np.int64),
        np.array([output for _, _, output in rows], np.int32),
        np.zeros(len(rows), np.int32),
        np.zeros(len(rows), bool),
        pa.array([document for document, _, _ in rows], pa.string()),
    )


@given(DOCUMENTS, EARLIER)
def test_an_id_is_known_if_all_its_texts_are_in_the_last_output_with_it(documents, rows):
    """Readers take an id from one output: with a new text its others are embedded again, too."""
    last = {}
    for document, text, output in sorted(rows, key=lambda row: row[2]):
        at, texts = last.get(document, (output, set()))
        last[document] = (output, texts | {text} if at == output else {text})
    texts_of = {id_: {text for other, text in documents if other == id_} for id_, _ in documents}
    known = {id_ for id_, texts in texts_of.items() if id_ in last and texts <= last[id_][1]}
    expected = [document in known for document, _ in documents]
    skipped, _ = compared(input_of(documents), last_of_each_id(earlier_of(rows)))
    assert skipped.tolist() == expected


@given(DOCUMENTS, st.integers(1, 50))
def test_all_rows_of_an_id_are_in_one_bucket(documents, buckets):
    parts = [keys for _, keys in in_buckets(input_of(documents), buckets)]
    assert sum(map(len, parts)) == len(documents)
    ids = [number for keys in parts for number in set(keys.id_hash.tolist())]
    assert len(ids) == len({document for document, _ in documents})


def test_places_of_other_parts_are_left_out():
    found = np.concatenate([places(0, 3), places(2, 2), places(70_000, 1)])
    assert rows_of_part(found, 0).tolist() == [0, 1, 2]
    assert rows_of_part(found, 1).tolist() == []
    assert rows_of_part(found, 2).tolist() == [0, 1]
    assert rows_of_part(found, 70_000).tolist() == [0]
