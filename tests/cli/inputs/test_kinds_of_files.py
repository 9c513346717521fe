"""A file is what it holds, whatever its name says; what is no data is left out and told."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import record, rows

DOCUMENTS = [{"id": f"d{number}", "text": f"the river {number}"} for number in range(3)]
LINES = "".join(json.dumps(each) + "\n" for each in DOCUMENTS)
CSV = 'id,text\nd0,"the river, 0"\nd1,the river 1\nd2,the river 2\n'
IDS = ["d0", "d1", "d2"]


def test_texts_with_brackets_are_texts(run):
    texts = ["[1] A reference\n", '{"a": 1} is JSON\n', "{ of braces }\n", "[Chorus]\n"]
    texts.append("{\n  x = 1\n}\n")
    output = run({f"in/{number}.txt": text for number, text in enumerate(texts)}, keep_text=True)
    assert rows(output)["text"] == "".join(texts).splitlines()
    for form, kept in (("text", LINES.splitlines()), ("files", [LINES])):  # if asked
        output = run({"in.txt": LINES}, form, input_format=form, keep_text=True)
        assert rows(output)["text"] == kept


BESIDE = ["README.md", "LICENSE", "README_de.txt", "load.sql", "unload_manifest"]
BESIDE_JSON = ["dataset_infos.json", "metadata.json", "schema.json", "features.json"]


def test_what_stands_beside_data_is_left_out_and_told(tmp_path, run):
    files = dict.fromkeys(BESIDE, "A data set.\n") | dict.fromkeys(BESIDE_JSON, '{"default": {}}')
    beside = {f"in/{name}": text for name, text in files.items()}
    output = run({"in/data/a.jsonl": LINES} | beside)
    assert rows(output)["id"] == IDS
    assert "9 files are beside the data and are skipped (LICENSE 1, README.md 1, " in run.out
    assert record(output)["input"]["skipped_files"] == dict.fromkeys(files, 1)
    # A table is data whatever its name, and so are files without a suffix whose format is said.
    tables = {"d/notice.csv": CSV, "d/a.csv": CSV, "d/LICENSE.csv.gz": CSV}
    assert len(rows(run(tables, "tables"))["id"]) == 9
    parts = {"e/part-0": CSV, "e/README.md": "A data set.\n", "e/SHA256SUMS": "0 part-0\n"}
    assert rows(run(parts, "parts", input_format="csv"))["id"] == IDS
    # Named, or among texts, it is a text like others; JSON is none.
    run(tmp_path / "in" / BESIDE[0], "named")
    texts = run({"texts/data/a.txt": "a text\n"} | {f"texts/{n}": files[n] for n in BESIDE}, "told")
    assert len(rows(texts)["id"]) == 1 + len(BESIDE)
    texts = {"t/README.md": "a text\n", "t/package.json": '{"name": "x"}'}
    output = run(texts, "whole", input_format="files")
    assert rows(output)["id"] == [str(tmp_path / "t" / "README.md")]
    assert "1 file is beside the data and is skipped (package.json 1)" in run.out
    # A data set of Arrow files, as `save_to_disk` writes it, is not read for its JSON.
    saved = {"s/data-00000-of-00001.arrow": b"ARROW1", "s/dataset_info.json": "{}"}
    run.refused(saved | {"s/state.json": '{"_split": null}'}, ".arrow files cannot be read")


WARC = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 5\r\n\r\nhello\r\n"
OF_MANY_DOCUMENTS = [
    ("a.warc.wet", WARC, "WARC records"),
    ("wiki_00", '<doc id="12" title="Bank">\nthe bank\n</doc>\n', "<doc> elements"),
    ("mails", "From a@b Mon Jan 1 2024\nSubject: x\n\nthe bank\n", "mails"),
    ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nthe bank\n", "subtitles"),
    ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nthe bank\n", "subtitles"),
    ("a.eml", "From: a@b\nSubject: x\n\nthe bank\n", "mails"),
    ("b.eml", "Received: from x (x [1.2.3.4])\r\n\tby y with ESMTP\r\nFrom: a@b\r\n", "mails"),
    ("a.sgm", "<DOC>\n<DOCNO> 1 </DOCNO>\nthe bank\n</DOC>\n", "<doc> elements"),
    ("a.ass", "[Script Info]\nTitle: x\n", "subtitles"),
    ("a.bib", "@article{a,\n title={x}\n}\n", "references"),
    ("b.bib", "% Encoding: UTF-8\n\n@article{a,\n", "references"),
    ("savedrecs.txt", "FN Clarivate Analytics Web of Science\nVR 1.0\nPT J\n", "references"),
    ("a.conllu", "# text = Hi\n1\tHi\thi\n", "sentences of CoNLL"),
    ("eng.train", "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n", "sentences of CoNLL"),
    ("b.conllu", "1" + "\tx" * 9 + "\n", "sentences of CoNLL"),
    ("a.nt", '_:b0 <http://a> "the bank" .\n', "triples"),
    ("a.po", '# German\nmsgid "the bank"\nmsgstr "das Ufer"\n', "translations"),
    ("a.yaml", "- id: a\n  text: the bank\n", "YAML"),
    ("pages1.xml-p1p41242", "<mediawiki>\n<page>\n", "markup"),  # as Wikipedia names its dumps
    ("a.nxml", '\ufeff<?xml version="1.0"?>\n<article/>\n', "markup"),
    ("feed", '<rss version="2.0">\n<channel>\n', "markup"),
    ("index", "\n<!DOCTYPE html>\n<p>the bank\n", "markup"),
    ("a.nbib", "\nPMID- 1\nTI  - the bank\n", "references"),
    ("000000_0", "d1\x01the bank\n", "fields between ^A"),  # as Hive names its files
    ("a.sbv", "0:00:01.000,0:00:02.000\nthe bank\n", "subtitles"),
    ("a.sql", "INSERT INTO t VALUES (1, 'a');\n", "SQL"),
    ("c.sql", "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n", "SQL"),
    ("d.sql", "/*M!999999\\- enable the sandbox mode */ \n-- MariaDB dump 10.19\n", "SQL"),
    ("b.sql", "--\n-- PostgreSQL database dump\n--\n", "SQL"),
    ("a.log", "started\n" + LINES, "JSON behind another line"),
    ("a.txt", json.dumps(["the bank", 'of "it"'], indent=1), "JSON strings"),
    ("b.txt", '["the bank"]\n["of it"]\n', "JSON strings"),
    ("c.txt", '"the bank"\n"of it"\n', "JSON strings"),
    ("d.txt", "id\x1ftext\x1e1\x1fthe bank\x1e", "fields between ^_"),  # `.mode ascii` of sqlite
    ("e.txt", " id |   text   \n----+----------\n  1 | the bank\n", "drawn tables"),
    ("f.txt", "id  text    \n--  --------\n1   the bank\n", "drawn tables"),
    ("g.txt", "+----+----------+\n| id | text     |\n", "drawn tables"),
    ("h.txt", "┌────┬──────────┐\n│ id │   text   │\n", "drawn tables"),
    ("i.txt", "__label__2 the bank\n", "labels of fastText"),
    ("j.txt", "{'id': 1, 'text': 'the bank'}\n", "Python's dicts"),
    ("topics", "<top>\n<num> Number: 1\n", "markup"),
    ("ner.txt", "EU NNP B-ORG\nrejects VBZ O\n", "sentences of CoNLL"),
]


def test_files_of_many_documents_are_noted(tmp_path, run):
    for number, (name, text, what) in enumerate(OF_MANY_DOCUMENTS):
        name = f"{name}.gz" if number % 3 == 0 else name
        run({name: text}, dry_run=True)
        assert f"note: {tmp_path}/{name} holds {what}, whose headers and marks are" in run.out


def test_one_object_that_wraps_records_is_refused(run):
    message = "b.json holds one JSON object that wraps records; write one a line: jq -c '.data[]'"
    for number, indent in enumerate((None, 2)):
        text = {f"{number}/b.json": json.dumps({"version": 1, "data": DOCUMENTS}, indent=indent)}
        run.refused(text, message)
        run.refused(text | {f"{number}/a.jsonl": LINES}, message)


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_objects_that_wrap_records_are_refused(run, name):
    lines = {f"in/{name}": (json.dumps({"data": DOCUMENTS}) + "\n") * 3, "in/a.jsonl": LINES * 200}
    file = "<(gzip -dc FILE)" if name.endswith("gz") else "FILE"
    message = "holds JSON objects that wrap records; write one a line"
    run.refused(lines, f"{name} {message}: jq -c '.data[]' {file} > NEW.jsonl")


ACTION = {"index": {"_type": "_doc", "_id": "7"}}
BY_ID = {each["id"]: each["text"] for each in DOCUMENTS}


@pytest.mark.parametrize(
    ("name", "records", "message"),
    [
        (
            "a.json",
            [ACTION, DOCUMENTS[0]] * 2,
            "has a line of Elasticsearch's bulk API before each",
        ),
        ("a.json", [{"update": {"_id": "7"}}, {"doc": DOCUMENTS[0]}], "bulk API before each"),
        ("a.json", [{"queries": {"q": "a b"}, "corpus": BY_ID}], "jq -c '.corpus | to_entries[]"),
        ("a.json", [BY_ID], "if it holds texts by their ids: jq -c 'to_entries[] | {id: .key,"),
        ("a.json", f"{DOCUMENTS[0]}\n" * 2, "of what Python prints, python3 -c 'import ast, json,"),
        ("a.json", [{"id": 1, "text": {"en": "a b"}}], "is an object in the first records of"),
        ("a.json", [{"id": 1, "text": [{"a": "b"}]}], "a list of no strings in the first"),
        ("a.json", '[{"text": [{"a": "b"}]}]', 'if type == "array" then .[] else . end | .text[]'),
        ("a.json", [{"id": [1], "text": "a b"}], "--id_column id is list_int64 in the first"),
        ("a.json", [{"text": ["a b", "c d"], "id": [1, 2]}] * 2, "jq -c '. as $all | range(.text"),
        (
            "a.json",
            [{"id": 1, "my text": ["a b", "c d"]}] * 2,
            """'(."my text" | .[]? // .) as $one""",
        ),
    ],
)
def test_what_is_no_record_a_document_is_refused_with_a_program(run, name, records, message):
    column = "my text" if "my text" in records[0] else "text"
    run.refused({name: records}, message, text_column=column)


def test_a_file_of_objects_for_texts_is_not_lost_beside_others(run):
    texts = {"in/a.jsonl": LINES * 200, "in/b.jsonl": [{"id": 1, "text": {"en": "a b"}}] * 2}
    run.refused(
        texts, "b.jsonl; must be a string, or a list of strings; name a field of it: text.en"
    )


@pytest.mark.parametrize("end", ["parquet.gzip", "parquet.snappy", "pq.zst", "parquet.gz", "gz"])
def test_parquet_is_known_whatever_its_name_says_of_its_pages(tmp_path, run, end):
    pq.write_table(pa.Table.from_pylist(DOCUMENTS), tmp_path / f"a.{end}", compression="gzip")
    assert rows(run(tmp_path / f"a.{end}"))["id"] == IDS


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({"part-00000": CSV}, "{}/part-00000 looks like CSV"),
        ({"part-00001.gz": CSV}, "{}/part-00001.gz looks like CSV"),
        ({"a.txt": "text\tlabel\nthe bank\t1\n"}, "{}/a.txt looks like CSV"),
        ({"b.txt": "Some text, with an id\nand another, of few words\n"}, None),
        ({"c.txt": "text,label\nthe bank\n"}, None),
        ({"in/a.jsonl": LINES, "in/a.jsonl.gz": LINES}, "{}/in/a.jsonl is there compressed, too"),
        ({"in/a.jsonl": LINES, "in/b.log": "1\n"}, "1 text file lies beside files of records"),
    ],
)
def test_what_may_not_be_meant_is_noted(tmp_path, run, files, note):
    run(files, dry_run=True)
    *found, _ = re.findall("^note: (.*)", run.out, re.MULTILINE)  # the last is of the model
    assert len(found) == (note is not None)
    assert note is None or found[0].startswith(note.format(tmp_path))


@pytest.mark.parametrize("ids", [[], ["id"]])
@pytest.mark.parametrize("name", ["in.jsonl", "one.jsonl", "in.parquet", "one.parquet"])
def test_lists_of_texts_are_not_taken_for_words(tmp_path, run, name, ids):
    texts = [["the bank.", "the river."], ["more of it."]][: 1 if "one" in name else 2]
    records = [{"text": text} | dict.fromkeys(ids, f"d{at}") for at, text in enumerate(texts)]
    path = tmp_path / name
    if "parquet" in name:
        pq.write_table(pa.Table.from_pylist([one | {"of": one} for one in records]), path)
        run.refused(path, "df.explode('text') in pandas")
        run.refused(path, "unnest(of.text) in DuckDB", text_column="of.text")
    else:
        run.written({name: records})
    is_column = name == "one.jsonl" and not ids
    run.refused(path, "wraps records" if is_column else "text holds lists of texts, not of words")
