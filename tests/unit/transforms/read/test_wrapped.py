"""JSON objects that wrap records, as pandas, Elasticsearch and others write them."""

import json

import pandas as pd
import pytest

from bert_embed.transforms.read.wrapped import unwrapping

FRAME = pd.DataFrame({"id": ["d0", "d1"], "text": ["the bank", "a river"]})
TEXTS = [{"text": "a"}, {"text": "b"}]
BY_ROW = ". as $all | (.text | keys_unsorted[]) as $row | $all | map_values(.[$row])"
BY_PLACE = ". as $all | range(.text | length) as $row | $all | map_values(.[$row])"
SPLIT = (
    ".columns as $names | .data[] | [$names, .] | transpose "
    "| map({key: .[0], value: .[1]}) | from_entries"
)


def written(orient):
    return json.loads(FRAME.to_json(orient=orient))


@pytest.mark.parametrize(
    ("record", "program"),
    [
        (written("columns"), BY_ROW),
        (written("split"), SPLIT),
        (written("table"), ".data[]"),
        (written("index"), "to_entries[] | {id: .key} + .value"),
        (FRAME.to_dict("list"), BY_PLACE),
        ({"text": ["one text", "two"]}, BY_PLACE),
        ({"features": [{"properties": each} for each in TEXTS]}, ".features[]"),
        ({"hits": {"total": 2, "hits": [{"_source": each} for each in TEXTS]}}, ".hits.hits[]"),
        ({"my data": TEXTS[:1]}, '.["my data"][]'),
        ({"docs": {"7": TEXTS[0]}}, ".docs | to_entries[] | {id: .key} + .value"),
    ],
)
def test_the_program_that_unwraps_is_said(record, program):
    assert unwrapping(record, ["text"]) == program


@pytest.mark.parametrize(
    "record",
    [
        {"id": 5, "text": ["of", "words"]},
        {"text": ["words", "alone"]},
        {"id": 5, "text": "a", "comments": TEXTS},
        {"id": 5, "body": "the text", "comments": [{"n": 1}, {"n": 2}]},
        {"_id": {"$oid": "5f"}, "_source": TEXTS[0]},
        {"id": 5, "meta": {"a": {"b": 1}}, "tags": ["x", "y"]},
        {},
    ],
)
def test_a_record_is_no_wrapper(record):
    assert unwrapping(record, ["text"]) is None
