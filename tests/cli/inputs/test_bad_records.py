"""Every record ends once: embedded, or rejected with its place and a reason."""

import base64
import json

import pytest

from tests.support.command import record, rejected, rows


def test_bad_lines_of_plain_text(tmp_path, run):
    lines = [b"good", b"", b"caf\xe9", b"  \t", b"a\x00b", b"\x00", b"x" * 300, b"end"]
    output, path = run({"in.txt": b"\xef\xbb\xbf" + b"\n".join(lines)}), f"{tmp_path}/in.txt"
    assert rows(output)["id"] == [f"{path}:{at}" for at in (0, 18, 24, 325)]
    found = [(each["source"], each["stage"], each["reason"]) for each in rejected(output)]
    assert found == [
        (f"{path}:8", "read", "empty text"),
        (f"{path}:9", "read", "invalid UTF-8"),
        (f"{path}:14", "read", "empty text"),
        (f"{path}:22", "tokenize", "no tokens"),
    ]
    assert base64.b64decode(rejected(output)[1]["record"]["base64"]) == b"caf\xe9"
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (8, 4, 4)
    assert counts["blank_lines"] == 2


def test_bad_records_of_json_lines(tmp_path, run):
    lines = {
        '{"id": "a", "text": "fine"}': None,
        '{"id": "b", "text": "cut': (None, "malformed JSON"),
        '["no object"]': (None, "not a JSON object"),
        '{"id": "d"}': ("d", "missing text"),
        '{"id": "f", "text": 7}': ("f", "text is not a string or a list of strings"),
        '{"id": "h", "text": " \\t "}': ("h", "empty text"),
        '{"text": "no id"}': (None, "missing id"),
        '{"id": true, "text": "odd id"}': (None, "id is not a string or an integer"),
        '{"id": 12, "text": "a number for an id"}': None,
        '{"id": "a", "text": "the same id again"}': None,
        "": (None, "empty text"),
        '{"id": "nul", "text": "a\\u0000b"}': None,
        '{"id": "half", "text": "\\ud800"}': (None, "malformed JSON"),
    }
    output = run({"in.jsonl": "\n".join(lines) + "\n"})
    assert rows(output)["id"] == ["a", "12", "a", "nul"]
    found = [(each["id"], each["reason"]) for each in rejected(output)]
    assert found == list(filter(None, lines.values()))
    assert rejected(output)[0]["source"] == f"{tmp_path}/in.jsonl:{len(next(iter(lines))) + 1}"
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (13, 4, 9)


def test_a_malformed_record_says_what_is_wrong_where(run):
    for name, lines, found in (
        (
            "in.jsonl",
            b'{"text": "fine"}\n{"text": "secret\n{"text": secret}\n\xffsecret',
            [("malformed JSON", "line 1 column ")] * 2
            + [("invalid UTF-8", "byte 0 of the record is 0xff")],
        ),
        (
            "in.csv",
            b'text,id\n"a" b,1\nc,2,3\nd\xe9,4\nfine,5\n',
            [
                ("malformed CSV", "',' expected after '\"'"),
                ("more fields than the header", "3 fields, 2 in the header"),
                ("invalid UTF-8", "byte 1 of the record is 0xe9"),
            ],
        ),
    ):
        told = rejected(run({name: lines}, f"out-{name}", max_rejected="100%"))
        assert [each["reason"] for each in told] == [reason for reason, _ in found]
        assert all(place in each["detail"] for each, (_, place) in zip(told, found, strict=True))
        assert not [each for each in told if "secret" in each["detail"]]


def test_what_reads_malformed_csv_is_told(run):
    run({"in.csv": 'text\n"a "b" c"\nfine\n'}, max_rejected=0, code=3)
    assert "csv_quoting escaped reads backslashes before quotes, as Spark" in run.err
    run({"r.csv": '"text"\n"1","a b"\n'}, "r", max_rejected=0, code=3)
    assert "in R, write.table(…, col.names = NA) names the column" in run.err


def test_an_array_that_is_cut_fails_the_run(run):
    """Before any work where the file is small."""
    lines = [json.dumps({"id": number, "text": "the bank " * 70}) for number in range(8_000)]
    for count, code in ((2, 2), (8_000, 1)):
        run({"in.json": "[\n" + ",\n".join(lines[:count]) + ",\n"}, code=code, layers="0")
        assert "in.json is cut: its JSON array has no end" in run.err


@pytest.mark.parametrize("text", ["[[]]", "[null]", "[1, 2]", "[]\n[]"])
def test_an_array_of_no_records_is_refused(run, text):
    said = "does not begin with JSON lines"
    run.refused({"in/in.json": text, "in/b.json": "[]"}, f"in.json {said}")
    beside = {"in/in.json": text, "in/a.json": [{"id": 1, "text": "one"}]}
    run(beside, code=0 if text == "[]\n[]" else 2)
    assert (f"in.json {said}" in run.err) == (text != "[]\n[]")
