"""JSON as pandas, jq, MongoDB and scripts write it: every record is read, a wrapper is named."""

import json

import pandas as pd
import pyarrow as pa
import pytest

from bert_embed import InputError
from bert_embed.transforms.read.wrapped import unwrapping
from tests.support.blocks import rejected_of, texts_of

TEXTS = ["the river", 'a "b" {c}', "x\\", "[é], }{", 'back\\\\"', "two\nlines"]
RECORDS = [
    {"id": number, "text": f"{TEXTS[number % len(TEXTS)]} {number}", "n": {"a": [1, {"b": "}"}]}}
    for number in range(24)
]
IDS = [str(each["id"]) for each in RECORDS]
FORMS = {
    "array in a line": json.dumps(RECORDS),
    "array, one record a line": "[\n" + ",\n".join(map(json.dumps, RECORDS)) + "\n]\n",
    "with CRLF": "[\r\n" + ",\r\n".join(map(json.dumps, RECORDS)) + "\r\n]\r\n",
    "with a mark": "\ufeff[" + ",\n".join(map(json.dumps, RECORDS)) + "]",
    "indented array": json.dumps(RECORDS, indent=2, ensure_ascii=False),
    "indented objects": "\n".join(json.dumps(each, indent=4) for each in RECORDS),
    "several in a line": " ".join(map(json.dumps, RECORDS)),
    "commas behind lines": ",\n".join(map(json.dumps, RECORDS)) + ",\n",
    "sequence of RFC 7464": "".join(f"\x1e{json.dumps(each, indent=1)}\n" for each in RECORDS),
    "commas before lines": "[" + "\n, ".join(map(json.dumps, RECORDS)) + "]",
}


@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
@pytest.mark.parametrize("form", FORMS)
def test_objects_need_no_line_of_their_own(read, form, name):
    """In blocks that end within their records; then the first of each form."""
    for limit in (None, 5):
        ids, reasons, found = read(FORMS[form], name, block_bytes=1000, part_docs=7, limit=limit)
        assert (ids, reasons) == (IDS[:limit], [])
        assert texts_of(found) == [each["text"] for each in RECORDS[:limit]]


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_element_that_is_no_object_costs_itself_alone(read, indent, block_bytes):
    others = [5, None, "a, {", ["b", 6], True, 1.5, ""]
    every = [one for pair in zip(RECORDS, others, strict=False) for one in pair]
    text = json.dumps([*every, RECORDS[-1]], indent=indent)
    ids, reasons, _ = read(text, "in.json", block_bytes=block_bytes)
    assert ids == [*IDS[: len(others)], IDS[-1]]
    assert len(reasons) == len(others)


def test_numbers_that_json_does_not_have_are_read(read):
    """Those beyond float64 are infinite, as for Python's json module and pandas."""
    frame = pd.DataFrame({"id": [1, 2, 3], "text": ["a", "b", "c"], "score": [0.5, None, 1]})
    lines = [json.dumps(row) + "\n" for row in frame.to_dict("records")]
    assert "NaN" in lines[1]
    numbers = {"-Infinity": float("-inf"), "1e999": float("inf"), "1e-999": 0.0, "1e100": 1e100}
    numbers["-" + "9" * 400] = float("-inf")
    lines += [f'{{"id": 4, "text": "four", "score": {number}}}\n' for number in numbers]
    lines.append('{"id": 5, "text": NaN, "score": 1}\n')
    lines.append('{"id": 6, "text": "\\ud800", "score": NaN}\n')
    extra = pa.schema([("score", pa.float64())])
    _, _, [block] = read("".join(lines), "in.jsonl", extra=extra)
    assert block.extra["score"].to_pylist() == [0.5, None, 1.0, *numbers.values()]
    assert rejected_of([block]) == [("5", "missing text"), (None, "malformed JSON")]


@pytest.mark.parametrize("text", ["[]", "[]\n", " [\n]\r\n", "\ufeff[ ]"])
@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
def test_an_empty_array_has_no_records(read, text, name):
    assert read(text, name)[:2] == ([], [])


WHOLE = '[\n{"id": 1, "text": "one"},\n{"id": 2, "text": "a [ and {"},\n{"id": 3, "tags": [1]}\n]\n'
ENDS = ["]\n", "\n]", "}\n", ",\n", ": 3", '"tags": [1]', '"text": "a [ and {"', " and"]


@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
@pytest.mark.parametrize("end", ENDS)
def test_an_array_that_is_cut_is_refused(read, end, name):
    """Wherever the file ends: between records, too, where all that is there can be read."""
    with pytest.raises(InputError, match=f"{name} is cut: its JSON array has no end"):
        read(WHOLE[: WHOLE.rindex(end)], name)


def test_the_line_of_a_malformed_record_is_named(read):
    records = [json.dumps({"id": number, "text": "river " * 100}) for number in range(5000)]
    records[4000] += "}"  # three pieces behind the beginning
    with pytest.raises(InputError, match="too many or too few in line 4,002 or before"):
        read("[\n" + ",\n".join(records) + "\n]\n", "in.json")


LINE = FORMS["array in a line"]
OBJECTS = FORMS["indented objects"]
ODD = [
    OBJECTS.replace('"n": {', '"n": {{', 1),
    OBJECTS.replace("\n}\n{", "\n{", 1),
    *(FORMS[form].replace("river 6", 'river" "6') for form in list(FORMS)[1:6]),
]
PAGES = "\n".join(json.dumps(RECORDS[first : first + 6]) for first in range(0, 24, 6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # An object that has no end: all behind it would be one rejected record.
        (FORMS["indented objects"].partition("river 6")[0], "is cut: its JSON object has no end"),
        (LINE.replace('"the river 6"', '"the river 6""', 1), "is cut: its JSON array has no end"),
        (LINE.replace('"the river 6"', '"the river 6""', 1) + "\n", "is cut: its JSON array has"),
        # Quotes and braces too many or too few.
        *((text, "too many") for text in ODD),
        (LINE.replace("the river", 'the" river'), "too many"),
        (LINE.replace("the river 6", 'the "river" 6'), "too many"),
        (PAGES.replace("the river 6", 'the" river 6'), "too many"),
        # Objects without anything between them.
        ("".join(map(json.dumps, RECORDS)), "has JSON objects with nothing between them.* jq"),
        ("".join(json.dumps(each, indent=1) for each in RECORDS), "nothing between them.* jq"),
        (LINE.replace("}, {", "}{"), "nothing between them.* jq"),
    ],
)
def test_damage_that_may_cost_several_records_is_refused(read, text, message):
    with pytest.raises(InputError, match=f"in.json .*{message}"):
        read(text, "in.json")


SEVERAL = '{"id": 1, "text": "one"}\n{"id": 2, "text": "}"}{"id": 3, "text": "three"}\n{"id": 4}{\n'
SPREAD = "\n".join(f'{{ "id": {number}\n, "text": "the bank"\n}}' for number in range(3))
BAD = "malformed JSON"


@pytest.mark.parametrize(
    ("text", "ids", "reasons"),
    [
        (SPREAD, ["0", "1", "2"], []),
        # A malformed first line does not make an indented file.
        ('{"id": 1, "text": "one\n{"id": 2, "text": "two"}\n', ["2"], [BAD]),
        # Files joined without the end of a line.
        (SEVERAL, ["1"], [BAD] * 2),
        # Spark writes no nulls.
        (
            '{"id": 1}\n{"id": 2, "text": "two"}\n{"text": "three"}\n{"id": " ", "text": "four"}',
            ["2"],
            ["missing text", "missing id", "missing id"],
        ),
    ],
    ids=["commas", "first", "joined", "missing"],
)
def test_bad_records_cost_themselves_alone(read, text, ids, reasons):
    assert read(text, "in.json")[:2] == (ids, reasons)


FRAME = pd.DataFrame({"id": ["d0", "d1"], "text": ["the bank", "a river"]})
WRAPPED = [{"text": "a"}, {"text": "b"}]
BY_ROW = ". as $all | (.text | keys_unsorted[]) as $row | $all | map_values(.[$row])"
BY_PLACE = (
    ". as $all | range(.text | length) as $row "
    '| $all | map_values(if type == "array" then .[$row] else . end)'
)
SPLIT = (
    "[.columns[]] as $names | .data[] | [$names, .] | transpose "
    "| map({key: .[0], value: .[1]}) | from_entries"
)
NAMED = [{"name": "id"}, {"name": "text"}]


def written(orient):
    return json.loads(FRAME.to_json(orient=orient))


@pytest.mark.parametrize(
    ("record", "program"),
    [
        (written("columns"), BY_ROW),
        (written("split"), SPLIT),
        # Socrata, Trino and ClickHouse describe each column; others have names of their own.
        (
            {"meta": {"columns": NAMED}, "data": [[1, "a"]]},
            SPLIT.replace(".columns[]", ".meta.columns[].name"),
        ),
        ({"meta": NAMED, "data": [[1, "a"]]}, SPLIT.replace("columns[]", "meta[].name")),
        ({"columns": ["id", "text"], "rows": [[1, "a"]]}, SPLIT.replace("data", "rows")),
        (written("table"), ".data[]"),
        (written("index"), "to_entries[] | {id: .key} + .value"),
        (FRAME.to_dict("list"), BY_PLACE),
        ({"text": ["one text", "two"]}, BY_PLACE),
        ({"ids": [1, 2], "text": ["one text", "a b"], "data": None, "has": ["ids"]}, BY_PLACE),
        ({"features": [{"properties": each} for each in WRAPPED]}, ".features[]"),
        ({"hits": {"total": 2, "hits": [{"_source": each} for each in WRAPPED]}}, ".hits.hits[]"),
        ({"my data": WRAPPED[:1]}, '."my data"[]'),
        (
            {"by id": {f"d{number}": "a text" for number in range(10)}},
            '."by id" | to_entries[] | {id: .key, text: .value}',
        ),
        ({"docs": {"7": WRAPPED[0]}}, ".docs | to_entries[] | {id: .key} + .value"),
    ],
)
def test_the_program_that_unwraps_is_said(record, program):
    assert unwrapping(record, ["text"]) == program


@pytest.mark.parametrize(
    "record",
    [
        {"id": 5, "text": ["of", "words"]},
        {"text": ["words", "alone"]},
        {"id": 5, "text": ["New York", "is", "large"], "tags": ["B", "O", "O"]},
        {"id": 5, "text": "a", "comments": WRAPPED},
        {"id": 5, "body": "the text", "comments": [{"n": 1}, {"n": 2}]},
        {"id": 5, "body": "the text", "tags": ["a"], "parts": [["b"]]},
        {"_id": {"$oid": "5f"}, "_source": WRAPPED[0]},
        {f"d{number}": "a text" for number in range(9)},
        {"id": 5, "meta": {"a": {"b": 1}}, "tags": ["x", "y"]},
        {},
    ],
)
def test_a_record_is_no_wrapper(record):
    assert unwrapping(record, ["text"]) is None


def test_the_text_may_be_a_field_of_an_object():
    rows = [{"row": each} for each in WRAPPED]
    assert unwrapping({"features": [{"name": "id"}] * 9, "rows": rows}, ["row.text"]) == ".rows[]"
    assert unwrapping(rows[0] | {"annotations": rows}, ["row.text"]) is None
