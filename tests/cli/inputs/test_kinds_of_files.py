"""A file is what it holds, whatever its name says; what is no data is left out and told."""

import gzip
import json
import shutil

import pytest

from tests.support.command import embed, flags_of, main, rejected, rows

DOCUMENTS = [{"id": f"d{number}", "text": f"the river {number}"} for number in range(3)]
LINES = "".join(json.dumps(each) + "\n" for each in DOCUMENTS)
CSV = 'id,text\nd0,"the river, 0"\nd1,the river 1\nd2,the river 2\n'
IDS = ["d0", "d1", "d2"]
LONG = json.dumps({"id": "d0", "text": "the river " * 150_000}) + "\n" + LINES.partition("\n")[2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out.csv-00000-of-00001", CSV),
        ("out.csv.gz-00000-of-00001", CSV),
        ("out.CSV-00000-of-00001.gz", CSV),
        ("out.tsv-00000-of-00001", CSV.replace(",", "\t", 1).replace("d1,", "d1\t")),
        ("out.csv.bgz", CSV),
        ("out.jsonl-00000-of-00001", LINES),
        ("part-00000", LONG),
        ("part-00000.gz", LONG),
        ("dump.txt", json.dumps(DOCUMENTS, indent=2)),
        ("dump", json.dumps(DOCUMENTS)),
        ("dump.txt.gz", "\n".join(json.dumps(each, indent=1) for each in DOCUMENTS)),
        ("dump.log", "\ufeff" + LINES),
    ],
)
def test_the_name_of_a_shard_and_the_bytes_decide(tmp_path, tiny_bundle, name, text):
    if name == "out.tsv-00000-of-00001":
        text = text.replace('d0,"', 'd0\t"').replace("d2,", "d2\t")
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if "gz" in name else data)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / name) == 0
    assert rows(tmp_path / "out")["id"] == IDS
    assert rejected(tmp_path / "out") == []


@pytest.mark.parametrize(
    "text",
    ["[1] A reference\n", '{"a": 1} is JSON\n', "{ of braces }\n", "[Chorus]\n", "{\n  x = 1\n}\n"],
)
def test_texts_with_brackets_are_texts(tmp_path, tiny_bundle, text):
    (tmp_path / "in.txt").write_text(text)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", keep_text=True) == 0
    assert rows(tmp_path / "out")["text"] == text.splitlines()


@pytest.mark.parametrize(
    "name", ["a.tfrecords", "a.tfrec", "a.tfrecord-00000-of-00001", "part-0", "a.txt", "a.gz"]
)
def test_examples_need_no_suffix(tmp_path, tiny_bundle, name):
    (tmp_path / "in.jsonl").write_text(LINES)
    made = tmp_path / "made"
    assert main(["tokenize", *flags_of(made, tiny_bundle, tmp_path / "in.jsonl")]) == 0
    (tmp_path / "in").mkdir()
    (path,) = (made / "examples").glob("*.tfrecord*")
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    (tmp_path / "in" / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    shutil.copy(next(made.rglob("examples.json")), tmp_path / "in")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in" / name) == 0
    assert rows(tmp_path / "out")["id"] == IDS


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "dataset_infos.json", "README_de.txt"])
def test_what_stands_beside_data_is_left_out_and_told(tmp_path, tiny_bundle, name, capsys):
    folder = tmp_path / "in"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.jsonl").write_text(LINES)
    (folder / name).write_text('{"default": {}}' if name.endswith("json") else "A data set.\n")
    assert embed(tmp_path / "out", tiny_bundle, folder) == 0
    assert rows(tmp_path / "out")["id"] == IDS
    assert f"1 file is beside the data and is skipped ({name} 1)" in capsys.readouterr().out
    if not name.endswith("json"):  # named, or among texts, it is a text like others
        assert embed(tmp_path / "named", tiny_bundle, folder / name) == 0
        (folder / "data" / "a.jsonl").rename(folder / "data" / "a.txt")
        (folder / "data" / "a.txt").write_text("a text\n")
        assert embed(tmp_path / "texts", tiny_bundle, folder) == 0
        assert len(rows(tmp_path / "texts")["id"]) == 2


WARC = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 5\r\n\r\nhello\r\n"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.warc.wet", WARC, "WARC records"),
        ("wiki_00", '<doc id="12" title="Bank">\nthe bank\n</doc>\n', "<doc> elements"),
        ("mails", "From a@b Mon Jan 1 2024\nSubject: x\n\nthe bank\n", "an mbox of mails"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nthe bank\n", "subtitles"),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nthe bank\n", "subtitles"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_many_documents_are_noted(tmp_path, tiny_bundle, name, text, what, packed, capsys):
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert embed(tmp_path / "out", tiny_bundle, path, dry_run=True) == 0
    assert f"note: {path} holds {what}, whose headers and marks are" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "wrapped", "program"),
    [
        ("b.json", {"data": DOCUMENTS}, ".data[]"),
        ("b.jsonl", {"version": 1, "data": DOCUMENTS}, ".data[]"),
        ("b.json", {each["id"]: {"text": each["text"]} for each in DOCUMENTS}, "to_entries[]"),
        ("b.json", {"text": [each["text"] for each in DOCUMENTS]}, ". as $all | range(.text |"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("beside", [False, True])
def test_one_object_that_wraps_records_is_refused(
    tmp_path, tiny_bundle, name, wrapped, program, indent, beside, capsys
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(json.dumps(wrapped, indent=indent))
    if beside:
        (tmp_path / "in" / "a.jsonl").write_text(LINES)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 2
    message = capsys.readouterr().err
    assert f"{name} holds one JSON object that wraps records; write one a line: jq -c" in message
    assert program in message


@pytest.mark.parametrize("packed", [False, True])
def test_lines_that_each_wrap_records_are_refused(tmp_path, tiny_bundle, packed, capsys):
    lines = (json.dumps({"data": DOCUMENTS}) + "\n").encode() * 3
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(LINES * 200)
    name = "b.jsonl.gz" if packed else "b.jsonl"
    (tmp_path / "in" / name).write_bytes(gzip.compress(lines) if packed else lines)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 2
    message = capsys.readouterr().err
    assert f"{name} holds JSON objects that wrap records; write one a line: jq -c '.data" in message
