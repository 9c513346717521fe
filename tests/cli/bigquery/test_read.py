"""Tables and queries of a real BigQuery emulator as input, through the command line."""

import itertools
import json
from itertools import chain
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from google.cloud.bigquery import SchemaField, Table

from bert_embed.pipeline.run import tables
from tests.support.command import (
    data_files,
    files,
    record,
    rejected,
    rows,
    say_status,
    vectors,
)
from tests.support.daily import counts
from tests.support.rounding import assert_near

SCHEMA = [("id", "STRING", "NULLABLE"), ("text", "STRING", "NULLABLE"), ("n", "INT64", "NULLABLE")]
HASHED = [*SCHEMA, ("text_hash", "INT64", "NULLABLE")]
TEXTS = [f"{word} river {n}" for n, word in enumerate(["red", "bank", "seven", "stars"] * 10)]
QUERY, DRY = {"project": "test-project"}, {"dry_run": True}
INTO = {"output_format": "bigquery", "output_table": "{t}", "keep_text": True}
SMALL = {"block_bytes": 1000}  # ten rows, as the proxy sizes them: four blocks


@pytest.fixture
def table(filled):
    """A table of forty documents."""
    return filled([{"id": f"k{n:02d}", "text": text, "n": n} for n, text in enumerate(TEXTS)])


def shown(table):
    return table.replace(".", ":", 1)


def by_id(output):
    return dict(zip(rows(output)["id"], map(tuple, rows(output)["embedding"]), strict=True))


@pytest.fixture
def filled(bigquery, dataset):
    """A function that fills a table; returns its name."""
    numbers = itertools.count()

    def fill(rows, schema=SCHEMA):
        name = f"test-project.{dataset}.t{next(numbers)}"
        bigquery.fill(name, rows, schema)
        return name

    return fill


def test_a_table_gives_the_vectors_that_a_file_gives(table, run):
    lines = [{"id": f"k{n:02d}", "text": text} for n, text in enumerate(TEXTS)]
    wanted = by_id(run({"in.jsonl": lines}, "file"))
    flags = SMALL | {"keep_text": True, "part_docs": 3}
    output = run(shown(table), **flags)
    texts = dict(zip(rows(output)["id"], rows(output)["text"], strict=True))
    assert texts == {f"k{n:02d}": text for n, text in enumerate(TEXTS)}
    found = by_id(output)
    assert found.keys() == wanted.keys()
    for name, vector in wanted.items():
        assert_near(found[name], vector)
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"]) == (40, 40)
    # Blocks are the same every time, and sorted.
    for form in (table, f"bq://{table}"):
        assert files(run(form, form[:2], **flags)) == files(output)
    for block in range(4):
        paths = sorted(output.glob(f"embeddings/part-{block:07d}-*"))
        parts = [pq.read_table(path)["id"].to_pylist() for path in paths]
        assert max(map(len, parts)) <= 3 < sum(map(len, parts))
        assert [*chain.from_iterable(parts)] == sorted(chain.from_iterable(parts))


def test_a_column_is_the_context_of_chunks(filled, run):
    documents = [
        {"id": "a", "text": "The bank. A river.", "title": "Seven stars", "n": 1},
        {"id": "b", "text": "The bank. A river.", "title": None, "n": 2},
    ]
    table = shown(filled(documents, [*SCHEMA, ("title", "STRING", "NULLABLE")]))
    flags = {"chunk": "sentence", "chunk_context": "title"}
    of_file, output = run({"in.jsonl": documents}, "file", **flags), run(table, **flags)
    assert rows(output)["text_hash"] == rows(of_file)["text_hash"]
    assert_near(vectors(output), vectors(of_file))
    for column, said in (("n", "it must be STRING"), ("headline", "is no column of")):
        run.refused(table, said, "no", chunk="sentence", chunk_context=column)


def test_finished_blocks_are_not_embedded_again(bigquery, table, run):
    output = run(shown(table), **SMALL)
    before = files(output)
    run(shown(table), **SMALL)
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000002-00000.json").unlink()
    times = {path: path.stat().st_mtime_ns for path in output.glob("embeddings/part-*")}
    run(shown(table), **SMALL)
    assert files(output) == before
    assert record(output)["counts"]["parts_reused"] == 3
    changed = [path.name for path in times if path.stat().st_mtime_ns != times[path]]
    assert changed == ["part-0000002-00000.parquet"]
    # A table that changed is another run.
    bigquery.rows(f"INSERT INTO `{table}` (id, text) VALUES ('new', 'a new text')")
    run.refused(shown(table), "holds another run (the input changed since)", **SMALL)
    again = run(shown(table), overwrite=True, **SMALL)
    assert record(again)["counts"]["embedded"] == 41


def test_rows_that_are_no_documents_are_rejected(filled, run):
    name = filled(
        [
            {"id": "a", "text": "a text"},
            {"id": None, "text": "no id"},
            {"id": "b", "text": None},
            {"id": "c", "text": "  "},
            {"id": "d", "text": "same id"},
            {"id": "d", "text": "another text"},
        ]
    )
    output = run(shown(name))
    found = rejected(output)
    reasons = [(None, "missing id"), ("b", "missing text"), ("c", "empty text")]
    assert [(row["id"], row["reason"]) for row in found] == reasons
    assert {row["source"] for row in found} == {shown(name)}
    assert json.loads(found[0]["record"]) == {"id": None, "text": "no id"}
    assert sorted(rows(output)["id"]) == ["a", "d", "d"]
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (6, 3, 3)
    assert record(run(shown(filled([])), "empty"))["counts"]["records"] == 0


def test_integers_are_ids_and_lists_are_words(filled, run):
    schema = [("key", "INT64", "REQUIRED"), ("words", "STRING", "REPEATED")]
    name = filled([{"key": n, "words": ["red", f"river{n}"]} for n in (30, 4)], schema)
    flags = {"id_column": "key", "text_column": "words", "granularity": "word"}
    found = pq.read_table(next(run(shown(name), **flags).glob("words/part-*"))).to_pylist()
    assert [row["id"] for row in found] == [30, 4]  # in the order of their strings
    assert [word["word"] for word in found[1]["words"]] == ["red", "river4"]


def test_a_query_is_run_once_for_a_run(bigquery, table, run):
    sql = f"SELECT id, UPPER(text) AS text FROM `{table}` WHERE n < 7"
    flags = {"query": sql, "project": "test-project"}
    output = run(**flags)
    assert sorted(rows(output)["id"]) == [f"k{n:02d}" for n in range(7)]
    before = vectors(output)
    bigquery.rows(f"DELETE FROM `{table}` WHERE n = 3")
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000000-00000.json").unlink()
    run(**flags)  # the same rows, for it is the same run
    np.testing.assert_array_equal(vectors(output), before)
    run(**flags)
    assert "nothing to do" in run.out
    assert len(rows(run(**flags, overwrite=True))["id"]) == 6
    datasets = [each.dataset_id for each in bigquery.client.list_datasets(include_all=True)]
    assert "_bert_embed_us" in datasets


@pytest.mark.parametrize("kind", ["table", "query"])
def test_a_limit_reads_so_many_rows_and_the_same_again(table, run, kind):
    inputs = shown(table) if kind == "table" else ()
    flags = {} if inputs else {"query": f"SELECT id, text FROM `{table}` WHERE n < 7;\n"}
    flags |= QUERY | {"limit": 3}
    found = rows(run(inputs, **flags))["id"]
    assert len(set(found)) == 3
    assert rows(run(inputs, **flags))["id"] == found
    assert "nothing to do" in run.out


def test_rows_that_an_earlier_output_has_are_skipped(bigquery, table, run):
    flags = {"block_bytes": 300, "part_docs": 5}
    first = run(shown(table), "one", **flags)
    before = rows(first)["id"]
    bigquery.rows(f"DELETE FROM `{table}` WHERE n = 3")
    bigquery.rows(f"UPDATE `{table}` SET text = 'another river' WHERE n = 5")
    bigquery.rows(f"INSERT INTO `{table}` (id, text, n) VALUES ('new', 'a new bank', 1000)")
    second = run(shown(table), "two", skip_existing=first, **flags)
    assert sorted(rows(second)["id"]) == ["k05", "new"]
    assert counts(second) == (len(before), 2, len(before) - 2, 0)
    run(shown(table), "two", skip_existing=first, **flags)


def rows_of_queries(bigquery):
    """The tables that hold them, which BigQuery drops after seven days."""
    datasets = bigquery.client.list_datasets(include_all=True)
    found = (each for one in datasets for each in bigquery.client.list_tables(one.reference))
    return [each.reference for each in found if each.table_id.startswith("query_")]


def test_a_complete_run_outlives_the_rows_of_its_query(bigquery, table, run):
    flags = {"query": f"SELECT id, text, n FROM `{table}` WHERE n < 5", "project": "test-project"}
    output = run(**flags)
    for each in rows_of_queries(bigquery):
        bigquery.client.delete_table(each)
    for more in ({}, {"dry_run": True}):
        run(**flags, **more)
        assert ("nothing to do" in run.out) == (not more)
    assert not rows_of_queries(bigquery), "the query was billed again"
    # What is asked is another run: it is refused, not taken for that one.
    run.refused((), "holds another run", **flags, id_column="n")
    say_status(output, "failed")
    run.refused((), "holds an unfinished run whose rows have expired", **flags)
    assert len(rows(run(**flags, overwrite=True))["id"]) == 5


def test_a_dry_run_of_a_query_makes_nothing(bigquery, table, run):
    for each in list(bigquery.client.list_datasets(include_all=True)):
        if each.dataset_id.startswith("_bert_embed"):
            bigquery.client.delete_dataset(each.reference, delete_contents=True)
    run(query=f"SELECT * FROM `{table}`", project="test-project", dry_run=True)
    assert run.out.startswith("from the --query\nmodel ")
    assert "(a dry run does not run the --query)" in run.out
    run(shown(table), limit=5, dry_run=True)
    assert run.out.startswith(f"from {shown(table)}\nmodel ")
    assert "(a dry run does not run a query for --limit), on which the number" in run.out
    datasets = [each.dataset_id for each in bigquery.client.list_datasets(include_all=True)]
    assert "_bert_embed_us" not in datasets


@pytest.mark.parametrize(
    ("inputs", "flags", "said"),
    [
        (["test-project:nowhere.t"], {}, "no such table exists, and no file of that name"),
        (["{s}"], {"text_column": "body"}, "--text_column body is no column of --input {s}"),
        (["{s}"], {"text_column": "n"}, "--text_column n of --input {s} is INT"),
        (["{s}"], {"text_column": "a`b"}, "is not a column of BigQuery"),
        (["{s}"], {"extra_columns": "m.y"}, "--query 'SELECT m.y AS y, …'"),
        (["{s}"], {"extra_columns": "text_hash"}, "clashes with the output's own column"),
        (["{s}"], {**DRY, "limit": 5, "text_column": "body"}, "body is no column of --input {s}"),
        ([], {**QUERY, "query": "SELECT id FROM `{t}`", **DRY}, "text is no column of --query"),
        (["{s}$20260101"], {}, "names a partition"),
        ([], {**QUERY, "query": "SELEKT 1"}, "--query: "),
        (["{s}"], INTO, "--output_table {s} is the --input, whose rows would be replaced"),
        (["{s}"], {**INTO, "write_disposition": "truncate"}, "--output_table {s} is the --input"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(table, run, inputs, flags, said):
    def named(text):
        return str(text).replace("{s}", shown(table)).replace("{t}", table)

    given = {name: named(value) for name, value in flags.items()}
    run.refused(list(map(named, inputs)), named(said), **given)


def test_a_table_that_requires_a_filter_is_read_with_a_query(bigquery, dataset, run):
    filtered = Table(f"test-project.{dataset}.t", schema=[SchemaField(*each) for each in HASHED])
    filtered.require_partition_filter = True
    bigquery.client.create_table(filtered)
    table = f"test-project:{dataset}.t"
    run.refused(table, f"read it with --query 'SELECT * FROM `test-project.{dataset}.t` WHERE")
    message = "name the output folders of the runs that filled it"
    run.refused({"in.txt": "the bank\n"}, message, skip_existing=table)


def test_rows_out_of_reach_are_said_soon(table, run, monkeypatch):
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.PATIENCE", 2.0)
    monkeypatch.setenv("BIGQUERY_STORAGE_EMULATOR_HOST", "127.0.0.1:9")  # nobody listens there
    run(shown(table), code=1)
    assert "BigQuery at 127.0.0.1:9 cannot be reached" in run.err


def test_columns_pass_through_with_their_types(bigquery, filled, run):
    """From a table into a table."""
    kinds = {"n": ("INT64", 7), "seen": ("TIMESTAMP", "2026-01-31 12:00:00+00:00")}
    kinds |= {"day": ("DATE", "2026-01-31"), "s": ("STRING", "words")}
    schema = [*SCHEMA[:2], *((each, kind, "NULLABLE") for each, (kind, _) in kinds.items())]
    full = {"id": "a", "text": "a text", "tags": ["x", "y"]}
    full |= {each: value for each, (_, value) in kinds.items()}
    rows = [full, {"id": "b", "text": "nothing else", "tags": []}]
    name = filled(rows, [*schema, ("tags", "STRING", "REPEATED")])
    into, passed = name + "_vectors", ",".join([*kinds, "tags"])
    flags = {"extra_columns": passed, "output_table": shown(into), "output_format": "bigquery"}
    run(shown(name), **flags)
    there = bigquery.rows(f"SELECT {passed} FROM `{into}` ORDER BY id")
    assert there == bigquery.rows(f"SELECT {passed} FROM `{name}` ORDER BY id")
    fields = {each.name: each.field_type for each in bigquery.client.get_table(into).schema}
    assert {each: fields[each] for each in kinds} == {each: kinds[each][0] for each in kinds}
    assert bigquery.rows(f"SELECT MIN(ARRAY_LENGTH(embedding)) FROM `{into}`") == [(32,)]


def test_rows_without_an_id_are_spread_over_the_blocks(filled, run):
    """One worker would hold them all, in the block of the empty id."""
    name = shown(filled([{"id": None, "text": text, "n": 1} for text in TEXTS]))
    one, other = (run(name, to, code=0, **SMALL, max_rejected="100%") for to in "ab")
    assert record(one)["rejected"] == record(other)["rejected"] == {"missing id": 40}
    held = [path.read_text().count("\n") for path in data_files(one, "rejected")]
    assert len(held) == 4
    assert max(held) < 20
    assert files(one) == files(other)


def test_columns_that_are_not_read_make_no_blocks(table, run, monkeypatch):
    """A wide table: what a query over the columns that are read would read is what counts."""
    dry_query = mock.Mock(return_value=mock.Mock(total_bytes_processed=1500))
    monkeypatch.setattr(tables, "dry_query", dry_query)
    assert record(run(shown(table), **SMALL))["plan"]["blocks"] == 2
    dry_query.assert_called_once_with(mock.ANY, f"SELECT `text`, `id` FROM `{table}`")
