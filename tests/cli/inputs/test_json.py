"""JSON as pandas, jq, MongoDB and hand-written scripts write it: every record is read."""

import gzip
import json
import re

import pandas as pd
import pytest

from bert_embed import InputError
from bert_embed.transforms.listing import list_input
from tests.support.command import embed, record, rejected, rows, write_json

TEXTS = ["the river", 'a "b" {c}', "x\\", "[é], }{", 'back\\\\"', "two\nlines"]
RECORDS = [
    {"id": number, "text": f"{TEXTS[number % len(TEXTS)]} {number}", "n": {"a": [1, {"b": "}"}]}}
    for number in range(24)
]
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
@pytest.mark.parametrize("packed", [False, True])
def test_objects_need_no_line_of_their_own(tmp_path, tiny_bundle, packed):
    """All forms in one run, in blocks that end within their records; then the first of each."""
    (tmp_path / "in").mkdir()
    paths = []
    for number, text in enumerate(FORMS.values()):
        paths.append(tmp_path / "in" / (f"{number}.json.gz" if packed else f"{number}.json"))
        paths[-1].write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    flags = {"keep_text": True, "block_bytes": 1000, "part_docs": 7}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in", **flags) == 0
    found = rows(tmp_path / "out")
    assert found["id"] == [str(each["id"]) for each in RECORDS] * len(FORMS)
    assert found["text"] == [each["text"] for each in RECORDS] * len(FORMS)
    assert rejected(tmp_path / "out") == []
    assert record(tmp_path / "out")["counts"]["records"] == len(RECORDS) * len(FORMS)
    for path in paths:
        limited = tmp_path / f"limited-{path.name}"
        assert embed(limited, tiny_bundle, path, **flags, limit=5) == 0
        assert rows(limited)["text"] == found["text"][:5], path


def test_objects_with_nothing_between_them_are_refused(tmp_path):
    (tmp_path / "in.json").write_text("".join(map(json.dumps, RECORDS)))
    with pytest.raises(InputError, match=r"in.json has JSON objects with nothing between them.*jq"):
        list_input([str(tmp_path / "in.json")])


def test_a_malformed_first_line_does_not_make_an_indented_file(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "one\n{"id": 2, "text": "two"}\n')
    flags = {"max_rejected": "100%"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    assert rows(tmp_path / "out")["id"] == ["2"]


@pytest.mark.parametrize("form", ["array, one record a line", "indented array", "indented objects"])
@pytest.mark.parametrize("damage", ['the" river', "the\n[{river"])
def test_a_string_with_no_end_costs_no_other_record(tmp_path, tiny_bundle, form, damage):
    """Two of them, between which quotes would begin and end strings the other way round."""
    bad = ["0", "18"]
    text = FORMS[form]
    for number in bad:
        text = text.replace(f'"the river {number}"', f'"{damage} {number}"')
    (tmp_path / "in.json").write_text(text)
    flags = {"block_bytes": 100, "report": "false"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json", **flags) == 0
    names = [str(each["id"]) for each in RECORDS if str(each["id"]) not in bad]
    assert rows(tmp_path / "out")["id"] == names
    assert {each["reason"] for each in rejected(tmp_path / "out")} == {"malformed JSON"}


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_element_that_is_no_object_costs_itself_alone(
    tmp_path, tiny_bundle, indent, block_bytes
):
    others = [5, None, "a, {", ["b", 6], True, 1.5, ""]
    every = [one for pair in zip(RECORDS, others, strict=False) for one in pair]
    (tmp_path / "in.json").write_text(json.dumps([*every, RECORDS[-1]], indent=indent))
    flags = {"block_bytes": block_bytes, "report": "false", "max_rejected": "100%"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json", **flags) == 0
    wanted = [*RECORDS[: len(others)], RECORDS[-1]]
    assert rows(tmp_path / "out")["id"] == [str(each["id"]) for each in wanted]
    assert len(rejected(tmp_path / "out")) == len(others)


def test_numbers_that_json_does_not_have_are_read(tmp_path, tiny_bundle):
    frame = pd.DataFrame(
        {"id": [1, 2, 3], "text": ["one", "two", "three"], "score": [0.5, None, 1]}
    )
    lines = [json.dumps(row) + "\n" for row in frame.to_dict("records")]
    assert "NaN" in lines[1]
    lines.append('{"id": 4, "text": "four", "score": -Infinity}\n')
    lines.append('{"id": 5, "text": NaN, "score": 1}\n')
    lines.append('{"id": 6, "text": "\\ud800", "score": NaN}\n')
    (tmp_path / "in.jsonl").write_text("".join(lines))
    flags = {"extra_columns": "score:float64", "max_rejected": "100%"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    assert rows(tmp_path / "out")["score"] == [0.5, None, 1.0, float("-inf")]
    found = {each["id"]: each["reason"] for each in rejected(tmp_path / "out")}
    assert found == {"5": "missing text", None: "malformed JSON"}


@pytest.mark.parametrize("text", ["[]", "[]\n", " [\n]\r\n", "\ufeff[ ]"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_array_has_no_records(tmp_path, tiny_bundle, text, packed):
    data = text.encode()
    path = tmp_path / "in" / ("a.json.gz" if packed else "a.json")
    path.parent.mkdir()
    path.write_bytes(gzip.compress(data) if packed else data)
    assert embed(tmp_path / "alone", tiny_bundle, path) == 0
    assert record(tmp_path / "alone")["counts"]["records"] == 0
    (tmp_path / "in" / "b.json").write_text('{"id": 1, "text": "one"}\n')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 0
    assert rows(tmp_path / "out")["id"] == ["1"]
    assert record(tmp_path / "out")["counts"]["records"] == 1


WHOLE = '[\n{"id": 1, "text": "one"},\n{"id": 2, "text": "a [ and {"},\n{"id": 3, "tags": [1]}\n]\n'


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "end", ["]\n", "\n]", "}\n", ",\n", ": 3", '"tags": [1]', '"text": "a ', '"text": "a [ and {"}']
)
def test_an_array_that_is_cut_fails_the_run(tmp_path, tiny_bundle, capsys, end, packed):
    """Wherever the file ends: between records, too, where all that is there can be read.

    A file as small is read before any work starts.
    """
    data = WHOLE[: WHOLE.rindex(end) if end != '"text": "a ' else WHOLE.rindex(" and")].encode()
    path = tmp_path / ("in.json.gz" if packed else "in.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert embed(tmp_path / "out", tiny_bundle, path) == 2
    assert f"{path} is cut: its JSON array has no end" in capsys.readouterr().err


def test_a_large_array_that_is_cut_fails_the_run(tmp_path, tiny_bundle, capsys):
    lines = [json.dumps({"id": number, "text": "the bank " * 20}) for number in range(8_000)]
    (tmp_path / "in.json").write_text("[\n" + ",\n".join(lines) + ",\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json", layers="0") == 1
    assert "in.json is cut: its JSON array has no end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "found", "written"),
    [
        ("indented objects", "river 6", None),  # cut within a string
        ("array in a line", '"the river 6"', '"the river 6""'),
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_an_object_with_no_end_fails_the_run(
    tmp_path, tiny_bundle, capsys, form, found, written, end
):
    """All behind it would be one rejected record."""
    text = FORMS[form]
    assert found in text
    text = text[: text.index(found)] if written is None else text.replace(found, written, 1) + end
    (tmp_path / "in.json").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json") == 2
    kind = "array" if form.startswith("array") else "object"
    assert f"in.json is cut: its JSON {kind} has no end" in capsys.readouterr().err


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
def test_damage_that_may_cost_several_records_fails_the_run(
    tmp_path, tiny_bundle, capsys, text, message
):
    """Beside a good file, in which it would be one rejected record of many."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(text)
    write_json(tmp_path / "in" / "b.jsonl", *RECORDS)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 2
    assert re.search(f"in/a.json .*{message}", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("found", "written"), [('"n": {', '"n": {{'), ("\n}\n{", "\n{"), ("river 6", 'river" "6')]
)
def test_braces_and_quotes_too_many_cost_their_record_alone(tmp_path, tiny_bundle, found, written):
    text = FORMS["indented objects"].replace(found, written, 1)
    (tmp_path / "in.json").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json") == 0
    assert len(rows(tmp_path / "out")["id"]) == len(RECORDS) - 1
    assert len(rejected(tmp_path / "out")) == 1


def test_objects_may_go_on_with_a_comma_in_the_next_line(tmp_path, tiny_bundle):
    text = "\n".join(f'{{ "id": {number}\n, "text": "the bank"\n}}' for number in range(3))
    (tmp_path / "in.json").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json") == 0
    assert rows(tmp_path / "out")["id"] == ["0", "1", "2"]


@pytest.mark.parametrize("text", ["[[]]", "[null]", "[1, 2]", "[]\n[]"])
def test_an_array_of_no_records_is_refused(tmp_path, tiny_bundle, capsys, text):
    (tmp_path / "in.json").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.json") == 2
    assert "does not begin with JSON lines" in capsys.readouterr().err
    write_json(tmp_path / "a.json", *RECORDS)
    is_empty = text == "[]\n[]"
    assert embed(tmp_path / "beside", tiny_bundle, tmp_path / "*.json") == (0 if is_empty else 2)
    assert is_empty or "in.json does not begin with JSON lines" in capsys.readouterr().err


def test_a_number_beyond_float64_costs_no_document(tmp_path, tiny_bundle):
    """Python's json module and pandas take it for infinite."""
    digits = "9" * 400
    lines = [
        '{"id": 1, "text": "one", "n": 1e999}',
        f'{{"id": 2, "text": "two", "n": -{digits}}}',
        '{"id": 3, "text": "three", "n": 1e-999}',
        '{"id": 4, "text": "four", "n": 1e100}',
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    flags = {"extra_columns": "n:float64"}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    assert rows(tmp_path / "out")["n"] == [float("inf"), float("-inf"), 0.0, 1e100]
