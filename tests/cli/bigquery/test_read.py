"""Tables and queries of a real BigQuery emulator as input, through the command line."""

import itertools
import json
from unittest import mock

import numpy as np
import pytest
from google.cloud.bigquery import SchemaField, Table

from bert_embed.pipeline.run import tables
from tests.support.command import (
    data_files,
    embed,
    files,
    record,
    rejected,
    rows,
    say_status,
    vectors,
)
from tests.support.rounding import assert_near

_NUMBERS = itertools.count()
SCHEMA = [("id", "STRING", "NULLABLE"), ("text", "STRING", "NULLABLE"), ("n", "INT64", "NULLABLE")]
HASHED = [*SCHEMA, ("text_hash", "INT64", "NULLABLE")]
TEXTS = [f"{word} river {n}" for n, word in enumerate(["red", "bank", "seven", "stars"] * 10)]
SMALL = {"block_bytes": 1000}  # ten rows, as the proxy sizes them: four blocks


@pytest.fixture
def table(bigquery):
    """A table of forty documents, in a dataset of the test's own."""
    name = f"test-project.in_{next(_NUMBERS)}.t"
    rows = [{"id": f"k{n:02d}", "text": text, "n": n} for n, text in enumerate(TEXTS)]
    bigquery.fill(name, SCHEMA, rows)
    return name


def shown(table):
    return table.replace(".", ":", 1)


def by_id(output):
    return dict(zip(rows(output)["id"], map(tuple, rows(output)["embedding"]), strict=True))


def test_a_table_gives_the_vectors_that_a_file_gives(table, tiny_bundle, tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [{"id": f"k{n:02d}", "text": text} for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert embed(tmp_path / "file", tiny_bundle, path) == 0
    assert embed(tmp_path / "table", tiny_bundle, shown(table), keep_text=True, **SMALL) == 0
    texts = dict(zip(rows(tmp_path / "table")["id"], rows(tmp_path / "table")["text"], strict=True))
    assert texts == {f"k{n:02d}": text for n, text in enumerate(TEXTS)}
    found, wanted = by_id(tmp_path / "table"), by_id(tmp_path / "file")
    assert found.keys() == wanted.keys()
    for name, vector in wanted.items():
        assert_near(found[name], vector)
    counts = record(tmp_path / "table")["counts"]
    assert (counts["records"], counts["embedded"], counts["parts"]) == (40, 40, 4)


@pytest.mark.parametrize("form", ["test-project:{}", "test-project.{}", "bq://test-project.{}"])
def test_blocks_are_the_same_every_time_and_sorted(table, form, tiny_bundle, tmp_path):
    name = form.format(table.partition(".")[2])
    assert embed(tmp_path / "a", tiny_bundle, shown(table), **SMALL, part_docs=3) == 0
    assert embed(tmp_path / "b", tiny_bundle, name, **SMALL, part_docs=3) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for block in range(4):
        found = []
        for path in sorted((tmp_path / "a").glob(f"embeddings/part-{block:07d}-*")):
            import pyarrow.parquet as pq

            ids = pq.read_table(path)["id"].to_pylist()
            assert len(ids) <= 3
            found += ids
        assert found == sorted(found)
        assert len(found) > 3


def test_a_column_is_the_context_of_chunks(bigquery, tiny_bundle, tmp_path, capsys):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    documents = [
        {"id": "a", "text": "The bank. A river.", "title": "Seven stars", "n": 1},
        {"id": "b", "text": "The bank. A river.", "title": None, "n": 2},
    ]
    bigquery.fill(name, [*SCHEMA, ("title", "STRING", "NULLABLE")], documents)
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, documents)))
    flags = {"chunk": "sentence", "chunk_context": "title"}
    assert embed(tmp_path / "file", tiny_bundle, tmp_path / "in.jsonl", **flags) == 0
    assert embed(tmp_path / "table", tiny_bundle, shown(name), **flags) == 0
    assert rows(tmp_path / "table")["text_hash"] == rows(tmp_path / "file")["text_hash"]
    assert_near(vectors(tmp_path / "table"), vectors(tmp_path / "file"))
    for column, said in (("n", "it must be STRING"), ("headline", "is no column of")):
        other = flags | {"chunk_context": column}
        assert embed(tmp_path / "no", tiny_bundle, shown(name), **other) == 2
        assert said in capsys.readouterr().err


def test_finished_blocks_are_not_embedded_again(table, tiny_bundle, tmp_path):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, shown(table), **SMALL) == 0
    before = files(output)
    assert embed(output, tiny_bundle, shown(table), **SMALL) == 0
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000002-00000.json").unlink()
    times = {path: path.stat().st_mtime_ns for path in output.glob("embeddings/part-*")}
    assert embed(output, tiny_bundle, shown(table), **SMALL) == 0
    assert files(output) == before
    assert record(output)["counts"]["parts_reused"] == 3
    changed = [path.name for path in times if path.stat().st_mtime_ns != times[path]]
    assert changed == ["part-0000002-00000.parquet"]


def test_a_table_that_changed_is_another_run(bigquery, table, tiny_bundle, tmp_path, capsys):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, shown(table)) == 0
    bigquery.rows(f"INSERT INTO `{table}` (id, text) VALUES ('new', 'a new text')")
    assert embed(output, tiny_bundle, shown(table)) == 2
    assert "holds another run (the input changed since)" in capsys.readouterr().err
    assert embed(output, tiny_bundle, shown(table), overwrite=True) == 0
    assert record(output)["counts"]["embedded"] == 41


def test_rows_that_are_no_documents_are_rejected(bigquery, tiny_bundle, tmp_path):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    rows_there = [
        {"id": "a", "text": "a text"},
        {"id": None, "text": "no id"},
        {"id": "b", "text": None},
        {"id": "c", "text": "  "},
        {"id": "d", "text": "same id"},
        {"id": "d", "text": "another text"},
    ]
    bigquery.fill(name, SCHEMA, rows_there)
    assert embed(tmp_path / "out", tiny_bundle, shown(name)) == 0
    found = rejected(tmp_path / "out")
    assert [(row["id"], row["reason"]) for row in found] == [
        (None, "missing id"),
        ("b", "missing text"),
        ("c", "empty text"),
    ]
    assert {row["source"] for row in found} == {shown(name)}
    assert json.loads(found[0]["record"]) == {"id": None, "text": "no id"}
    assert sorted(rows(tmp_path / "out")["id"]) == ["a", "d", "d"]
    counts = record(tmp_path / "out")["counts"]
    assert (counts["records"], counts["embedded"], counts["rejected"]) == (6, 3, 3)


def test_integers_are_ids_and_lists_are_words(bigquery, tiny_bundle, tmp_path):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    schema = [("key", "INT64", "REQUIRED"), ("words", "STRING", "REPEATED")]
    there = [{"key": n, "words": ["red", f"river{n}"]} for n in (30, 4)]
    bigquery.fill(name, schema, there)
    flags = {"id_column": "key", "text_column": "words", "granularity": "word"}
    assert embed(tmp_path / "out", tiny_bundle, shown(name), **flags) == 0
    import pyarrow.parquet as pq

    found = pq.read_table(next((tmp_path / "out").glob("words/part-*"))).to_pylist()
    assert [row["id"] for row in found] == [30, 4]  # in the order of their strings
    assert [word["word"] for word in found[1]["words"]] == ["red", "river4"]


def test_texts_of_several_columns_are_joined(bigquery, tiny_bundle, tmp_path, capsys):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    schema = [*SCHEMA, ("title", "STRING", "NULLABLE"), ("words", "STRING", "REPEATED")]
    rows_there = [
        {"id": "a", "title": "one", "text": "two"},
        {"id": "b", "title": None, "text": "three"},
        {"id": "c", "title": None, "text": None},
    ]
    bigquery.fill(name, schema, rows_there)
    flags = {"text_column": "title,text", "keep_text": True}
    assert embed(tmp_path / "out", tiny_bundle, shown(name), **flags) == 0
    assert dict(zip(rows(tmp_path / "out")["id"], rows(tmp_path / "out")["text"], strict=True)) == {
        "a": "one two",
        "b": "three",
    }
    assert [row["reason"] for row in rejected(tmp_path / "out")] == ["missing text"]
    flags["text_column"] = "text,words"
    assert embed(tmp_path / "words", tiny_bundle, shown(name), **flags) == 2
    assert "words of --input" in capsys.readouterr().err


def test_an_empty_table_is_a_run_without_rows(bigquery, tiny_bundle, tmp_path):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    bigquery.fill(name, SCHEMA, [])
    assert embed(tmp_path / "out", tiny_bundle, shown(name)) == 0
    assert record(tmp_path / "out")["counts"]["records"] == 0


def test_a_query_is_run_once_for_a_run(bigquery, table, tiny_bundle, tmp_path, capsys):
    output = tmp_path / "out"
    sql = f"SELECT id, UPPER(text) AS text FROM `{table}` WHERE n < 7"
    flags = {"query": sql, "project": "test-project"}
    assert embed(output, tiny_bundle, **flags) == 0
    assert sorted(rows(output)["id"]) == [f"k{n:02d}" for n in range(7)]
    before = vectors(output)
    bigquery.rows(f"DELETE FROM `{table}` WHERE n = 3")
    say_status(output, "running")
    (output / "_state" / "blocks" / "0000000-00000.json").unlink()
    assert embed(output, tiny_bundle, **flags) == 0  # the same rows, for it is the same run
    np.testing.assert_array_equal(vectors(output), before)
    capsys.readouterr()
    assert embed(output, tiny_bundle, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert embed(output, tiny_bundle, **flags, overwrite=True) == 0
    assert len(rows(output)["id"]) == 6
    datasets = [each.dataset_id for each in bigquery.client.list_datasets(include_all=True)]
    assert "_bert_embed_us" in datasets


@pytest.mark.parametrize("kind", ["table", "query"])
def test_a_limit_reads_so_many_rows_and_the_same_again(
    bigquery, table, tiny_bundle, tmp_path, capsys, kind
):
    output = tmp_path / "out"
    inputs = [shown(table)] if kind == "table" else []
    flags = {} if inputs else {"query": f"SELECT id, text FROM `{table}` WHERE n < 7;\n"}
    flags |= {"project": "test-project", "limit": 3}
    assert embed(output, tiny_bundle, *inputs, **flags) == 0
    found = rows(output)["id"]
    assert len(set(found)) == 3
    capsys.readouterr()
    assert embed(output, tiny_bundle, *inputs, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert rows(output)["id"] == found


def test_rows_that_an_earlier_output_has_are_skipped(bigquery, table, tiny_bundle, tmp_path):
    flags = {"block_bytes": 300, "part_docs": 5}
    assert embed(tmp_path / "one", tiny_bundle, shown(table), **flags) == 0
    before = rows(tmp_path / "one")["id"]
    bigquery.rows(f"DELETE FROM `{table}` WHERE n = 3")
    bigquery.rows(f"UPDATE `{table}` SET text = 'another river' WHERE n = 5")
    bigquery.rows(f"INSERT INTO `{table}` (id, text, n) VALUES ('new', 'a new bank', 1000)")
    more = flags | {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, shown(table), **more) == 0
    assert sorted(rows(tmp_path / "two")["id"]) == ["k05", "new"]
    counts = record(tmp_path / "two")["counts"]
    found = (counts["records"], counts["embedded"], counts["skipped"])
    assert found == (len(before), 2, len(before) - 2)
    assert embed(tmp_path / "two", tiny_bundle, shown(table), **more) == 0


def expire(bigquery):
    """Drops the rows of all queries, as BigQuery does after seven days."""
    for each in bigquery.client.list_datasets(include_all=True):
        for found in bigquery.client.list_tables(each.reference):
            if found.table_id.startswith("query_"):
                bigquery.client.delete_table(found.reference)


def test_a_complete_run_outlives_the_rows_of_its_query(
    bigquery, table, tiny_bundle, tmp_path, capsys
):
    output = tmp_path / "out"
    flags = {"query": f"SELECT id, text, n FROM `{table}` WHERE n < 5", "project": "test-project"}
    assert embed(output, tiny_bundle, **flags) == 0
    expire(bigquery)
    capsys.readouterr()
    for more in ({}, {"dry_run": True}):
        assert embed(output, tiny_bundle, **flags, **more) == 0
        assert ("nothing to do" in capsys.readouterr().out) == (not more)
    datasets = bigquery.client.list_datasets(include_all=True)
    names = [t.table_id for each in datasets for t in bigquery.client.list_tables(each.reference)]
    assert not any(name.startswith("query_") for name in names), "the query was billed again"
    # What is asked is another run: it is refused, not taken for that one.
    assert embed(output, tiny_bundle, **flags, id_column="n") == 2
    assert "holds another run" in capsys.readouterr().err
    say_status(output, "failed")
    assert embed(output, tiny_bundle, **flags) == 2
    assert "holds an unfinished run whose rows have expired" in capsys.readouterr().err
    assert embed(output, tiny_bundle, **flags, overwrite=True) == 0
    assert len(rows(output)["id"]) == 5


def test_a_dry_run_of_a_query_makes_nothing(bigquery, table, tiny_bundle, tmp_path, capsys):
    for each in list(bigquery.client.list_datasets(include_all=True)):
        if each.dataset_id.startswith("_bert_embed"):
            bigquery.client.delete_dataset(each.reference, delete_contents=True)
    flags = {"query": f"SELECT * FROM `{table}`", "project": "test-project", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, **flags) == 0
    said = capsys.readouterr().out
    assert said.startswith("from the --query\nmodel ")
    assert "another name: a dry run does not run the --query\n" in said
    flags = {"limit": 5, "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, shown(table), **flags) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"from {shown(table)}\nmodel ")
    assert "another name: a dry run does not run a query for --limit\n" in said
    datasets = [each.dataset_id for each in bigquery.client.list_datasets(include_all=True)]
    assert "_bert_embed_us" not in datasets


def test_a_table_in_and_a_table_out(bigquery, table, tiny_bundle, tmp_path):
    into = table.rpartition(".")[0] + ".vectors"
    flags = {"output_format": "bigquery", "output_table": shown(into), **SMALL}
    assert embed(tmp_path / "out", tiny_bundle, shown(table), **flags) == 0
    joined = bigquery.rows(
        f"SELECT COUNT(*), MIN(ARRAY_LENGTH(v.embedding)) FROM `{table}` t "
        f"JOIN `{into}` v ON t.id = v.id"
    )
    assert joined == [(40, 32)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"input": "test-project:nowhere.t"}, "no such table exists, and no file of that name"),
        ({"input": "{t}", "text_column": "body"}, "--text_column body is no column of --input {s}"),
        ({"input": "{t}", "id_column": "key"}, "--id_column key is no column"),
        ({"input": "{t}", "text_column": "n"}, "--text_column n of --input {s} is INT"),
        ({"input": "{t}", "text_column": "a`b"}, "is not a column of BigQuery"),
        ({"input": "{t}", "extra_columns": "m"}, "--extra_columns m is no column of --input {s}"),
        ({"input": "{t}", "extra_columns": "text_hash"}, "clashes with the output's own column"),
        (
            {"input": "{t}", "limit": 5, "dry_run": True, "text_column": "body"},
            "--text_column body is no column of --input {s}",
        ),
        (
            {"query": "SELECT id FROM `{q}`", "project": "test-project", "dry_run": True},
            "--text_column text is no column of --query",
        ),
        ({"input": "{t}$20260101"}, "names a partition"),
        ({"input": "a b", "input_format": "bigquery"}, "--input 'a b' is not a table"),
        ({"query": "SELECT 1"}, "--query requires --project"),
        ({"query": "SELEKT 1", "project": "test-project"}, "--query: "),
    ],
)
def test_what_cannot_work_is_said_before_any_work(
    bigquery, table, tiny_bundle, tmp_path, capsys, flags, said
):
    given = {
        name: str(value).replace("{t}", shown(table)).replace("{q}", table)
        for name, value in flags.items()
    }
    inputs = [given.pop("input")] if "input" in given else []
    assert embed(tmp_path / "out", tiny_bundle, *inputs, **given) == 2
    assert said.replace("{s}", shown(table)) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_table_that_requires_a_filter_is_read_with_a_query(
    bigquery, tiny_bundle, tmp_path, capsys
):
    name = f"in_{next(_NUMBERS)}"
    bigquery.client.create_dataset(f"test-project.{name}")
    filtered = Table(f"test-project.{name}.t", schema=[SchemaField(*each) for each in HASHED])
    filtered.require_partition_filter = True
    bigquery.client.create_table(filtered)
    (tmp_path / "in.txt").write_text("the bank\n")
    table = f"test-project:{name}.t"
    assert embed(tmp_path / "out", tiny_bundle, table) == 2
    assert f"read it with --query 'SELECT * FROM `test-project.{name}.t` WHERE" in (
        capsys.readouterr().err
    )
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", skip_existing=table) == 2
    assert "name the output folders of the runs that filled it" in capsys.readouterr().err


def test_a_table_is_not_loaded_into_itself(bigquery, table, tiny_bundle, tmp_path, capsys):
    flags = {"output_format": "bigquery", "output_table": table, "keep_text": True}
    for disposition in ("append", "truncate"):
        flags["write_disposition"] = disposition
        assert embed(tmp_path / "out", tiny_bundle, shown(table), **flags) == 2
        said = f"--output_table {shown(table)} is the --input, whose rows would be replaced"
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("inputs", "flags", "said"),
    [
        (["test-project:d.t"], {"query": "SELECT 1"}, "--query conflicts with --input"),
        (
            ["test-project:d.t", "test-project:d.u"],
            {},
            "--input takes one BigQuery table and nothing beside it",
        ),
    ],
)
def test_what_contradicts_a_table_is_said_without_asking_bigquery(
    tiny_bundle, tmp_path, capsys, inputs, flags, said
):
    assert embed(tmp_path / "out", tiny_bundle, *inputs, **flags) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_not_called_a_table(bigquery, tiny_bundle, tmp_path, capsys):
    assert embed(tmp_path / "out", tiny_bundle, "notes.2026.txt") == 2
    assert "--input notes.2026.txt names no file" in capsys.readouterr().err


def test_without_credentials_it_is_said_so(tiny_bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "nothing"))
    monkeypatch.delenv("BIGQUERY_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    assert embed(tmp_path / "out", tiny_bundle, "test-project:d.t") == 2
    assert "BigQuery needs credentials" in capsys.readouterr().err


def test_rows_out_of_reach_are_said_soon(table, tiny_bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.PATIENCE", 2.0)
    monkeypatch.setenv("BIGQUERY_STORAGE_EMULATOR_HOST", "127.0.0.1:9")  # nobody listens there
    assert embed(tmp_path / "out", tiny_bundle, shown(table)) == 1
    assert "BigQuery at 127.0.0.1:9 cannot be reached" in capsys.readouterr().err


def test_a_table_that_may_not_be_read_is_named(
    bigquery, table, tiny_bundle, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(bigquery, "denied", {table.split(".")[1]})
    assert embed(tmp_path / "out", tiny_bundle, shown(table)) == 2
    error = capsys.readouterr().err
    assert f"--input {shown(table)} cannot be read: not allowed with the credentials" in error
    flags = {"output_format": "bigquery", "output_table": shown(table)}
    (tmp_path / "in.txt").write_text("a text")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 2
    assert f"--output_table {shown(table)}" in capsys.readouterr().err


def test_columns_pass_through_with_their_types(bigquery, tiny_bundle, tmp_path):
    name = f"test-project.in_{next(_NUMBERS)}.t"
    kinds = {
        "n": ("INT64", 7),
        "f": ("FLOAT64", 0.5),
        "b": ("BOOL", True),
        "seen": ("TIMESTAMP", "2026-01-31 12:00:00+00:00"),
        "day": ("DATE", "2026-01-31"),
        "s": ("STRING", "words"),
    }
    schema = [*SCHEMA[:2], *((each, kind, "NULLABLE") for each, (kind, _) in kinds.items())]
    schema.append(("tags", "STRING", "REPEATED"))
    full = {"id": "a", "text": "a text", "tags": ["x", "y"]}
    full |= {each: value for each, (_, value) in kinds.items()}
    bigquery.fill(name, schema, [full, {"id": "b", "text": "nothing else", "tags": []}])
    into = name + "_vectors"
    flags = {"extra_columns": ",".join([*kinds, "tags"]), "output_table": shown(into)}
    assert embed(tmp_path / "out", tiny_bundle, shown(name), output_format="bigquery", **flags) == 0
    passed = ", ".join([*kinds, "tags"])
    there = bigquery.rows(f"SELECT {passed} FROM `{into}` ORDER BY id")
    assert there == bigquery.rows(f"SELECT {passed} FROM `{name}` ORDER BY id")
    assert there[0][0] == 7
    assert there[1][:6] == (None,) * 6
    fields = {each.name: each.field_type for each in bigquery.client.get_table(into).schema}
    assert {each: fields[each] for each in kinds} == {
        each: kind for each, (kind, _) in kinds.items()
    }


def test_rows_without_an_id_are_spread_over_the_blocks(bigquery, tiny_bundle, tmp_path):
    """One worker would hold them all, in the block of the empty id."""
    name = f"test-project.in_{next(_NUMBERS)}.t"
    bigquery.fill(name, SCHEMA, [{"id": None, "text": text, "n": 1} for text in TEXTS])
    for output in (tmp_path / "a", tmp_path / "b"):
        assert embed(output, tiny_bundle, shown(name), **SMALL, max_rejected="100%") == 0
        assert record(output)["rejected"] == {"missing id": 40}
    held = [path.read_text().count("\n") for path in data_files(tmp_path / "a", "rejected")]
    assert len(held) == 4
    assert max(held) < 20
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_columns_that_are_not_read_make_no_blocks(table, tiny_bundle, tmp_path, monkeypatch):
    """A wide table: what a query over the columns that are read would read is what counts."""
    asked = []

    def dry_query(client, query):
        asked.append(query)
        return mock.Mock(total_bytes_processed=1500)

    monkeypatch.setattr(tables, "dry_query", dry_query)
    assert embed(tmp_path / "out", tiny_bundle, shown(table), **SMALL) == 0
    assert record(tmp_path / "out")["plan"]["blocks"] == 2
    assert asked == [f"SELECT `text`, `id` FROM `{table}`"]
