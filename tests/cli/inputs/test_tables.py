"""Tables: CSV and Parquet in through the command line, with lines beside them."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import data_files, embed, files, record, rejected, rows, vectors
from tests.support.rounding import assert_near

TEXTS = ["The river bank, muddy.", 'a "quoted" text', "two\nlines", "naïve café", "last"]


def csv_bytes(texts):
    quoted = [text.replace('"', '""') for text in texts]
    return ("id,text\r\n" + "".join(f'{n},"{text}"\r\n' for n, text in enumerate(quoted))).encode()


def test_every_format_gives_the_same_vectors(tmp_path, tiny_bundle):
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbf" + csv_bytes(TEXTS))
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(csv_bytes(TEXTS)))
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    expected = bert_embed.load(tiny_bundle).encode(TEXTS)
    for name in ("in.csv", "in.csv.gz", "in.parquet", "in.jsonl"):
        output = tmp_path / f"out-{name}"
        assert embed(output, tiny_bundle, tmp_path / name, block_bytes=40) == 0
        kind = int if name == "in.parquet" else str  # an integer column is one in the output, too
        assert rows(output)["id"] == [kind(n) for n in range(5)]
        assert_near(vectors(output), expected)
        assert record(output)["counts"]["embedded"] == len(TEXTS)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"], ids=["semicolon", "tab", "bar"])
def test_the_header_says_what_separates_the_columns(tmp_path, tiny_bundle, delimiter):
    commas = tmp_path / "commas.csv"
    commas.write_bytes(b'id,"a, b",text\n' + b'1,x,"one; two, three"\n2,,"four|\t""five"""\n' * 4)
    written = csv.reader(io.StringIO(commas.read_text()))
    for name, opened in (("other.csv", open), ("other.csv.gz", gzip.open)):
        with opened(tmp_path / name, "wt", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([*written])
        written = csv.reader(io.StringIO(commas.read_text()))
    assert embed(tmp_path / "out", tiny_bundle, commas, block_bytes=40) == 0
    for name in ("other.csv", "other.csv.gz"):
        output = tmp_path / f"out-{name}"
        assert embed(output, tiny_bundle, tmp_path / name, block_bytes=40) == 0
        assert rows(output)["id"] == rows(tmp_path / "out")["id"]
        assert_near(vectors(output), vectors(tmp_path / "out"))


def test_a_comma_separates_where_others_are_no_more_frequent(tmp_path, tiny_bundle):
    (tmp_path / "in.csv").write_text('"a;b;c",text;,id\n1,"one;two",x\n')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.csv", text_column="text;") == 0
    assert rows(tmp_path / "out")["id"] == ["x"]


def test_texts_of_several_columns_are_joined(tmp_path, tiny_bundle):
    records = [("a", "One.", "Two, three."), ("b", "", "four"), ("c", "five", None), ("d", " ", "")]
    joined = ["One. Two, three.", "four", "five"]
    lines = [
        {"id": name, "title": title} | ({} if body is None else {"body": body})
        for name, title, body in reversed(records)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, reversed(lines))))
    names, titles, bodies = zip(*records, strict=True)
    table = pa.table({"id": names, "body": bodies, "title": titles})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    table.to_pandas().to_csv(tmp_path / "in.csv", sep=";", index=False)
    expected = bert_embed.load(tiny_bundle).encode(joined)
    for name in ("in.jsonl", "in.parquet", "in.csv"):
        output, flags = tmp_path / f"out-{name}", {"keep_text": True, "block_bytes": 40}
        assert embed(output, tiny_bundle, tmp_path / name, text_column="title, body", **flags) == 0
        assert (rows(output)["id"], rows(output)["text"]) == (["a", "b", "c"], joined)
        assert_near(vectors(output), expected)
        assert [row["id"] for row in rejected(output)] == ["d"]
        assert record(output)["input"]["text_column"] == "title,body"


@pytest.mark.parametrize("columns", ["title,", ",title", "title,title"])
def test_columns_to_join_are_different_ones(tmp_path, tiny_bundle, capsys, columns):
    (tmp_path / "in.csv").write_text("id,title\n1,one\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.csv", text_column=columns) == 2
    assert "--text_column must be one column, or several different" in capsys.readouterr().err


def test_formats_of_one_run_may_differ(tmp_path, tiny_bundle):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(csv_bytes(["one", "two"]))
    (folder / "b.jsonl").write_text('{"id": "x", "text": "three"}\n')
    pq.write_table(pa.table({"text": ["four"], "id": ["y"]}), folder / "c.parquet")
    (folder / "d.txt").write_text("five\n")
    flags = {"extra_columns": "id_copy"}
    assert embed(tmp_path / "out", tiny_bundle, folder, **flags) == 2
    assert embed(tmp_path / "out", tiny_bundle, folder) == 0
    assert rows(tmp_path / "out")["id"] == ["0", "1", "x", "y", f"{folder}/d.txt:0"]
    assert embed(tmp_path / "two", tiny_bundle, folder, limit=3) == 0
    assert rows(tmp_path / "two")["id"] == ["0", "1", "x"]


def test_without_an_id_the_place_is_one(tmp_path, tiny_bundle):
    (tmp_path / "a.csv").write_text('text,x\n"o\nne",1\ntwo,2\n')
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), tmp_path / "b.parquet", row_group_size=1)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "*.*", block_bytes=10) == 0
    places = [f"{tmp_path}/a.csv:7", f"{tmp_path}/a.csv:16"]
    places += [f"{tmp_path}/b.parquet:{row}" for row in range(3)]
    assert rows(tmp_path / "out")["id"] == places


def test_a_run_continues_and_counts_what_was_refused(tmp_path, tiny_bundle):
    texts = [f"text {n}" if n % 5 else None for n in range(60)]
    table = pa.table({"id": range(60), "text": pa.array(texts, pa.string())})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    output = tmp_path / "out"
    flags = {"block_bytes": 300, "part_docs": 7}
    assert embed(output, tiny_bundle, tmp_path / "in.parquet", **flags) == 0
    before = files(output)
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (60, 48, 12)
    assert {each["reason"] for each in rejected(output)} == {"missing text"}
    (output / "_state/blocks/0000001-00000.json").unlink()
    sorted(output.glob("embeddings/part-0000002-*"))[0].unlink()
    assert embed(output, tiny_bundle, tmp_path / "in.parquet", **flags) == 0
    assert files(output) == before
    assert record(output)["counts"]["parts_reused"] == counts["parts"] - 2  # what was lost


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("in.csv", {"block_bytes": 100}),
        ("in.parquet", {"block_bytes": 100, "extra_columns": "c"}),
        ("in.parquet", {"extra_columns": "c"}),  # the bytes of which divide the block into parts
    ],
)
def test_search_shows_the_texts(tmp_path, tiny_bundle, capsys, name, flags):
    texts = [f"text of the document {n}" for n in range(40)]
    (tmp_path / "in.csv").write_bytes(csv_bytes(texts))
    table = pa.table({"id": range(40), "text": texts, "c": ["c" * (1 << 20)] * 40})
    pq.write_table(table, tmp_path / "in.parquet")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / name, **flags) == 0
    assert len(data_files(tmp_path / "out")) > 1
    capsys.readouterr()
    words = ["search", f"{tmp_path}/out", texts[39], "--k=1"]
    assert main([*words, f"--model={tiny_bundle}"]) == 0
    assert texts[39] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "data", "flags", "message"),
    [
        ("a.csv", b"id,body\n1,one\n", {}, "--text_column text is not a column of"),
        ("a.csv", b"id,text\n1,one\n", {"text_column": "text,body"}, "body is not a column of"),
        ("a.csv", b"text,text\none,two\n", {}, "has two columns of the name text"),
        ("a.csv", b"text\none\n", {"id_column": "key"}, "--id_column key is not a column of"),
        ("a.parquet", b"no table", {}, "a.parquet cannot be read as Parquet"),
    ],
)
def test_a_wrong_table_is_said_before_work(
    tmp_path, tiny_bundle, capsys, name, data, flags, message
):
    (tmp_path / name).write_bytes(data)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / name, **flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_files_that_disagree_are_named(tmp_path, tiny_bundle, capsys):
    pq.write_table(pa.table({"text": ["one"], "c": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["two"], "c": ["x"]}), tmp_path / "b.parquet")
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, tmp_path / "*.parquet", extra_columns="c") == 2
    message = (
        f"--extra_columns c is int64 in {tmp_path}/a.parquet and string in {tmp_path}/b.parquet"
    )
    assert f"{message}, which no type holds without loss; write c:TYPE" in capsys.readouterr().err
    pq.write_table(pa.table({"body": ["two"]}), tmp_path / "b.parquet")
    assert embed(output, tiny_bundle, tmp_path / "*.parquet") == 2
    assert f"not a column of {tmp_path}/b.parquet, which has body" in capsys.readouterr().err


def test_any_name_can_be_a_table(tmp_path, tiny_bundle):
    (tmp_path / "rows").write_bytes(csv_bytes(["one"]))
    pq.write_table(pa.table({"text": ["two"]}), tmp_path / "part-0")
    for name, kind in (("rows", "csv"), ("part-0", "parquet")):
        output = tmp_path / f"out-{kind}"
        assert embed(output, tiny_bundle, tmp_path / name, input_format=kind) == 0
        assert len(rows(output)["id"]) == 1


def test_tables_on_cloud_storage(tmp_path, tiny_bundle, gcs):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(csv_bytes(TEXTS))
    (folder / "b.csv.gz").write_bytes(gzip.compress(csv_bytes(TEXTS)))
    table = pa.table({"id": range(len(TEXTS)), "text": TEXTS})
    pq.write_table(table, folder / "c.parquet", row_group_size=2)
    # As warehouses name them: what these are their first bytes say.
    pq.write_table(table, folder / "0001_part_00")
    records = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    (folder / "0002_part_00").write_bytes(records)
    (folder / "0003_part_00.gz").write_bytes(gzip.compress(records))
    gcs.client.create_bucket("tables")
    url = gcs.put_folder(folder, "tables", "in")
    for output, where in ((tmp_path / "far", f"{url}/*"), (tmp_path / "near", folder)):
        assert embed(output, tiny_bundle, where, block_bytes=60) == 0
    assert rows(tmp_path / "far") == rows(tmp_path / "near")
    assert record(tmp_path / "far")["counts"]["embedded"] == 6 * len(TEXTS)
