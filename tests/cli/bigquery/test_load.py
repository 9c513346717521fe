"""Vectors into tables of a real BigQuery emulator, through the command line; counts by SQL."""

import re
import shlex
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from google.api_core.exceptions import NotFound
from google.cloud.bigquery import Client, SchemaField, Table, TimePartitioning

import bert_embed
from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from tests.support.command import ROOT, record, rows, say_status
from tests.support.daily import counts, two_days
from tests.support.loads import count, ids, texts
from tests.support.models.heads import write_splade
from tests.support.models.multi_vectors import DIM, write_multi_vectors

TEXTS = ["a red river", "the bank of a river", "seven stars", "unaffable words"]
RECORDS = [{"id": f"k{n}", "text": text} for n, text in enumerate(TEXTS)]
CORPUS = {"in.jsonl": [*RECORDS, {"id": "bad"}]}


def test_vectors_arrive_in_the_table_and_are_the_files(bigquery, dataset, run, load):
    output, table = load(CORPUS), f"test-project.{dataset}.v"
    started = len(bigquery.jobs)
    found = bigquery.rows(f"SELECT id, embedding, num_tokens, truncated FROM `{table}` ORDER BY id")
    ids, vectors = bert_embed.read(str(output))
    assert [row[0] for row in found] == sorted(ids) == ["k0", "k1", "k2", "k3"]
    stored = np.array([row[1] for row in found], np.float32)
    np.testing.assert_array_equal(stored, vectors[np.argsort(ids)])
    assert [row[2] for row in found] == rows(output)["num_tokens"]
    assert {row[3] for row in found} == {False}
    fields = bigquery.client.get_table(table).schema
    assert {field.name: (field.field_type, field.mode) for field in fields} == {
        "id": ("STRING", "REQUIRED"),
        "embedding": ("FLOAT64", "REPEATED"),
        "num_tokens": ("INT64", "NULLABLE"),
        "num_tokens_full": ("INT64", "NULLABLE"),
        "truncated": ("BOOL", "NULLABLE"),
        "text_hash": ("INT64", "NULLABLE"),
    }
    assert record(output)["table"] == {"tables": {"sentence": table}, "write_disposition": "append"}
    assert record(output)["counts"]["rejected"] == 1
    load(CORPUS, "other", code=2, dim=8, write_disposition="fail")
    assert f"--output_table test-project:{dataset}.v has 4 rows already" in run.err
    assert "--write_disposition is fail" in run.err
    assert not (output.parent / "other").exists()
    assert [kind for kind, _ in bigquery.jobs[started:] if kind != "query"] == []
    assert count(bigquery, dataset) == len(TEXTS)


def test_without_an_output_folder_the_same_command_finds_its_run(
    bigquery, dataset, run, command, tiny_bundle, tmp_path, monkeypatch
):
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    table, [corpus] = f"test-project:{dataset}.v", run.written(CORPUS)
    words = ["embed", f"--input={corpus}", f"--model={tiny_bundle}"]
    words += ["--output_format=bigquery", f"--output_table={table}", "--max_rejected=1"]
    command(*words)
    assert "nothing to do" in command(*words).out
    assert count(bigquery, dataset) == 4
    (folder,) = (tmp_path / "cache" / "loads").iterdir()
    assert len(bert_embed.read(folder)[0]) == 4
    command(*words, temp_location=tmp_path / "temp")
    (folder,) = (tmp_path / "temp" / "loads").iterdir()
    assert len(bert_embed.read(folder)[0]) == 4


def test_the_job_of_another_process_is_waited_for(bigquery, dataset, load, monkeypatch):
    """Between the question whether there is such a job and its start another one may start it."""
    say_status(load(CORPUS), "running")
    asked, get_job = [], Client.get_job

    def late(self, job_id, **settings):
        asked.append(job_id)
        if len(asked) == 1:
            raise NotFound("not yet")
        return get_job(self, job_id, **settings)

    monkeypatch.setattr(Client, "get_job", late)
    load(CORPUS)
    assert asked[0] in bigquery.refused
    assert count(bigquery, dataset) == len(TEXTS)


def test_a_finished_load_needs_not_see_its_job(bigquery, dataset, run, load, monkeypatch):
    """On Dataflow the workers' account starts the job, and the submitter may not see it."""
    load(CORPUS, write_disposition="fail")
    monkeypatch.setattr(bigquery, "hides_jobs", True)
    load(CORPUS, write_disposition="fail")
    assert "nothing to do" in run.out
    load(CORPUS, "new", code=2, write_disposition="fail")
    assert "User does not have bigquery.jobs.get permission" in run.err
    assert count(bigquery, dataset) == len(TEXTS)


@pytest.mark.parametrize(("where", "disposition"), [("local", "truncate"), ("gs", "append")])
def test_several_jobs_go_through_a_table_beside(
    bigquery, gcs, dataset, load, monkeypatch, where, disposition
):
    monkeypatch.setattr("bert_embed.transforms.bigquery.load.MOST_URIS", 2)
    gcs.put(f"bucket-{dataset}", {})
    to, started = "out" if where == "local" else f"gs://bucket-{dataset}/out", len(bigquery.jobs)
    flags = {"part_docs": 1, "write_disposition": disposition}
    output = load(CORPUS, to, **flags)
    assert [kind for kind, _ in bigquery.jobs[started:]] == ["load", "load", "copy"]
    assert ids(bigquery, dataset) == ["k0", "k1", "k2", "k3"]
    if where == "local":
        say_status(output, "running")
        load(CORPUS, to, **flags)
        assert count(bigquery, dataset) == len(TEXTS)
    bigquery.rows(f"DELETE FROM `test-project.{dataset}.v` WHERE TRUE")
    load(CORPUS, to, overwrite=True, **flags)
    assert ids(bigquery, dataset) == ["k0", "k1", "k2", "k3"]
    tables = [each.table_id for each in bigquery.client.list_tables(f"test-project.{dataset}")]
    assert tables == ["v"]


def test_a_partition_is_asked_for_in_the_load_job(bigquery, dataset, run, load):
    table = f"test-project:{dataset}.v"
    load(CORPUS, "1", table=f"{table}$20260131", write_disposition="truncate")
    assert bigquery.destinations[-1] == "v$20260131"
    made = bigquery.client.get_table(f"test-project.{dataset}.v")
    assert made.time_partitioning.type_ == "DAY"
    load(CORPUS, "2", code=2, table=f"{table}$2026013112")
    assert "$2026013112 is a partition by hour, but the table is by day" in run.err
    fields = [*made.schema, SchemaField("day", "DATE")]
    by_column = Table(f"test-project.{dataset}.c", schema=fields)
    by_column.time_partitioning = TimePartitioning(field="day")
    bigquery.client.create_table(by_column)
    load(CORPUS, "3", code=2, table=f"test-project:{dataset}.c$20260131")
    assert "$20260131 must have its time in their column day, " in run.err


def test_nested_vectors_are_read_with_unnest(bigquery, dataset, run, load):
    words = ["red", "", "river"]  # the second has no token, and so no vector
    source = {"in.jsonl": [{"id": "w", "text": words}]}
    output = load(source, granularity="sentence,token,word")
    base = f"test-project.{dataset}.v"
    assert count(bigquery, dataset) == 1
    tokens = bigquery.rows(
        f"SELECT t.token, t.start, ARRAY_LENGTH(t.embedding) FROM `{base}_tokens`, "
        "UNNEST(tokens) AS t"
    )
    assert tokens[0][0] == "[CLS]"
    width = bert_embed.read(str(output))[1].shape[1]
    assert {each for _, _, each in tokens} == {width}
    found = bigquery.rows(
        f"SELECT w.word, ARRAY_LENGTH(w.embedding) FROM `{base}_words`, UNNEST(words) AS w"
    )
    assert found == [("red", width), ("", 0), ("river", width)]


def test_a_damaged_footer_stops_the_load(bigquery, dataset, run, load, monkeypatch):
    """It counts three of four rows, of which pyarrow would read as many and say nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(Client, "load_table_from_file", mock.Mock(side_effect=KeyboardInterrupt))
        [path] = load(CORPUS, code=130).glob("embeddings/*.parquet")
    data = path.read_bytes()
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
        if data[place] == 2 * len(TEXTS):  # a varint
            path.write_bytes(data[:place] + bytes([6]) + data[place + 1 :])
            metadata = pq.read_metadata(path)
            if (metadata.num_rows, metadata.row_group(0).num_rows) == (3, len(TEXTS)):
                break
    load(CORPUS, code=1)
    assert f"{path} is damaged (3 rows in its footer, 4 in its row groups)" in run.err
    assert "nothing was loaded" in run.err
    assert count(bigquery, dataset) == 0


def test_tables_that_do_not_fit_are_said_before_any_work(bigquery, dataset, run):
    flags = {"output_format": "bigquery", "output_table": "test-project:nowhere.t"}
    message = "--output_table test-project:nowhere.t: there is no dataset nowhere"
    run.refused(CORPUS, message, **flags)
    assert run.err.endswith("`bq --location=REGION mk --dataset test-project:nowhere`\n")
    fields = [("id", "INT64", "NULLABLE"), ("embedding", "FLOAT64", "REPEATED")]
    bigquery.fill(f"test-project.{dataset}.v", [], fields)
    flags["output_table"] = f"test-project:{dataset}.v"
    run.refused(CORPUS, "its column id is INT64, STRING is required", **flags)


def test_what_the_table_has_is_skipped(bigquery, dataset, tmp_path, run, load):
    day1, day2 = two_days(tmp_path)
    table, address = f"test-project.{dataset}.v", f"bq://test-project.{dataset}.v"
    assert counts(load(day1, "1")) == (60, 60, 0, 0)
    again = {"table": address, "skip_existing": address}
    second = load(day2, "2", **again)
    assert counts(second) == (60, 3, 56, 1)
    found = dict(bigquery.rows(f"SELECT id, COUNT(*) FROM `{table}` GROUP BY id"))
    assert found["d3"] == 2, "the changed text stands beside the old one"
    assert sum(found.values()) == 63
    load(day2, "2", **again)
    assert count(bigquery, dataset) == 63, "the same run"
    load(day2, "3", code=2, pooling="cls", **again)
    assert "pooling" in run.err


def test_a_table_that_says_nothing_of_its_vectors_is_refused(bigquery, dataset, run):
    schema = [("id", "STRING", "REQUIRED"), ("text_hash", "INTEGER", "NULLABLE")]
    bigquery.fill(f"test-project.{dataset}.v", [{"id": "a", "text_hash": 1}], schema)
    for table, message in (
        ("v", "does not describe its vectors"),
        ("none", "there is no such project, dataset or table"),
        ("v$20260131", "names a partition, which cannot be compared alone"),
    ):
        table = f"test-project:{dataset}.{table}"
        run.refused({"in.txt": "the bank\n"}, message, skip_existing=table)


def test_each_head_has_a_table(bigquery, tmp_path, run, load):
    bigquery.client.create_dataset("test-project.heads")
    write_splade(tmp_path / "source", pooling_strategy="max", activation_function="relu")
    corpus = texts(tmp_path / "in.jsonl", "a")
    model, table = str(tmp_path / "source"), "test-project:heads.v"
    flags = {"vectors": "dense,sparse", "top_k": 5, "model": model}
    output = load(corpus, table=table, **flags)
    assert count(bigquery, "heads") == count(bigquery, "heads", "v_sparse") == 4
    [path] = output.glob("sparse/part-*")
    stored = {row["id"]: row["sparse"] for row in pq.read_table(path).to_pylist()}
    sql = "SELECT id, e.index, e.value FROM `test-project.heads.v_sparse`, UNNEST(sparse) AS e"
    found = {(id, index): value for id, index, value in bigquery.rows(sql)}
    wanted = {(id, e["index"]): e["value"] for id in stored for e in stored[id]}
    assert found == pytest.approx(wanted)
    # The same kind joins the table of another run.
    load(corpus, "more", table=f"{table}_sparse", model=model, top_k=5)
    assert count(bigquery, "heads", "v_sparse") == 8
    load(corpus, "other", code=2, table=f"{table}_sparse", model=model, top_k=4)
    assert '"top_k": 5' in run.err


def test_multi_vectors_arrive_in_the_table(bigquery, dataset, tmp_path, load):
    write_multi_vectors(tmp_path / "source", "stanford")
    output = load(texts(tmp_path / "in.jsonl", "a"), model=str(tmp_path / "source"))
    [path] = output.glob("multi/part-*")
    stored = pq.read_table(path).to_pylist()
    wanted = sorted(
        (row["id"], x) for row in stored for one in row["multi"] for x in one["embedding"]
    )
    assert len(wanted) == DIM * sum(len(row["multi"]) for row in stored) > 0
    found = bigquery.rows(
        f"SELECT id, x FROM `test-project.{dataset}.v`, UNNEST(multi) AS one, "
        "UNNEST(one.embedding) AS x"
    )
    assert sorted(found) == wanted


def test_a_run_that_rejected_too_much_loads_nothing_until_it_is_allowed(
    bigquery, dataset, run, load, tmp_path, monkeypatch
):
    """The job judges, whoever waits for it: the rows that the table has stay."""
    flags = {"write_disposition": "truncate", "max_rejected": "1%"}
    load(texts(tmp_path / "a.jsonl", "a"), "before", **flags)
    with monkeypatch.context() as patches:
        patches.setattr(job, "problem_of", lambda *_: None)  # as where no command waits
        output = load(CORPUS, **flags)
    assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
    assert record(output)["status"] == "refused"
    assert "1 of 5 records was rejected, --max_rejected allows 1%" in record(output)["error"]
    load(CORPUS, code=3, **flags)
    assert "nothing to do" in run.out
    assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
    load(CORPUS, **flags | {"max_rejected": "20%"})
    assert ids(bigquery, dataset) == ["k0", "k1", "k2", "k3"]
    assert record(output)["status"] == "done"
    load(CORPUS, **flags | {"max_rejected": "20%"})
    assert "nothing to do" in run.out


def test_a_run_that_embedded_nothing_never_empties_a_table(bigquery, dataset, run, load, tmp_path):
    before = texts(tmp_path / "a.jsonl", "a")
    flags = {"write_disposition": "truncate", "max_rejected": "100%"}
    load(before, "before", **flags)
    skipped = {"skip_existing": run(before, "files")}
    for number, (source, more) in enumerate(
        (
            ({"in.jsonl": '{"id": "a", "text": null}\n'}, {}),
            (before, skipped),
            ({"in.txt": "\n\n"}, {}),
        )
    ):
        output = load(source, f"out{number}", code=3, **flags, **more)
        assert ids(bigquery, dataset) == ["a0", "a1", "a2", "a3"]
        assert record(output)["status"] == "refused"
        assert "--write_disposition truncate would have emptied the table" in run.err


PAGE = (ROOT / "docs" / "bigquery.md").read_text("utf-8")


# Instead of VECTOR_SEARCH, which the emulator lacks.
SEARCH = """SELECT id, (
    SELECT SUM(x * y) FROM UNNEST(embedding) AS x WITH OFFSET n
    JOIN UNNEST(@query) AS y WITH OFFSET m ON n = m
  ) AS distance FROM `test-project.vectors.news`"""


def test_every_command_runs(bigquery, gcs, tiny_bundle, monkeypatch, capsys):
    row = {"id": "a", "body": "a red river", "lang": "en"}
    bigquery.fill("test-project.texts.news", [row], [(name, "STRING", "NULLABLE") for name in row])
    bigquery.client.create_dataset("test-project.vectors", exists_ok=True)
    gcs.put("bigquery-docs", {"texts/1.jsonl": '{"id": "a", "text": "a red river"}\n'})
    blocks = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    assert blocks.count("\n") == 3
    for line in blocks.splitlines():
        ours = line.replace("my-project", "test-project")
        program, *words = shlex.split(ours.replace("gs://bucket/", "gs://bigquery-docs/"))
        assert program == ".venv/bin/bert-embed"
        assert main([*words, "--model", tiny_bundle]) == 0
    assert count(bigquery, "vectors", "news") == 1
    [search] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setattr("google.cloud.bigquery.Client", lambda project: bigquery.client)
    capsys.readouterr()
    search, replaced = re.subn(r'statement = """.*?"""', "", search, flags=re.DOTALL)
    assert replaced == 1
    exec(search.replace("minilm", tiny_bundle), {"statement": SEARCH})
    found, score = capsys.readouterr().out.split()
    question, river = bert_embed.load(tiny_bundle).encode(["a question", "a red river"])
    assert (found, float(score)) == ("a", pytest.approx(float(question @ river), rel=1e-5))


def plan(run, table, **flags):
    flags |= {"output_format": "bigquery", "output_table": table, "dry_run": True}
    run({"in.jsonl": '{"text": "a red river", "year": 7}\n'}, **flags)
    return run.out


def test_a_dry_run_names_table_state_and_schema(bigquery, run):
    bigquery.client.create_dataset("test-project.dry")
    said = plan(run, "test-project:dry.v$20260131", write_disposition="truncate")
    assert "table test-project.dry.v$20260131 is to be made, in US; rows: truncate\n" in said
    assert "\n  embedding ARRAY<FLOAT64>,\n" in said
    assert ")\nPARTITION BY TIMESTAMP_TRUNC(_PARTITIONTIME, DAY);" in said
    statement = said[said.index("CREATE TABLE") :].partition("\nPARTITION")[0]
    bigquery.client.query_and_wait(statement.replace("dry.v", "dry.w"))
    assert "table test-project.dry.w exists, in US; rows: append\n" in plan(
        run, "test-project:dry.w", text_column="text"
    )


def test_without_an_account_the_schema_is_said_all_the_same(run, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "nothing"))
    for name in ("BIGQUERY_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    said = plan(run, "test-project:d.t", extra_columns="year:int64")
    assert "table test-project.d.t was not looked at: BigQuery needs credentials" in said
    assert "CREATE TABLE `test-project.d.t` (\n  id STRING NOT NULL,\n" in said
    assert "\n  year INT64\n);" in said
    run.refused("test-project:d.t", "BigQuery needs credentials")
    run(input="test-project:texts.news", dry_run=True)
    assert "note: input and output were not looked at (BigQuery needs credentials" in run.out
