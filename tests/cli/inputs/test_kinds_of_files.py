"""A file is what it holds, whatever its name says; what is no data is left out and told."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import flags_of, main, rejected, rows

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
def test_the_name_of_a_shard_and_the_bytes_decide(run, name, text):
    if name == "out.tsv-00000-of-00001":
        text = text.replace('d0,"', 'd0\t"').replace("d2,", "d2\t")
    data = text.encode()
    output = run({name: gzip.compress(data) if "gz" in name else data})
    assert rows(output)["id"] == IDS
    assert rejected(output) == []


@pytest.mark.parametrize(
    "text",
    ["[1] A reference\n", '{"a": 1} is JSON\n', "{ of braces }\n", "[Chorus]\n", "{\n  x = 1\n}\n"],
)
def test_texts_with_brackets_are_texts(run, text):
    assert rows(run({"in.txt": text}, keep_text=True))["text"] == text.splitlines()


@pytest.fixture(scope="module")
def examples(tmp_path_factory, tiny_bundle):
    """The bytes of a file of examples, and of its examples.json."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "in.jsonl").write_text(LINES)
    assert main(["tokenize", *flags_of(folder / "made", tiny_bundle, folder / "in.jsonl")]) == 0
    (path,) = (folder / "made" / "examples").glob("*.tfrecord")
    return path.read_bytes(), next(folder.rglob("examples.json")).read_bytes()


@pytest.mark.parametrize(
    "name", ["a.tfrecords", "a.tfrec", "a.tfrecord-00000-of-00001", "part-0", "a.txt", "a.gz"]
)
def test_examples_need_no_suffix(tmp_path, run, examples, name):
    data = gzip.compress(examples[0]) if name.endswith(".gz") else examples[0]
    run.written({f"in/{name}": data, "in/examples.json": examples[1]})
    assert rows(run(tmp_path / "in" / name))["id"] == IDS


@pytest.mark.parametrize(
    "name",
    ["README.md", "LICENSE", "dataset_infos.json", "README_de.txt", "metadata.json", "schema.json"],
)
def test_what_stands_beside_data_is_left_out_and_told(tmp_path, run, name):
    content = '{"default": {}}' if name.endswith("json") else "A data set.\n"
    assert rows(run({"in/data/a.jsonl": LINES, f"in/{name}": content}))["id"] == IDS
    assert f"1 file is beside the data and is skipped ({name} 1)" in run.out
    if not name.endswith("json"):  # named, or among texts, it is a text like others
        run(tmp_path / "in" / name, "named")
        texts = run({"texts/data/a.txt": "a text\n", f"texts/{name}": content}, "told")
        assert len(rows(texts)["id"]) == 2


def test_json_beside_text_files_is_no_document(tmp_path, run):
    texts = {"in/README.md": "a text\n", "in/package.json": '{"name": "x"}'}
    assert rows(run(texts, input_format="files"))["id"] == [str(tmp_path / "in" / "README.md")]
    assert "1 file is beside the data and is skipped (package.json 1)" in run.out


WARC = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 5\r\n\r\nhello\r\n"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.warc.wet", WARC, "WARC records"),
        ("wiki_00", '<doc id="12" title="Bank">\nthe bank\n</doc>\n', "<doc> elements"),
        ("mails", "From a@b Mon Jan 1 2024\nSubject: x\n\nthe bank\n", "mails"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nthe bank\n", "subtitles"),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nthe bank\n", "subtitles"),
        ("a.eml", "From: a@b\nSubject: x\n\nthe bank\n", "mails"),
        ("a.sgm", "<DOC>\n<DOCNO> 1 </DOCNO>\nthe bank\n</DOC>\n", "<doc> elements"),
        ("a.ass", "[Script Info]\nTitle: x\n", "subtitles"),
        ("a.bib", "@article{a,\n title={x}\n}\n", "references"),
        ("a.conllu", "# text = Hi\n1\tHi\thi\n", "sentences of CoNLL-U"),
        ("a.sql", "INSERT INTO t VALUES (1, 'a');\n", "SQL"),
        ("a.log", "started\n" + LINES, "JSON behind another line"),
        ("a.txt", json.dumps(["the bank", 'of "it"'], indent=1), "JSON strings"),
        ("a.txt", '["the bank"]\n["of it"]\n', "JSON strings"),
        ("a.txt", '"the bank"\n"of it"\n', "JSON strings"),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_files_of_many_documents_are_noted(tmp_path, run, name, text, what, packed):
    run({f"{name}{packed}": text}, dry_run=True)
    note = f"note: {tmp_path}/{name}{packed} holds {what}, whose headers and marks are"
    assert note in run.out


@pytest.mark.parametrize(
    ("name", "wrapped", "program"),
    [
        ("b.json", {"data": DOCUMENTS}, ".data[]"),
        ("b.jsonl", {"version": 1, "data": DOCUMENTS}, ".data[]"),
        ("b.json", {each["id"]: {"text": each["text"]} for each in DOCUMENTS}, "to_entries[]"),
        ("b.json", {"text": [each["text"] for each in DOCUMENTS]}, ". as $all | range(.text |"),
        ("b.json", {"train": DOCUMENTS, "test": DOCUMENTS}, ".train[], .test[]"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("beside", [{}, {"in/a.jsonl": LINES}])
def test_one_object_that_wraps_records_is_refused(run, name, wrapped, program, indent, beside):
    message = f"{name} holds one JSON object that wraps records; write one a line: jq -c"
    run.refused({f"in/{name}": json.dumps(wrapped, indent=indent)} | beside, message)
    assert program in run.err
    if "data" in wrapped and indent is None and beside:
        for packed in ("c.jsonl", "c.jsonl.gz"):
            lines = {f"in{packed}/{packed}": (json.dumps(wrapped) + "\n") * 3}
            lines[f"in{packed}/a.jsonl"] = LINES * 200
            message = (
                f"{packed} holds JSON objects that wrap records; write one a line: jq -c '.data"
            )
            run.refused(lines, message)


@pytest.mark.parametrize(
    ("name", "text", "is_noted"),
    [
        ("part-00000", CSV, True),
        ("part-00000.gz", CSV, True),
        ("a.txt", "text\tlabel\nthe bank\t1\n", True),
        ("a.txt", "Some text, with an id\nand another, of few words\n", False),
        ("a.txt", "text,label\nthe bank\n", False),
    ],
)
def test_csv_without_its_suffix_is_noted(tmp_path, run, name, text, is_noted):
    run({name: text}, dry_run=True)
    assert (f"note: {tmp_path}/{name} looks like CSV" in run.out) == is_noted


@pytest.mark.parametrize("ids", [[], ["id"]])
@pytest.mark.parametrize("name", ["in.jsonl", "one.jsonl", "in.parquet"])
def test_lists_of_texts_are_not_taken_for_words(tmp_path, run, name, ids):
    texts = [["the bank.", "the river."], ["more of it."]][: 1 if name == "one.jsonl" else 2]
    records = [{"text": text} | dict.fromkeys(ids, f"d{at}") for at, text in enumerate(texts)]
    path = tmp_path / name
    if name == "in.parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    else:
        run.written({name: records})
    is_column = name == "one.jsonl" and not ids
    run.refused(path, "wraps records" if is_column else "text holds lists of texts, not of words")


def test_text_files_beside_records_are_noted(tmp_path, run):
    run({"in/a.jsonl": LINES, "in/train.log": "step 1\n"}, dry_run=True)
    note = "note: 1 text file lies beside files of records, and each line is a document, as of "
    assert f"{note}{tmp_path}/in/train.log" in run.out
