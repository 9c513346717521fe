"""Keys against plain dicts, and the graph over several buckets against the same."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.run_record import DuplicateIds
from bert_embed.transforms.increments.compare import CompareKeys
from bert_embed.transforms.increments.keys import (
    EarlierKeys,
    InputKeys,
    add_duplicates,
    already_embedded,
    duplicates,
    in_buckets,
    removed_ids,
)
from bert_embed.transforms.increments.read_keys import KeySettings
from bert_embed.transforms.plan.cut import plan_blocks
from bert_embed.transforms.plan.listing import input_files
from bert_embed.transforms.read.jsonl import Columns
from bert_embed.transforms.records.documents import id_hashes
from bert_embed.transforms.records.skip import places, rows_of_part
from tests.support.beam_runs import collect

DOCUMENTS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3), st.booleans()))
EARLIER = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 3), st.integers(0, 2)))


def input_of(documents):
    """Documents, those marked as rejected without a place."""
    place = [n if good else ~n for n, (_, _, good) in enumerate(documents)]
    return InputKeys(
        id_hashes([document for document, _, _ in documents]),
        np.array([text for _, text, _ in documents], np.int64),
        np.zeros(len(documents), np.int64),
        np.array(place, np.int64),
    )


def earlier_of(rows):
    return EarlierKeys(
        id_hashes([document for document, _, _ in rows]),
        np.array([text for _, text, _ in rows], np.int64),
        np.array([output for _, _, output in rows], np.int32),
        np.arange(len(rows), dtype=np.int32),
    )


@given(DOCUMENTS, EARLIER)
def test_what_is_known_has_its_text_in_the_last_output_with_its_id(documents, rows):
    last = {}
    for document, text, output in sorted(rows, key=lambda row: row[2]):
        at, texts = last.get(document, (output, set()))
        last[document] = (output, texts | {text} if at == output else {text})
    expected = [
        good and text in last.get(document, (0, set()))[1] for document, text, good in documents
    ]
    assert already_embedded(input_of(documents), earlier_of(rows)).tolist() == expected


@given(DOCUMENTS, EARLIER)
def test_vanished_ids_are_listed_once_where_they_stood_first(documents, rows):
    gone = {document for document, _, _ in rows} - {document for document, _, _ in documents}
    found = removed_ids(input_of(documents), earlier_of(rows))
    first = {
        document: min((output, n) for n, (each, _, output) in enumerate(rows) if each == document)
        for document in gone
    }
    assert sorted(zip(found.output.tolist(), found.file.tolist(), strict=True)) == sorted(
        first.values()
    )


@given(DOCUMENTS, st.integers(1, 50))
def test_duplicates_are_counted_whatever_the_buckets(documents, buckets):
    counted = Counter(document for document, _, _ in documents)
    twice = {document: count for document, count in counted.items() if count > 1}
    parts = [keys for _, keys in in_buckets(input_of(documents), buckets)]
    assert sum(map(len, parts)) == len(documents)
    found = add_duplicates([duplicates(each, 3) for each in parts], 3)
    assert (found.ids, found.surplus) == (len(twice), sum(twice.values()) - len(twice))
    assert len(found.examples) == min(3, len(twice))
    shown = [documents[max(place, ~place)][0] for _, place in found.examples]
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(twice)
    for document, (_, place) in zip(shown, found.examples, strict=True):
        good = any(is_good for each, _, is_good in documents if each == document)
        assert (place >= 0) == good


def test_places_of_other_parts_are_left_out():
    found = np.concatenate([places(0, 3), places(2, 2), places(70_000, 1)])
    assert rows_of_part(found, 0).tolist() == [0, 1, 2]
    assert rows_of_part(found, 1).tolist() == []
    assert rows_of_part(found, 2).tolist() == [0, 1]
    assert rows_of_part(found, 70_000).tolist() == [0]


def test_ids_of_rejected_records_count(tmp_path):
    """Two rejected ones, one beside a document, one alone; each is shown by its id."""
    rows = [("twice", " "), ("mixed", "red"), ("alone", " "), ("mixed", " "), ("twice", " ")]
    lines = [json.dumps({"id": each, "text": text}) for each, text in rows]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    specs = list(plan_blocks(input_files([str(tmp_path / "in.jsonl")]), 2000))
    settings = KeySettings(
        (), True, False, 3, str(tmp_path / "out"), "run", Columns(id="id"), 2, 2000
    )
    ((facts,),) = collect(tmp_path, specs, _Facts(settings))
    found = facts["duplicate_ids"]
    assert (found.ids, found.surplus) == (2, 2)
    assert sorted(found.examples) == ["mixed", "twice"]


@pytest.mark.parametrize("buckets", [1, 13])
def test_duplicates_of_a_corpus_are_counted_in_any_number_of_buckets(tmp_path, buckets):
    """Over several blocks, so that the two of a pair come from different readers."""
    ids = [f"d{n % 300}" for n in range(500)] + ["d7"]
    lines = [json.dumps({"id": each, "text": "red river"}) for each in ids]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    specs = list(plan_blocks(input_files([str(tmp_path / "in.jsonl")]), 2000))
    assert len(specs) > 5
    settings = KeySettings(
        (), True, False, buckets, str(tmp_path / "out"), "run", Columns(id="id"), 1000, 2000
    )
    (facts,) = collect(tmp_path, specs, _Facts(settings))
    examples = [f"d{n}" for n in range(5)]
    assert facts == [{"duplicate_ids": DuplicateIds(200, 201, tuple(examples))}]


class _Facts(CompareKeys):
    def expand(self, specs):
        return super().expand(specs)["facts"]
