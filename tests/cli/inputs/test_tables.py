"""Tables: CSV and Parquet in through the command line, with lines beside them."""

import gzip
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.options.command_line import as_words
from tests.support.command import data_files, record, rejected, rows, vectors
from tests.support.rounding import assert_near

TEXTS = ["The river bank, muddy.", 'a "quoted" text', "two\nlines", "naïve café", "last"]


def csv_bytes(texts):
    quoted = [text.replace('"', '""') for text in texts]
    return ("id,text\r\n" + "".join(f'{n},"{text}"\r\n' for n, text in enumerate(quoted))).encode()


def test_every_format_gives_the_same_vectors(tmp_path, run, tiny_bundle):
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    lines = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)]
    packed = gzip.compress(csv_bytes(TEXTS))
    run.written({"in.csv": b"\xef\xbb\xbf" + csv_bytes(TEXTS), "in.csv.gz": packed})
    run.written({"in.jsonl": lines, "rows": csv_bytes(TEXTS)})
    (tmp_path / "part-0").write_bytes((tmp_path / "in.parquet").read_bytes())
    expected = bert_embed.load(tiny_bundle).encode(TEXTS)
    kinds = {"rows": "csv", "part-0": "parquet"}  # any name can be a table
    for name in ("in.csv", "in.csv.gz", "in.parquet", "in.jsonl", *kinds):
        flags = {"input_format": kinds[name]} if name in kinds else {}
        output = run(tmp_path / name, f"out-{name}", block_bytes=40, **flags)
        # An integer column is one in the output, too.
        kind = int if name in ("in.parquet", "part-0") else str
        assert rows(output)["id"] == [kind(n) for n in range(5)]
        assert_near(vectors(output), expected)
        assert record(output)["counts"]["embedded"] == len(TEXTS)


def test_texts_of_several_columns_are_joined(tmp_path, run, tiny_bundle):
    records = [("a", "One.", "Two, three."), ("b", "", "four"), ("c", "five", None), ("d", " ", "")]
    joined = ["One. Two, three.", "four", "five"]
    names, titles, bodies = zip(*records, strict=True)
    table = pa.table({"id": names, "body": bodies, "title": titles})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    table.to_pandas().to_csv(tmp_path / "in.csv", sep=";", index=False)
    lines = [
        {"id": name, "title": title} | ({} if body is None else {"body": body})
        for name, title, body in records
    ]
    run.written({"in.jsonl": lines})
    expected = bert_embed.load(tiny_bundle).encode(joined)
    flags = {"text_column": "title, body", "keep_text": True, "block_bytes": 40}
    for name in ("in.jsonl", "in.parquet", "in.csv"):
        output = run(tmp_path / name, f"out-{name}", **flags)
        assert (rows(output)["id"], rows(output)["text"]) == (["a", "b", "c"], joined)
        assert_near(vectors(output), expected)
        assert [row["id"] for row in rejected(output)] == ["d"]
        assert record(output)["input"]["text_column"] == "title,body"
    message = "--text_column must be one column, or several different"
    for columns in ("title,", ",title", "title,title"):
        run.refused(tmp_path / "in.csv", message, text_column=columns)


def test_search_shows_the_texts(tmp_path, run, command):
    texts = [f"text of the document {n}" for n in range(40)]
    run.written({"in.csv": csv_bytes(texts)})
    table = pa.table({"id": range(40), "text": texts, "c": ["c" * (1 << 20)] * 40})
    pq.write_table(table, tmp_path / "in.parquet")
    for name, flags in (
        ("in.csv", {"block_bytes": 100}),
        ("in.parquet", {"extra_columns": "c"}),  # the bytes of which divide the block into parts
    ):
        output = run(tmp_path / name, f"out-{name}", **flags)
        assert len(data_files(output)) > 1
        assert texts[39] in command("search", output, texts[39], k=1).out


@pytest.mark.parametrize(
    ("name", "data", "flags", "message"),
    [
        ("a.csv", "id,body\n1,one\n", {}, "--text_column text is not a column of"),
        ("a.csv", "id,text\n1,one\n", {"text_column": "text,body"}, "body is not a column of"),
        ("a.csv", "text\none\n", {"id_column": "key"}, "--id_column key is not a column of"),
        ("a.csv", "Texts,id\none,1\n", {}, "has Texts, id; did you mean --text_column Texts?"),
        ("a.jsonl", '{"document": "a"}\n', {"text_column": "documnet"}, "mean document?"),
        ("a.tsv", "text\tyear\none\t1\n", {"extra_columns": "yaer"}, "did you mean year?"),
        ("a.jsonl", '{"id": 1, "text": "a"}\n', {"id_column": "key"}, "key is not in the first"),
        ("a.jsonl", '["one", "two"]\n', {}, "does not begin with JSON lines"),
        ("a.jsonl", '{"text": "a"}\n', {"text_b_column": "b"}, "b is not in the first record"),
        ("a.csv", "a,one\nb,two\n", {}, "--csv_header names the"),
        ("a.csv", "id~text\n1~a\n", {}, "--csv_separator says"),
        ("a.csv", "id;text;a,b,c\n1;x;\n", {}, "--csv_separator says"),
        ("a.csv", "# of, today\nid,text\na,one\n", {}, "grep -v '^#' FILE"),
        ("a.csv", "id,text\na,'one, two'\nb,two\nc,three\nd,four\n", {}, "single quotes around"),
        ("a.csv", "id;text\na;'it''s; one'\n", {}, "single quotes around fields"),
        ("a.csv", "'id','text'\n'a','one'\n", {}, "single quotes around fields"),
        ("a.csv", 'id,text\na,"say \\"no\\" to\nit"\n', {}, "--csv_quoting escaped reads"),
        ("a.csv", "id\ttext\na\t'one two'\nb\ttwo\n", {}, "single quotes around fields"),
    ],
)
def test_a_wrong_table_is_said_before_work(run, name, data, flags, message):
    run.refused({name: data}, message, **flags)


def test_files_that_disagree_are_named(tmp_path, run):
    pq.write_table(pa.table({"text": ["one"], "c": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["two"], "c": ["x"]}), tmp_path / "b.parquet")
    kinds = f"c is int64 in {tmp_path}/a.parquet and string in {tmp_path}/b.parquet"
    message = f"--extra_columns {kinds}, which no type holds without loss; write c:TYPE"
    run.refused(tmp_path / "*.parquet", message, extra_columns="c")
    pq.write_table(pa.table({"body": ["two"]}), tmp_path / "b.parquet")
    message = f"not a column of {tmp_path}/b.parquet, which has body"
    run.refused(tmp_path / "*.parquet", message)


def test_tables_on_cloud_storage(tmp_path, run, gcs):
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    records = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    run.written({"in/b.csv.gz": gzip.compress(csv_bytes(TEXTS)), "in/0002_part_00": records})
    run.written({"in/c.json.gz": json.dumps(table.to_pylist()), "in/d.log": records})
    pq.write_table(table, tmp_path / "in" / "0001_part_00", row_group_size=2)  # as warehouses do
    url = gcs.put_folder(tmp_path / "in", "tables", "in")
    far, near = run(f"{url}/*", "far", block_bytes=60), run(tmp_path / "in", "near", block_bytes=60)
    assert rows(far) == rows(near)
    assert record(far)["counts"]["embedded"] == 5 * len(TEXTS)
    array = json.dumps(table.to_pylist())
    gcs.put("tables", {"array/a.jsonl": records * 9, "array/b.jsonl": array})
    run.refused("gs://tables/array", "b.jsonl holds a JSON array, not a record a line", "none")


def test_dialects_are_flags(run):
    flags = {"csv_quoting": "none", "csv_separator": "^A", "csv_header": "id,text"}
    output = run({"in.csv": 'a\x01"one\nb\x01two\n'}, keep_text=True, **flags)
    assert (rows(output)["id"], rows(output)["text"]) == (["a", "b"], ['"one', "two"])
    assert record(output)["options"]["csv_quoting"] == "none"


def test_names_with_commas_are_quoted_and_those_with_colons_have_a_type(tmp_path, run):
    named = {"id": 1, "Title, full": "one", "Body\nlong": "two", "a, b:c": "x", "dc:year": 2015}
    pd.DataFrame([named]).to_csv(tmp_path / "in.csv", index=False)
    run.written({"in.jsonl": [named]})
    flags = {"text_column": '"Title, full","Body\nlong"', "keep_text": True}
    flags["extra_columns"] = '"a, b:c:string",dc:year:int64'
    for name in ("in.csv", "in.jsonl"):
        output = run(tmp_path / name, f"out-{name}", **flags)
        found = rows(output)
        assert (found["text"], found["a, b:c"], found["dc:year"]) == (["one two"], ["x"], [2015])
        given = record(output)["options"]
        assert given["extra_columns"] == ["a, b:c:string", "dc:year:int64"]
    words = as_words("extra_columns", given["extra_columns"])
    assert words == [f"--extra_columns={flags['extra_columns']}"]
