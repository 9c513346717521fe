"""Every record ends once: embedded, or rejected with its place and a reason."""

import base64
import json

import pytest

from tests.support.command import embed, record, rejected, rows, write_json


def test_bad_lines_of_plain_text(tmp_path, tiny_bundle):
    lines = [b"good", b"", b"caf\xe9", b"  \t", b"a\x00b", b"\x00", b"x" * 300, b"end"]
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    path = f"{tmp_path}/in.txt"
    assert rows(tmp_path / "out")["id"] == [f"{path}:{at}" for at in (0, 18, 24, 325)]
    found = [(each["source"], each["stage"], each["reason"]) for each in rejected(tmp_path / "out")]
    assert found == [
        (f"{path}:8", "read", "empty text"),
        (f"{path}:9", "read", "invalid UTF-8"),
        (f"{path}:14", "read", "empty text"),
        (f"{path}:22", "tokenize", "no tokens"),
    ]
    raw = rejected(tmp_path / "out")[1]["record"]["base64"]
    assert base64.b64decode(raw) == b"caf\xe9"
    counts = record(tmp_path / "out")["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (8, 4, 4)
    assert counts["blank_lines"] == 2


def test_bad_records_of_json_lines(tmp_path, tiny_bundle):
    lines = [
        '{"id": "a", "text": "fine"}',
        '{"id": "b", "text": "cut',
        '["no object"]',
        '{"id": "d"}',
        '{"id": "e", "text": null}',
        '{"id": "f", "text": 7}',
        '{"id": "g", "text": ""}',
        '{"id": "h", "text": " \\t "}',
        '{"text": "no id"}',
        '{"id": 1.5, "text": "odd id"}',
        '{"id": true, "text": "odd id"}',
        '{"id": 12, "text": "a number for an id"}',
        '{"id": "a", "text": "the same id again"}',
        "",
        '{"id": "nul", "text": "a\\u0000b"}',
        '{"id": "half", "text": "\\ud800"}',
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 0
    assert rows(tmp_path / "out")["id"] == ["a", "12", "a", "nul"]
    found = [(each["id"], each["reason"]) for each in rejected(tmp_path / "out")]
    assert found == [
        (None, "malformed JSON"),
        (None, "not a JSON object"),
        ("d", "missing text"),
        ("e", "missing text"),
        ("f", "text is not a string or a list of strings"),
        ("g", "empty text"),
        ("h", "empty text"),
        (None, "missing id"),
        (None, "id is not a string or an integer"),
        (None, "id is not a string or an integer"),
        (None, "empty text"),
        (None, "malformed JSON"),
    ]
    offset = len(lines[0]) + 1
    assert rejected(tmp_path / "out")[0]["source"] == f"{tmp_path}/in.jsonl:{offset}"
    counts = record(tmp_path / "out")["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (16, 4, 12)


def test_files_joined_without_a_line_end_are_told_as_such(tmp_path, tiny_bundle):
    text = (
        '{"id": 1, "text": "one"}\n{"id": 2, "text": "}"}{"id": 3, "text": "three"}\n{"id": 4}{\n'
    )
    (tmp_path / "in.jsonl").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 0
    assert rows(tmp_path / "out")["id"] == ["1"]
    reasons = [each["reason"] for each in rejected(tmp_path / "out")]
    assert reasons == ["several JSON objects in a line"] * 2


def test_a_field_may_be_missing_in_the_first_record(tmp_path, tiny_bundle):
    """Spark writes no nulls; each record without a text is rejected."""
    path = write_json(tmp_path / "in.json", {"id": 1}, {"id": 2, "text": "two"}, {"text": "three"})
    assert embed(tmp_path / "out", tiny_bundle, path) == 0
    assert rows(tmp_path / "out")["id"] == ["2"]
    reasons = [each["reason"] for each in rejected(tmp_path / "out")]
    assert reasons == ["missing text", "missing id"]


def test_ids_of_json_lines_without_an_id_are_their_places(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text('{"body": "one"}\n{"body": "two", "ID": "x"}\n')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl", text_column="body") == 0
    path = f"{tmp_path}/in.jsonl"
    assert rows(tmp_path / "out")["id"] == [f"{path}:0", f"{path}:16"]


def test_a_line_of_ten_megabytes_is_embedded_in_any_cutting(tmp_path, tiny_bundle):
    long_line = "word " * 2_000_000
    (tmp_path / "in.txt").write_text(f"first\n{long_line}\nlast ü\n", encoding="utf-8")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt") == 0
    table = rows(tmp_path / "out")
    assert [each.rsplit(":", 1)[1] for each in table["id"]] == ["0", "6", "10000007"]
    assert table["truncated"] == [False, True, False]


@pytest.mark.parametrize(("allowed", "code"), [("0", 3), ("1", 0), ("24%", 3), ("25%", 0)])
def test_max_rejected_is_judged_at_the_end(tmp_path, tiny_bundle, capsys, allowed, code):
    """One bad record of four; the blank line does not count."""
    (tmp_path / "in.txt").write_bytes(b"one\n\ntwo\ncaf\xe9\nthree\n")
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, tmp_path / "in.txt", max_rejected=allowed) == code
    assert record(output)["status"] == ("refused" if code else "done")
    assert len(rows(output)["id"]) == 3
    assert ("--max_rejected allows" in capsys.readouterr().err) == (code == 3)


def test_counts_of_every_block_reconcile(tmp_path, tiny_bundle):
    lines = [b"text %d" % n if n % 3 else b"\xff" for n in range(300)]
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", block_bytes=200) == 0
    block_records = [
        json.loads(p.read_text()) for p in sorted(tmp_path.glob("out/_state/blocks/*.json"))
    ]
    assert len(block_records) > 5
    for block_record in block_records:
        embedded, rejected = block_record["embedded"], block_record["rejected"]
        assert block_record["records"] == embedded + sum(rejected.values())
        assert block_record["run"] == record(tmp_path / "out")["run"]
    assert sum(each["records"] for each in block_records) == 300
    assert sum(each["rejected"].get("invalid UTF-8", 0) for each in block_records) == 100
    size = (tmp_path / "in.txt").stat().st_size
    assert sum(each["covered"].get("0", 0) for each in block_records) == size


def details(tmp_path, bundle, name, content, **flags):
    (tmp_path / name).write_bytes(content)
    embed(tmp_path / "out", bundle, tmp_path / name, max_rejected="100%", **flags)
    return [(each["reason"], each.get("detail")) for each in rejected(tmp_path / "out")]


def test_a_malformed_record_says_what_is_wrong_where(tmp_path, tiny_bundle):
    lines = [
        b'{"text": "fine"}',
        b'{"text": "secret',
        b'{"text": secret}',
        b"secret",
        b"\xffsecret",
    ]
    found = details(tmp_path, tiny_bundle, "a.jsonl", b"\n".join(lines))
    assert [reason for reason, _ in found] == ["malformed JSON"] * 3 + ["invalid UTF-8"]
    assert "line 1 column 10 (char 9)" in found[1][1]
    assert found[3][1] == "byte 0 of the record is 0xff"
    assert all(detail and "secret" not in detail for _, detail in found)


def test_a_malformed_row_of_csv_says_what_is_wrong_where(tmp_path, tiny_bundle):
    rows_ = b'text,id\n"a" b,1\nc,2,3\nd\xe9,4\nfine,5\n'
    assert details(tmp_path, tiny_bundle, "a.csv", rows_) == [
        ("malformed CSV", "',' expected after '\"'"),
        ("more fields than the header", "3 fields, 2 in the header"),
        ("invalid UTF-8", "byte 1 of the record is 0xe9"),
    ]
