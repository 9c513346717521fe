"""Vectors into tables of a real BigQuery emulator, through the command line; counts by SQL."""

import io
import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from google.cloud.bigquery import SchemaField, Table, TimePartitioning

import bert_embed
from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from tests.support.command import embed, record, rows, say_status
from tests.support.loads import count, ids, load, texts
from tests.support.models.heads import write_splade
from tests.support.models.multi_vectors import DIM, write_multi_vectors

_NUMBERS = itertools.count()
INTO = {"output_format": "bigquery", "output_table": "test-project:d.t"}
TEXTS = ["a red river", "the bank of a river", "seven stars", "unaffable words"]


@pytest.fixture
def dataset(bigquery):
    """A dataset of the test's own."""
    name = f"out_{next(_NUMBERS)}"
    bigquery.client.create_dataset(f"test-project.{name}")
    return name


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [{"id": f"k{n}", "text": text} for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"id": "bad"}\n')
    return path


def test_vectors_arrive_in_the_table_and_are_the_files(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys
):
    output = tmp_path / "out"
    assert load(output, tiny_bundle, corpus, f"test-project:{dataset}.v") == 0
    table = f"test-project.{dataset}.v"
    found = bigquery.rows(f"SELECT id, embedding, num_tokens, truncated FROM `{table}` ORDER BY id")
    ids, vectors = bert_embed.read(str(output))
    assert [row[0] for row in found] == sorted(ids) == ["k0", "k1", "k2", "k3"]
    stored = np.array([row[1] for row in found], np.float32)
    np.testing.assert_array_equal(stored, vectors[np.argsort(ids)])
    assert [row[2] for row in found] == rows(output)["num_tokens"]
    assert {row[3] for row in found} == {False}
    schema = {
        field.name: (field.field_type, field.mode)
        for field in bigquery.client.get_table(table).schema
    }
    assert schema == {
        "id": ("STRING", "REQUIRED"),
        "embedding": ("FLOAT64", "REPEATED"),
        "num_tokens": ("INT64", "NULLABLE"),
        "num_tokens_full": ("INT64", "NULLABLE"),
        "truncated": ("BOOL", "NULLABLE"),
        "text_hash": ("INT64", "NULLABLE"),
    }
    said = capsys.readouterr().out
    assert f"CREATE VECTOR INDEX IF NOT EXISTS embedding_index ON `{table}`(embedding)" in said
    assert f"TABLE `{table}`, 'embedding'" in said
    assert f"ARRAY<FLOAT64> of {vectors.shape[1]} numbers" in said
    assert record(output)["table"] == {"tables": {"sentence": table}, "write_disposition": "append"}
    assert record(output)["counts"]["rejected"] == 1


def test_without_an_output_folder_the_same_command_finds_its_run(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    table = f"test-project:{dataset}.v"
    words = ["embed", f"--input={corpus}", f"--model={tiny_bundle}"]
    words += ["--output_format=bigquery", f"--output_table={table}", "--max_rejected=1"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert count(bigquery, dataset) == 4
    (folder,) = (tmp_path / "cache" / "loads").iterdir()
    assert len(bert_embed.read(folder)[0]) == 4
    elsewhere = [*words, f"--temp_location={tmp_path}/temp"]
    assert main(elsewhere) == 0
    (folder,) = (tmp_path / "temp" / "loads").iterdir()
    assert len(bert_embed.read(folder)[0]) == 4


def test_a_rerun_loads_nothing_twice(bigquery, dataset, corpus, tiny_bundle, tmp_path):
    output, table = tmp_path / "out", f"test-project:{dataset}.v"
    assert load(output, tiny_bundle, corpus, table) == 0
    started = len(bigquery.jobs)
    assert load(output, tiny_bundle, corpus, table) == 0
    assert len(bigquery.jobs) == started
    # Killed after the load, before run.json: the job is found under its name.
    say_status(output, "running")
    assert load(output, tiny_bundle, corpus, table) == 0
    assert record(output)["status"] == "done"
    assert record(output)["counts"]["parts_reused"] == record(output)["counts"]["parts"]
    assert len(bigquery.jobs) == started
    assert count(bigquery, dataset) == len(TEXTS)


def test_a_job_that_another_process_started_is_waited_for(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, monkeypatch
):
    """Between the question whether there is such a job and its start another one may start it."""
    from google.api_core.exceptions import NotFound
    from google.cloud.bigquery import Client

    output, table = tmp_path / "out", f"test-project:{dataset}.v"
    assert load(output, tiny_bundle, corpus, table) == 0
    say_status(output, "running")
    asked, get_job = [], Client.get_job

    def late(self, job_id, **settings):
        asked.append(job_id)
        if len(asked) == 1:
            raise NotFound("not yet")
        return get_job(self, job_id, **settings)

    monkeypatch.setattr(Client, "get_job", late)
    assert load(output, tiny_bundle, corpus, table) == 0
    assert asked[0] in bigquery.refused
    assert count(bigquery, dataset) == len(TEXTS)


def test_a_table_that_was_dropped_is_filled_again(bigquery, dataset, corpus, tiny_bundle, tmp_path):
    output, table = tmp_path / "out", f"test-project:{dataset}.v"
    assert load(output, tiny_bundle, corpus, table) == 0
    bigquery.client.delete_table(f"test-project.{dataset}.v")
    assert load(output, tiny_bundle, corpus, table, overwrite=True) == 0
    (output / "run.json").unlink()
    assert load(output, tiny_bundle, corpus, table, overwrite=True) == 0
    assert count(bigquery, dataset) == len(TEXTS)


def test_append_truncate_and_fail(bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys):
    table = f"test-project:{dataset}.v"
    assert load(tmp_path / "1", tiny_bundle, corpus, table, write_disposition="fail") == 0
    assert load(tmp_path / "2", tiny_bundle, corpus, table, write_disposition="fail", dim=8) == 2
    error = capsys.readouterr().err
    assert f"--output_table {table} has 4 rows already" in error
    assert "--write_disposition is fail" in error
    assert not (tmp_path / "2").exists()
    assert load(tmp_path / "3", tiny_bundle, corpus, table, part_docs=1) == 0  # another run
    assert count(bigquery, dataset) == 8
    assert (
        load(tmp_path / "4", tiny_bundle, corpus, table, write_disposition="truncate", dim=4) == 0
    )
    widths = bigquery.rows(f"SELECT ARRAY_LENGTH(embedding) FROM `test-project.{dataset}.v`")
    assert widths == [(4,)] * 4


def test_a_finished_load_needs_no_permission_to_see_its_job(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys, monkeypatch
):
    """On Dataflow the workers' account starts the job, and the submitter may not see it."""
    table, flags = f"test-project:{dataset}.v", {"write_disposition": "fail"}
    assert load(tmp_path / "out", tiny_bundle, corpus, table, **flags) == 0
    monkeypatch.setattr(bigquery, "hides_jobs", True)
    capsys.readouterr()
    assert load(tmp_path / "out", tiny_bundle, corpus, table, **flags) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert load(tmp_path / "new", tiny_bundle, corpus, table, **flags) == 2
    assert "User does not have bigquery.jobs.get permission" in capsys.readouterr().err
    assert count(bigquery, dataset) == len(TEXTS)


@pytest.mark.parametrize("where", ["local", "gs"])
@pytest.mark.parametrize("disposition", ["append", "truncate"])
def test_several_jobs_go_through_a_table_beside(
    bigquery, gcs, dataset, corpus, tiny_bundle, tmp_path, monkeypatch, where, disposition
):
    monkeypatch.setattr("bert_embed.transforms.bigquery.load.MOST_URIS", 2)
    output = tmp_path / "out"
    if where == "gs":
        gcs.client.create_bucket(f"bucket-{dataset}")
        output = f"gs://bucket-{dataset}/out"
    started = len(bigquery.jobs)
    flags = {"part_docs": 1, "write_disposition": disposition}
    assert load(output, tiny_bundle, corpus, f"test-project:{dataset}.v", **flags) == 0
    assert [kind for kind, _ in bigquery.jobs[started:]] == ["load", "load", "copy"]
    found = bigquery.rows(f"SELECT id FROM `test-project.{dataset}.v` ORDER BY id")
    assert found == [("k0",), ("k1",), ("k2",), ("k3",)]
    tables = [each.table_id for each in bigquery.client.list_tables(f"test-project.{dataset}")]
    assert tables == ["v"]
    if where == "local":
        say_status(output, "running")
        assert load(output, tiny_bundle, corpus, f"test-project:{dataset}.v", **flags) == 0
        assert count(bigquery, dataset) == len(TEXTS)


def test_a_partition_is_asked_for_in_the_load_job(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys
):
    table = f"test-project:{dataset}.v$20260131"
    assert load(tmp_path / "1", tiny_bundle, corpus, table, write_disposition="truncate") == 0
    assert bigquery.destinations[-1] == "v$20260131"
    made = bigquery.client.get_table(f"test-project.{dataset}.v")
    assert made.time_partitioning.type_ == "DAY"
    hour = f"test-project:{dataset}.v$2026013112"
    assert load(tmp_path / "2", tiny_bundle, corpus, hour) == 2
    assert "$2026013112 is a partition by hour, but the table is by day" in capsys.readouterr().err
    fields = [*made.schema, SchemaField("day", "DATE")]
    by_column = Table(f"test-project.{dataset}.c", schema=fields)
    by_column.time_partitioning = TimePartitioning(field="day")
    bigquery.client.create_table(by_column)
    assert load(tmp_path / "3", tiny_bundle, corpus, f"test-project:{dataset}.c$20260131") == 2
    assert "$20260131 must have its time in their column day, " in capsys.readouterr().err


def test_nested_vectors_are_read_with_unnest(bigquery, dataset, tiny_bundle, tmp_path, capsys):
    path, output = tmp_path / "in.jsonl", tmp_path / "out"
    words = ["red", "", "river"]  # the second has no token, and so no vector
    path.write_text(json.dumps({"id": "w", "text": words}) + "\n")
    table = f"test-project:{dataset}.v"
    kinds = "sentence,token,word"
    assert load(output, tiny_bundle, path, table, granularity=kinds) == 0
    base = f"test-project.{dataset}.v"
    assert count(bigquery, dataset) == 1
    tokens = bigquery.rows(
        f"SELECT t.token, t.start, ARRAY_LENGTH(t.embedding) FROM `{base}_tokens`, "
        "UNNEST(tokens) AS t"
    )
    assert tokens[0][0] == "[CLS]"
    assert {width for _, _, width in tokens} == {bert_embed.read(str(output))[1].shape[1]}
    found = bigquery.rows(
        f"SELECT w.word, ARRAY_LENGTH(w.embedding) FROM `{base}_words`, UNNEST(words) AS w"
    )
    width = tokens[0][2]
    assert found == [("red", width), ("", 0), ("river", width)]
    assert f"FROM `{base}_words`, UNNEST(words) AS each" in capsys.readouterr().out


def load_damaged(monkeypatch, *run):
    """Loads what is damaged on its way."""
    from google.cloud.bigquery import Client

    upload = Client.load_table_from_file

    def damaged(self, file, *rest, **settings):
        return upload(self, io.BytesIO(b"no parquet"), *rest, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "load_table_from_file", damaged)
        return load(*run)


def test_a_failed_load_is_told_and_continued(
    bigquery, gcs, dataset, corpus, tiny_bundle, tmp_path, capsys, monkeypatch
):
    output, table = tmp_path / "out", f"test-project:{dataset}.v"
    assert load_damaged(monkeypatch, output, tiny_bundle, corpus, table) == 1
    error = capsys.readouterr().err
    assert "job bert_embed_" in error
    assert "failed:" in error
    assert record(output)["status"] == "failed"
    assert load(output, tiny_bundle, corpus, table) == 0
    assert record(output)["counts"]["parts_reused"] == record(output)["counts"]["parts"]
    assert bigquery.jobs[-1][1] == bigquery.jobs[-2][1] + "_1"
    assert count(bigquery, dataset) == len(TEXTS)


def test_a_damaged_footer_stops_the_load(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys, monkeypatch
):
    """It counts three of four rows, of which pyarrow would read as many and say nothing."""
    output, table = tmp_path / "out", f"test-project:{dataset}.v"
    assert load_damaged(monkeypatch, output, tiny_bundle, corpus, table) == 1
    [path] = output.glob("embeddings/*.parquet")
    data = path.read_bytes()
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
        if data[place] == 2 * len(TEXTS):  # a varint
            path.write_bytes(data[:place] + bytes([6]) + data[place + 1 :])
            metadata = pq.read_metadata(path)
            if (metadata.num_rows, metadata.row_group(0).num_rows) == (3, len(TEXTS)):
                break
    capsys.readouterr()
    assert load(output, tiny_bundle, corpus, table) == 1
    error = capsys.readouterr().err
    assert f"{path} is damaged (3 rows in its footer, 4 in its row groups)" in error
    assert "nothing was loaded" in error
    assert count(bigquery, dataset) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {**INTO, "output_dtype": "int8"},
            "--output_dtype int8 conflicts with --output_format bigquery",
        ),
        ({"output_format": "bigquery"}, "requires --output_table"),
        ({"output_table": "test-project:d.t"}, "--output_table requires --output_format bigquery"),
        ({"write_disposition": "fail"}, "--write_disposition requires --output_format bigquery"),
        (
            {"output_format": "bigquery", "output_table": "test-project:d.t`; DROP TABLE x"},
            "is not a table",
        ),
        ({"output_format": "bigquery", "output_table": "d.t"}, "is not a table"),
        ({**INTO, "output_table": "test-project:d.t$20260230"}, "$20260230 is no day"),
        ({**INTO, "output_table": "test-project:d.t$202613"}, "$202613 is no month"),
    ],
)
def test_what_cannot_work_is_said_without_asking_bigquery(
    corpus, tiny_bundle, tmp_path, capsys, flags, said
):
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_is_not_there_is_said_before_any_work(
    bigquery, corpus, tiny_bundle, tmp_path, capsys
):
    flags = {"output_format": "bigquery", "output_table": "test-project:nowhere.t"}
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 2
    message = capsys.readouterr().err
    assert "--output_table test-project:nowhere.t: there is no dataset nowhere" in message
    assert message.endswith("`bq --location=REGION mk --dataset test-project:nowhere`\n")
    assert not (tmp_path / "out").exists()


def test_a_table_with_other_columns_is_refused(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys
):
    fields = [("id", "INT64", "NULLABLE"), ("embedding", "FLOAT64", "REPEATED")]
    bigquery.fill(f"test-project.{dataset}.v", fields, [])
    assert load(tmp_path / "out", tiny_bundle, corpus, f"test-project:{dataset}.v") == 2
    assert "its column id is INT64, STRING is required" in capsys.readouterr().err


def test_what_the_table_has_is_skipped(bigquery, dataset, corpus, tiny_bundle, tmp_path):
    table = f"test-project:{dataset}.v"
    assert load(tmp_path / "1", tiny_bundle, corpus, table) == 0
    with corpus.open("a") as file:
        file.write('{"id": "k4", "text": "a new text"}\n')
    address = f"bq://test-project.{dataset}.v"
    assert load(tmp_path / "2", tiny_bundle, corpus, address, skip_existing=address) == 0
    counts = record(tmp_path / "2")["counts"]
    assert (counts["embedded"], counts["skipped"]) == (1, 4)
    found = bigquery.rows(f"SELECT id FROM `test-project.{dataset}.v` ORDER BY id")
    assert found == [("k0",), ("k1",), ("k2",), ("k3",), ("k4",)]


def test_each_head_has_a_table_that_can_be_searched(bigquery, tmp_path, capsys):
    bigquery.client.create_dataset("test-project.heads")
    write_splade(tmp_path / "source", pooling_strategy="max", activation_function="relu")
    corpus = texts(tmp_path / "in.jsonl", "a")
    flags = {"vectors": "dense,sparse", "top_k": 5}
    model, table = str(tmp_path / "source"), "test-project:heads.v"
    assert load(tmp_path / "out", model, corpus, table, **flags) == 0
    assert count(bigquery, "heads") == count(bigquery, "heads", "v_sparse") == 4
    [path] = tmp_path.glob("out/sparse/part-*")
    stored = {row["id"]: row["sparse"] for row in pq.read_table(path).to_pylist()}
    sql = "SELECT id, e.index, e.value FROM `test-project.heads.v_sparse`, UNNEST(sparse) AS e"
    found = {(id, index): value for id, index, value in bigquery.rows(sql)}
    wanted = {(id, e["index"]): e["value"] for id in stored for e in stored[id]}
    assert found == pytest.approx(wanted)
    _, _, printed = capsys.readouterr().out.partition("ARRAY<STRUCT<index INT64, value FLOAT64>>\n")
    assert main(["search", str(tmp_path / "out"), "the bank", "--by=sparse", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    query = bert_embed.load(model).encode_query(["the bank"], kind="sparse")
    entries = [
        f"STRUCT({index} AS index, {value!r} AS value)"
        for index, value in zip(query.indices.tolist(), query.values.tolist(), strict=True)
    ]
    sql = printed.partition(";")[0].replace("@query", f"[{', '.join(entries)}]")
    scores = pytest.approx({hit["id"]: hit["score"] for hit in hits})
    assert dict(bigquery.rows(sql)) == scores
    # The same kind joins the table of another run.
    assert load(tmp_path / "more", model, corpus, "test-project:heads.v_sparse", top_k=5) == 0
    assert count(bigquery, "heads", "v_sparse") == 8
    found = bigquery.rows(sql)  # each row has its own score, whatever their ids
    assert (len(found), dict(found)) == (2 * len(hits), scores)
    assert load(tmp_path / "other", model, corpus, "test-project:heads.v_sparse", top_k=4) == 2
    assert '"top_k": 5' in capsys.readouterr().err


def test_multi_vectors_are_found_by_the_statement_that_a_run_prints(
    bigquery, dataset, tmp_path, capsys
):
    write_multi_vectors(tmp_path / "source", "stanford")
    model, output = str(tmp_path / "source"), tmp_path / "out"
    corpus = texts(tmp_path / "in.jsonl", "a")
    assert load(output, model, corpus, f"test-project:{dataset}.v") == 0
    _, _, printed = capsys.readouterr().out.partition(f"each of {DIM} numbers\n")
    assert main(["search", str(output), "the bank", "--by=multi", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    tokens = bert_embed.load(model).encode_query(["the bank"], kind="multi").vectors.tolist()
    query = ", ".join(f"STRUCT({token} AS embedding)" for token in tokens)
    sql = printed.partition(";")[0].replace("@query", f"[{query}]")
    assert dict(bigquery.rows(sql)) == pytest.approx({hit["id"]: hit["score"] for hit in hits})


def test_a_run_that_rejected_too_much_loads_nothing_until_it_is_allowed(
    bigquery, dataset, corpus, tiny_bundle, tmp_path, capsys, monkeypatch
):
    """The job judges, whoever waits for it: the rows that the table has stay."""
    table, output = f"test-project:{dataset}.v", tmp_path / "out"
    flags = {"write_disposition": "truncate"}
    before = texts(tmp_path / "a.jsonl", "a")
    assert load(tmp_path / "before", tiny_bundle, before, table, **flags) == 0
    with monkeypatch.context() as patches:
        patches.setattr(job, "problem_of", lambda *_: None)  # as where no command waits
        assert load(output, tiny_bundle, corpus, table, max_rejected="1%", **flags) == 0
    assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
    assert record(output)["status"] == "refused"
    assert "1 of 5 records was rejected, --max_rejected allows 1%" in record(output)["error"]
    capsys.readouterr()
    assert load(output, tiny_bundle, corpus, table, max_rejected="1%", **flags) == 3
    said = capsys.readouterr()
    assert "nothing to do" in said.out
    assert "CREATE VECTOR INDEX" not in said.out
    assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
    assert load(output, tiny_bundle, corpus, table, max_rejected="20%", **flags) == 0
    assert ids(bigquery, dataset) == ["k0", "k1", "k2", "k3"]
    assert record(output)["status"] == "done"
    assert load(output, tiny_bundle, corpus, table, max_rejected="20%", **flags) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("bad", ["all rejected", "all skipped", "blank lines"])
def test_a_run_that_embedded_nothing_never_empties_a_table(
    bigquery, dataset, tiny_bundle, tmp_path, capsys, bad
):
    table, output = f"test-project:{dataset}.v", tmp_path / "out"
    before = texts(tmp_path / "a.jsonl", "a")
    flags = {"write_disposition": "truncate", "max_rejected": "100%"}
    assert load(tmp_path / "before", tiny_bundle, before, table, **flags) == 0
    path, more = tmp_path / "in.jsonl", {}
    path.write_text("\n\n" if bad == "blank lines" else '{"id": "a", "text": null}\n')
    if bad == "all skipped":
        path.write_text(before.read_text())
        assert embed(tmp_path / "files", tiny_bundle, before) == 0
        more["skip_existing"] = tmp_path / "files"
    if bad == "blank lines":
        path = path.rename(tmp_path / "in.txt")
    assert load(output, tiny_bundle, path, table, **flags, **more) == 3
    assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
    assert record(output)["status"] == "refused"
    assert "--write_disposition truncate would have emptied the table" in capsys.readouterr().err
