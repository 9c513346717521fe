"""JSON as pandas, jq, MongoDB and hand-written scripts write it: every record is read."""

import gzip
import json
import re

import pandas as pd
import pytest

from bert_embed import InputError
from bert_embed.transforms.listing import list_input
from tests.support.command import record, rejected, rows

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


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_objects_need_no_line_of_their_own(tmp_path, run, suffix):
    """All forms in one run, in blocks that end within their records; then the first of each."""
    files = {f"in/{n}.{suffix}": text for n, text in enumerate(FORMS.values())}
    flags = {"keep_text": True, "block_bytes": 1000, "part_docs": 7}
    output = run(files, **flags)
    found = rows(output)
    assert found["id"] == IDS * len(FORMS)
    assert found["text"] == [each["text"] for each in RECORDS] * len(FORMS)
    assert rejected(output) == []
    assert record(output)["counts"]["records"] == len(RECORDS) * len(FORMS)
    for number, name in enumerate(files):
        limited = run(tmp_path / name, f"limited{number}", **flags, limit=5)
        assert rows(limited)["text"] == found["text"][:5], name


def test_objects_with_nothing_between_them_are_refused(tmp_path):
    (tmp_path / "in.json").write_text("".join(map(json.dumps, RECORDS)))
    with pytest.raises(InputError, match=r"in.json has JSON objects with nothing between them.*jq"):
        list_input([str(tmp_path / "in.json")])


@pytest.mark.parametrize("form", ["array, one record a line", "indented array", "indented objects"])
@pytest.mark.parametrize("damage", ['the" river', "the\n[{river"])
def test_a_string_with_no_end_costs_no_other_record(run, form, damage):
    """Two of them, between which quotes would begin and end strings the other way round."""
    text, bad = FORMS[form], ["0", "18"]
    for number in bad:
        text = text.replace(f'"the river {number}"', f'"{damage} {number}"')
    output = run({"in.json": text}, block_bytes=100, report="false")
    assert rows(output)["id"] == [name for name in IDS if name not in bad]
    assert {each["reason"] for each in rejected(output)} == {"malformed JSON"}


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_element_that_is_no_object_costs_itself_alone(run, indent, block_bytes):
    others = [5, None, "a, {", ["b", 6], True, 1.5, ""]
    every = [one for pair in zip(RECORDS, others, strict=False) for one in pair]
    text = json.dumps([*every, RECORDS[-1]], indent=indent)
    flags = {"block_bytes": block_bytes, "report": "false", "max_rejected": "100%"}
    output = run({"in.json": text}, **flags)
    assert rows(output)["id"] == [*IDS[: len(others)], IDS[-1]]
    assert len(rejected(output)) == len(others)


def test_numbers_that_json_does_not_have_are_read(run):
    """Those beyond float64 are infinite, as for Python's json module and pandas."""
    frame = pd.DataFrame({"id": [1, 2, 3], "text": ["a", "b", "c"], "score": [0.5, None, 1]})
    lines = [json.dumps(row) + "\n" for row in frame.to_dict("records")]
    assert "NaN" in lines[1]
    numbers = {"-Infinity": float("-inf"), "1e999": float("inf"), "1e-999": 0.0, "1e100": 1e100}
    numbers["-" + "9" * 400] = float("-inf")
    lines += [f'{{"id": 4, "text": "four", "score": {number}}}\n' for number in numbers]
    lines.append('{"id": 5, "text": NaN, "score": 1}\n')
    lines.append('{"id": 6, "text": "\\ud800", "score": NaN}\n')
    flags = {"extra_columns": "score:float64", "max_rejected": "100%"}
    output = run({"in.jsonl": "".join(lines)}, **flags)
    assert rows(output)["score"] == [0.5, None, 1.0, *numbers.values()]
    found = {each["id"]: each["reason"] for each in rejected(output)}
    assert found == {"5": "missing text", None: "malformed JSON"}


@pytest.mark.parametrize("text", ["[]", "[]\n", " [\n]\r\n", "\ufeff[ ]"])
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_an_empty_array_has_no_records(run, text, suffix):
    alone = run({f"in/a.{suffix}": text}, "alone")
    assert record(alone)["counts"]["records"] == 0
    output = run({f"in/a.{suffix}": text, "in/b.json": '{"id": 1, "text": "one"}\n'})
    assert rows(output)["id"] == ["1"]
    assert record(output)["counts"]["records"] == 1


WHOLE = '[\n{"id": 1, "text": "one"},\n{"id": 2, "text": "a [ and {"},\n{"id": 3, "tags": [1]}\n]\n'


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
@pytest.mark.parametrize(
    "end", ["]\n", "\n]", "}\n", ",\n", ": 3", '"tags": [1]', '"text": "a ', '"text": "a [ and {"}']
)
def test_an_array_that_is_cut_fails_the_run(tmp_path, run, end, packed):
    """Wherever the file ends: between records, too, where all that is there can be read.

    A file as small is read before any work starts.
    """
    data = WHOLE[: WHOLE.rindex(end) if end != '"text": "a ' else WHOLE.rindex(" and")].encode()
    name = "in.json.gz" if packed is gzip.compress else "in.json"
    message = f"{tmp_path}/{name} is cut: its JSON array has no end"
    run.refused({name: packed(data)}, message)


def test_a_large_array_that_is_cut_fails_the_run(run):
    lines = [json.dumps({"id": number, "text": "the bank " * 20}) for number in range(8_000)]
    run({"in.json": "[\n" + ",\n".join(lines) + ",\n"}, code=1, layers="0")
    assert "in.json is cut: its JSON array has no end" in run.err


@pytest.mark.parametrize(
    ("form", "found", "written"),
    [
        ("indented objects", "river 6", None),  # cut within a string
        ("array in a line", '"the river 6"', '"the river 6""'),
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_an_object_with_no_end_fails_the_run(run, form, found, written, end):
    """All behind it would be one rejected record."""
    text = FORMS[form]
    assert found in text
    text = text[: text.index(found)] if written is None else text.replace(found, written, 1) + end
    kind = "array" if form.startswith("array") else "object"
    run.refused({"in.json": text}, f"in.json is cut: its JSON {kind} has no end")


PAGES = "\n".join(json.dumps(RECORDS[first : first + 6]) for first in range(0, 24, 6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FORMS["array in a line"].replace("the river", 'the" river'), "too many"),  # several quotes
        (FORMS["array in a line"].replace("the river 6", 'the "river" 6'), "too many"),
        (PAGES.replace("the river 6", 'the" river 6'), "too many"),
        ("".join(json.dumps(each, indent=1) for each in RECORDS), "nothing between them.* jq"),
        (FORMS["array in a line"].replace("}, {", "}{"), "nothing between them.* jq"),
    ],
)
def test_damage_that_may_cost_several_records_fails_the_run(run, text, message):
    """Beside a good file, in which it would be one rejected record of many."""
    run({"in/a.json": text, "in/b.jsonl": RECORDS}, code=2)
    assert re.search(f"in/a.json .*{message}", run.err)


@pytest.mark.parametrize(
    ("found", "written"), [('"n": {', '"n": {{'), ("\n}\n{", "\n{"), ("river 6", 'river" "6')]
)
def test_braces_and_quotes_too_many_cost_their_record_alone(run, found, written):
    output = run({"in.json": FORMS["indented objects"].replace(found, written, 1)})
    assert len(rows(output)["id"]) == len(RECORDS) - 1
    assert len(rejected(output)) == 1


SEVERAL = '{"id": 1, "text": "one"}\n{"id": 2, "text": "}"}{"id": 3, "text": "three"}\n{"id": 4}{\n'
SPREAD = "\n".join(f'{{ "id": {number}\n, "text": "the bank"\n}}' for number in range(3))


@pytest.mark.parametrize(
    ("text", "names", "reasons"),
    [
        (SPREAD, ["0", "1", "2"], []),
        # A malformed first line does not make an indented file.
        ('{"id": 1, "text": "one\n{"id": 2, "text": "two"}\n', ["2"], ["malformed JSON"]),
        # Files joined without the end of a line.
        (SEVERAL, ["1"], ["several JSON objects in a line"] * 2),
        # Spark writes no nulls.
        (
            '{"id": 1}\n{"id": 2, "text": "two"}\n{"text": "three"}\n',
            ["2"],
            ["missing text", "missing id"],
        ),
    ],
    ids=["commas", "first", "joined", "missing"],
)
def test_bad_records_cost_themselves_alone(run, text, names, reasons):
    output = run({"in.json": text}, max_rejected="100%")
    assert rows(output)["id"] == names
    assert [each["reason"] for each in rejected(output)] == reasons


@pytest.mark.parametrize("text", ["[[]]", "[null]", "[1, 2]", "[]\n[]"])
def test_an_array_of_no_records_is_refused(run, text):
    run.refused({"in/in.json": text}, "does not begin with JSON lines")
    beside = {"in/in.json": text, "in/a.json": RECORDS}
    if text == "[]\n[]":
        run(beside)
    else:
        run.refused(beside, "in.json does not begin with JSON lines")
