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
        '{"id": "e", "text": null}': ("e", "missing text"),
        '{"id": "f", "text": 7}': ("f", "text is not a string or a list of strings"),
        '{"id": "g", "text": ""}': ("g", "empty text"),
        '{"id": "h", "text": " \\t "}': ("h", "empty text"),
        '{"text": "no id"}': (None, "missing id"),
        '{"id": 1.5, "text": "odd id"}': (None, "id is not a string or an integer"),
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
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (16, 4, 12)


def test_ids_of_json_lines_without_an_id_are_their_places(tmp_path, run):
    lines = '{"body": "one"}\n{"body": "two", "ID": "x"}\n'
    output, path = run({"in.jsonl": lines}, text_column="body"), f"{tmp_path}/in.jsonl"
    assert rows(output)["id"] == [f"{path}:0", f"{path}:16"]


def test_a_line_of_ten_megabytes_is_embedded_in_any_cutting(run):
    table = rows(run({"in.txt": f"first\n{'word ' * 2_000_000}\nlast ü\n"}))
    assert [each.rsplit(":", 1)[1] for each in table["id"]] == ["0", "6", "10000007"]
    assert table["truncated"] == [False, True, False]


@pytest.mark.parametrize(("allowed", "code"), [("0", 3), ("1", 0), ("24%", 3), ("25%", 0)])
def test_max_rejected_is_judged_at_the_end(run, allowed, code):
    """One bad record of four; the blank line does not count."""
    lines = {"in.txt": b"one\n\ntwo\ncaf\xe9\nthree\n"}
    output = run(lines, code=code, max_rejected=allowed)
    assert record(output)["status"] == ("refused" if code else "done")
    assert len(rows(output)["id"]) == 3
    assert ("--max_rejected allows" in run.err) == (code == 3)


def test_counts_of_every_block_reconcile(tmp_path, run):
    lines = b"\n".join(b"text %d" % n if n % 3 else b"\xff" for n in range(300))
    output = run({"in.txt": lines}, block_bytes=200)
    found = [json.loads(p.read_text()) for p in sorted(output.glob("_state/blocks/*.json"))]
    assert len(found) > 5
    for one in found:
        assert one["records"] == one["embedded"] + sum(one["rejected"].values())
        assert one["run"] == record(output)["run"]
    assert sum(each["records"] for each in found) == 300
    assert sum(each["rejected"].get("invalid UTF-8", 0) for each in found) == 100
    assert sum(each["covered"].get("0", 0) for each in found) == len(lines)


@pytest.mark.parametrize(
    ("name", "lines", "found"),
    [
        (
            "in.jsonl",
            b'{"text": "fine"}\n{"text": "secret\n{"text": secret}\nsecret\n\xffsecret',
            [("malformed JSON", "line 1 column ")] * 3
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
    ],
    ids=["json", "csv"],
)
def test_a_malformed_record_says_what_is_wrong_where(run, name, lines, found):
    told = rejected(run({name: lines}, max_rejected="100%"))
    assert [each["reason"] for each in told] == [reason for reason, _ in found]
    assert all(place in each["detail"] for each, (_, place) in zip(told, found, strict=True))
    assert not [each for each in told if "secret" in each["detail"]]
