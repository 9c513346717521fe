"""Whether a run is loaded, by its job and its record; tables of a real BigQuery emulator."""

import itertools
import json
import os
import re
import time
import traceback
from unittest import mock

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.bigquery import Client, QueryJob, SchemaField, Table

from bert_embed.transforms.bigquery import load as loads
from bert_embed.transforms.bigquery.client import translate_errors
from tests.support.command import record
from tests.support.loads import count, ids, interrupted, texts
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.servers.gcs import EMPTY, PAGE, proxy

A, B, C = (["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"], ["c0", "c1", "c2", "c3"])
DISPOSITIONS = ["append", "truncate", "fail"]


@pytest.fixture
def into(load, run, tmp_path):
    """Loads the texts `a0`, `a1`, … into the test's table, from a folder; returns what it says."""
    for name in "abc":
        texts(tmp_path / f"{name}.jsonl", name)

    def loads(name, disposition, output=None, code=0, **flags):
        source = tmp_path / f"{name}.jsonl"
        load(source, output or name, code, write_disposition=disposition, **flags)
        return run

    return loads


# What schedules and people do to a table, one step after the other: a load of the texts a, b or c
# with a disposition, from a folder of that name or another, with flags; "kill" leaves a folder as a
# kill between its load and its record does, "lose" without its run.json; "has" says what it holds.
SCENARIOS = [
    *(
        f"a {first}; a {then}; has A; a {then} elsewhere; has A"
        for first, then in zip(DISPOSITIONS, [*DISPOSITIONS[1:], DISPOSITIONS[0]], strict=True)
    ),
    # Others replaced or added rows.
    *(
        f"a truncate; b truncate; has B; a truncate{more} => loaded; has A; a truncate => nothing"
        for more in ("", " overwrite")
    ),
    "a truncate; b append; a truncate; has A",
    *(f"a {how}; drop; a {how} => loaded; a {how} => nothing; has A" for how in DISPOSITIONS),
    # Rows that others deleted.
    *(
        f"a {how}; empty; a {how} => kept; has nothing; a {how} overwrite => loaded; has A; "
        f"a {how} overwrite => nothing; has A"
        for how in ("append", "fail")
    ),
    "a truncate; empty; a truncate => loaded; has A; empty; a truncate overwrite => loaded; has A; "
    "a truncate overwrite => nothing; has A",
    "a append; delete a1; a append => kept; has a0 a2 a3",
    "a append; b truncate; a append; has B; a append overwrite; has A B; a append; c append; "
    "a append; a append new; has A B C",
    *(f"a {how}; kill a; a {how}; a {how} overwrite => nothing; has A" for how in DISPOSITIONS),
    *(f"a {how}; kill a; b append; a {how}; has A B" for how in ("append", "fail")),
    "a append; kill a; b append project=other-project; a append; has A B",
    "a fail; b append; a fail overwrite => full; a fail => nothing; has A B; drop; b append; "
    "a fail => full; a fail elsewhere => full; has B",
    "a truncate; kill a; b append project=other-project; a truncate; has A",
    "a append; lose a; a append overwrite; has A",
    # An empty table takes any vectors, and says which.
    "a append; empty; b append dim=8; c append => refused; c append dim=8; has B C",
    "a append granularity=sentence,token; b append; has A B",
    # Blocks that were skipped are not computed once rows are there that stay.
    *(
        f"a append block_bytes=60 skip_blocks=0 => lacking; {kill}a append block_bytes=60 => "
        "lacking; has a2 a3"
        for kill in ("", "kill a; ")
    ),
    "a truncate block_bytes=60 skip_blocks=0; a truncate block_bytes=60 => loaded; has A",
]
SAID = {
    "loaded": "vectors of 4 documents loaded at ",
    "nothing": "nothing to do",
    "kept": "not loaded again",
    "refused": "holds other vectors than this run",
    "full": " rows already, and --write_disposition is fail",
    "lacking": "the table lacks 2 documents of skipped blocks: the same command without --skip_bl",
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_table_has_each_row_once_whatever_comes(bigquery, dataset, into, tmp_path, scenario):
    table = f"test-project.{dataset}.v"
    for step in scenario.split("; "):
        done, _, wanted = step.partition(" => ")
        match done.split():
            case ["has", *names]:
                there = {"A": A, "B": B, "C": C, "nothing": []}
                expected = [one for name in names for one in there.get(name, [name])]
                assert ids(bigquery, dataset) == expected, step
            case ["empty"]:
                bigquery.rows(f"DELETE FROM `{table}` WHERE TRUE")
            case ["delete", name]:
                bigquery.rows(f"DELETE FROM `{table}` WHERE id = '{name}'")
            case ["drop"]:
                time.sleep(1)  # of the end of a load the second is kept
                bigquery.client.delete_table(table)
            case ["kill", name]:
                interrupted(tmp_path / name)
            case ["lose", name]:
                (tmp_path / name / "run.json").unlink()
            case [name, disposition, *more]:
                folder = next((word for word in more if word in ("elsewhere", "new")), name)
                flags = dict(word.split("=") for word in more if "=" in word)
                flags |= {"overwrite": True} if "overwrite" in more else {}
                code = 2 if wanted in ("refused", "full") else 0
                said = into(name, disposition, folder, code, **flags).said
                assert code or record(tmp_path / folder)["status"] == "done"
                assert SAID.get(wanted, "") in said, step
                assert wanted != "loaded" or SAID["nothing"] not in said, step


@pytest.fixture
def between(monkeypatch):
    """Has something happen once, as a function is called, or after it."""

    def happens(place, name, other, after=False):
        straight = getattr(place, name)

        def with_other(*arguments, **settings):
            monkeypatch.setattr(place, name, straight)
            result = straight(*arguments, **settings) if after else None
            other()
            return result if after else straight(*arguments, **settings)

        monkeypatch.setattr(place, name, with_other)

    return happens


@pytest.mark.parametrize("count", [4, 9])
def test_of_two_truncates_at_once_one_is_not_done(
    bigquery, dataset, into, between, tmp_path, count
):
    texts(tmp_path / "b.jsonl", "b", count)
    between(loads, "run_once", lambda: into("b", "truncate"), after=True)
    note = f"note: others changed test-project.{dataset}.v since this load"
    assert note in into("a", "truncate").out
    assert len(ids(bigquery, dataset)) == count
    for name, there in (("a", A), ("b", sorted(f"b{n}" for n in range(count)))):
        said = into(name, "truncate").out
        assert "nothing to do" not in said
        assert note not in said
        assert ids(bigquery, dataset) == there
        assert "nothing to do" in into(name, "truncate").out


@pytest.mark.parametrize(
    ("place", "name", "several"),
    [(loads, "_vector_files", False), (Client, "load_table_from_file", True)],
)
def test_of_two_increments_at_once_one_is_refused_and_plans_again(
    bigquery, dataset, into, between, tmp_path, monkeypatch, place, name, several
):
    if several:
        monkeypatch.setattr("bert_embed.transforms.bigquery.load.MOST_URIS", 2)
    flags = {"skip_existing": f"test-project:{dataset}.v", "part_docs": 2}
    into("a", "append")
    lines = {one: (tmp_path / f"{one}.jsonl").read_text() for one in "abc"}
    (tmp_path / "b.jsonl").write_text(f"{lines['a']}\n{lines['b']}")
    (tmp_path / "c.jsonl").write_text(f"{lines['a']}\n{lines['b']}\n{lines['c']}")
    between(place, name, lambda: into("b", "append", **flags))
    said = into("c", "append", code=1, **flags).err
    assert ids(bigquery, dataset) == A + B
    assert f"output_table test-project:{dataset}.v " in said
    assert "after this run compared its input with it" in said
    assert said.endswith("; --overwrite compares again, and embeds only what the table lacks\n")
    said = into("c", "append", code=2, **flags).err
    assert "--overwrite compares again, and embeds only what the table lacks" in said
    assert "nothing to do" in into("b", "append", **flags).out
    into("c", "append", overwrite=True, **flags)
    assert record(tmp_path / "c")["counts"]["skipped"] == 8
    assert ids(bigquery, dataset) == A + B + C
    assert "nothing to do" in into("c", "append", **flags).out
    into("c", "append", "elsewhere", **flags)
    interrupted(tmp_path / "c")  # between load and record
    into("c", "append", **flags)
    assert record(tmp_path / "c")["status"] == "done"
    assert ids(bigquery, dataset) == A + B + C


def test_files_grouped_otherwise_are_loaded(bigquery, gcs, dataset, into, monkeypatch):
    """A job of the folder that was killed held one file, the job of that number now holds three."""
    monkeypatch.setattr("bert_embed.transforms.bigquery.load.MOST_URIS", 3)
    gcs.put(f"bucket-{dataset}", {})
    upload, started = Client.load_table_from_file, itertools.count()

    def killed(*arguments, **settings):
        if next(started):
            raise KeyboardInterrupt
        return upload(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr("bert_embed.transforms.bigquery.load._MOST_UPLOAD", 1)
        patch.setattr(Client, "load_table_from_file", killed)
        into("a", "append", code=130, part_docs=1)
    into("a", "append", f"gs://bucket-{dataset}/a", part_docs=1)
    assert ids(bigquery, dataset) == A


def test_skipped_rows_are_not_truncated(bigquery, dataset, into, tmp_path):
    table = f"test-project:{dataset}.v"
    into("a", "append")
    for skipped, target in (
        (table, table),
        (table, f"{table}$20260131"),
        (str(tmp_path / "a"), table),
    ):
        message = f"--write_disposition truncate would remove the rows of --skip_existing {skipped}"
        said = into("b", "truncate", code=2, skip_existing=skipped, table=target)
        assert message in said.err
    assert not (tmp_path / "b").exists()
    assert ids(bigquery, dataset) == A
    day = {"table": f"test-project:{dataset}.w$20260131"}
    into("b", "truncate", skip_existing=str(tmp_path / "a"), **day)
    day = {"table": f"test-project:{dataset}.w$20260201"}
    into("c", "truncate", skip_existing=str(tmp_path / "b"), **day)


def test_truncate_keeps_columns_that_the_vectors_do_not_have(bigquery, dataset, into):
    into("a", "append")
    columns = bigquery.client.get_table(name := f"test-project.{dataset}.v").schema
    bigquery.client.delete_table(name)
    bigquery.client.create_table(Table(name, [*columns, SchemaField("note", "STRING")]))
    into("b", "truncate")
    rows = bigquery.rows(f"SELECT id, note FROM `{name}` ORDER BY id")
    assert rows == [(one, None) for one in B]


@pytest.mark.parametrize("when", ["before the load", "after the load"])
def test_a_killed_overwrite_loads_once(bigquery, dataset, into, tmp_path, monkeypatch, when):
    into("a", "append")
    bigquery.rows(f"DELETE FROM `test-project.{dataset}.v` WHERE TRUE")
    upload = Client.load_table_from_file

    def killed(*arguments, **settings):
        if when == "after the load":
            upload(*arguments, **settings).result()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Client, "load_table_from_file", killed)
        into("a", "append", code=130, overwrite=True)
    into("a", "append", overwrite=True)
    assert ids(bigquery, dataset) == A


def test_other_vectors_are_not_appended(bigquery, dataset, into, model_of, tmp_path):
    other_model = model_of(write_tiny_huggingface, heads=2).path
    into("a", "append")
    for flags, differs in (
        ({"pooling": "cls"}, 'pooling is "mean" there and "cls" here'),
        ({"model": other_model}, "model is "),
        ({"max_seq_length": 16}, "max_seq_length is 64 there and 16 here"),
        ({"dim": 8}, "dim is null there and 8 here"),
    ):
        error = into("b", "append", code=2, **flags).err
        assert f"--output_table test-project:{dataset}.v holds other vectors than this" in error
        assert differs in error
        assert not (tmp_path / "b").exists()
    # All rows are replaced: what they are is, too.
    into("b", "truncate", **flags)
    assert ids(bigquery, dataset) == B
    into("c", "append", code=2)
    into("c", "append", **flags)
    assert ids(bigquery, dataset) == B + C
    flags = {**flags, "skip_existing": f"test-project:{dataset}.v"}
    into("c", "append", "increment", **flags)
    assert record(tmp_path / "increment")["counts"]["skipped"] == 4


def test_a_description_that_somebody_else_wrote_stays(bigquery, dataset, into):
    into("a", "append")
    theirs = Table(f"test-project.{dataset}.v")
    theirs.description = "vectors of ours"
    bigquery.client.update_table(theirs, ["description"])
    into("b", "append")
    assert bigquery.client.get_table(theirs.reference).description == "vectors of ours"


def test_a_replacement_that_is_killed_leaves_the_description(bigquery, dataset, into, monkeypatch):
    into("a", "truncate")
    with monkeypatch.context() as patch:
        patch.setattr(Client, "load_table_from_file", mock.Mock(side_effect=KeyboardInterrupt))
        into("b", "truncate", code=130, dim=8)
    into("c", "append", code=2, dim=8)
    into("b", "truncate", dim=8)
    into("c", "append", dim=8)
    assert ids(bigquery, dataset) == B + C


def test_extra_columns_that_the_table_lacks_are_told_first(bigquery, dataset, into, tmp_path):
    into("a", "append")
    lines = {"id": "d", "text": "a text", "title": "t", "year": 1, "my-title": "t", "_TABLE_x": "t"}
    (tmp_path / "c.jsonl").write_text(json.dumps(lines))
    schema = bigquery.client.get_table(f"test-project.{dataset}.v").schema
    schema = [*schema, SchemaField("title", "STRING"), SchemaField("year", "STRING")]
    bigquery.client.create_table(Table(f"test-project.{dataset}.w", schema=schema))
    for disposition, table, columns, said in (
        *((each, "v", "title,year:int64", "it has no column title") for each in DISPOSITIONS),
        ("append", "w", "title,year:int64", "its column year is STRING, INT64 is required"),
        ("append", "v", "my-title", "'my-title' is not a column of BigQuery: letters, digits and"),
        ("append", "v", "_TABLE_x", "'_TABLE_x' is not a column of BigQuery: letters, digits and"),
    ):
        flags = {"table": f"test-project:{dataset}.{table}", "extra_columns": columns}
        assert said in into("c", disposition, code=2, **flags).err
    assert not (tmp_path / "c").exists()


def test_rows_of_a_query_do_not_get_into_messages(bigquery, dataset, run):
    bigquery.fill(f"test-project.{dataset}.t", [{"id": "a", "text": "the secret words"}])
    for called in ("ERROR(text)", "CAST(text AS INT64)", "DATE(text)"):
        sql = f"SELECT id, {called} AS text FROM `test-project.{dataset}.t`"
        run.refused((), "error: --query: ", query=sql, project="test-project")
        assert "secret words" not in run.said


def test_a_query_that_fails_as_it_runs_quotes_no_row():
    """The emulator runs a query in its dry run, too, where the service reads no row."""
    from google.api_core.exceptions import BadRequest

    errors = [{"reason": "invalidQuery", "message": "Bad int64 value: the secret words"}]
    error = BadRequest("Bad int64 value: the secret words", errors=errors)
    error.query_job = QueryJob("j1", "SELECT 1", Client("p-1", AnonymousCredentials()))
    with (
        pytest.raises(ValueError, match=r"^--query: job j1 failed: invalidQuery") as raised,
        translate_errors("--query"),
    ):
        raise error
    assert "secret words" not in "".join(traceback.format_exception(raised.value))


def test_why_a_load_failed_is_told_without_a_row(bigquery, dataset, into, tmp_path, monkeypatch):
    quota = "Quota exceeded: Your table exceeded quota for imports or query appends"
    denied = "Access Denied: File gs://bucket/embeddings-1: Access Denied"
    row = "Could not parse 'a red' as INT64 for field n (position 2); Value: a red"
    for reason, message in (("quotaExceeded", quota), ("accessDenied", denied), ("invalid", row)):
        monkeypatch.setattr(bigquery, "failing", {"reason": reason, "message": message})
        said = into("a", "append", code=1)
        assert (message in said.err) == (reason != "invalid")
    assert "a red" not in said.out + said.err + (tmp_path / "a" / "run.json").read_text()
    assert re.search(r"job bert_embed_\w+_2 failed: invalid", said.err)
    assert "bq show --job" in said.err
    assert record(tmp_path / "a")["status"] == "failed"
    monkeypatch.setattr(bigquery, "failing", None)
    into("a", "append")
    counts = record(tmp_path / "a")["counts"]
    assert counts["parts_reused"] == counts["parts"]
    assert bigquery.jobs[-1][1].endswith("_3")  # each attempt is a job of another name
    assert count(bigquery, dataset) == 4


def test_a_load_that_meets_a_limit_waits_and_tries_again(into, bigquery, monkeypatch):
    message = "Exceeded rate limits: too many table update operations for this table"
    waited = []
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.time.sleep", waited.append)
    for number, reason in enumerate(("rateLimitExceeded", "jobRateLimitExceeded"), 1):
        monkeypatch.setattr(bigquery, "failing", {"reason": reason, "message": message})
        started = len(bigquery.jobs)
        assert message in into("a", "append", code=1).err
        assert [kind for kind, _ in bigquery.jobs[started:]].count("load") == 3
        assert [seconds for seconds in waited if seconds >= 10] == [10, 20] * number
    monkeypatch.setattr(bigquery, "failing", None)
    into("a", "append")


@pytest.mark.parametrize(("limited", "code"), [(1, 0), (9, 1)])
def test_an_upload_that_meets_a_limit_is_tried_again(
    into, bigquery, dataset, tmp_path, monkeypatch, limited, code
):
    """Its job never exists, but keeps its name."""
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.time.sleep", lambda seconds: None)
    monkeypatch.setattr(bigquery, "limited", limited)
    assert ("Exceeded rate limits" in into("a", "append", code=code).err) == bool(code)
    bigquery.limited = 0
    into("a", "append")
    assert ids(bigquery, dataset) == A
    interrupted(tmp_path / "a")
    into("a", "append")
    into("a", "append", "elsewhere")
    assert ids(bigquery, dataset) == A


def test_a_project_that_runs_no_jobs_is_named_first_and_why(into, bigquery, monkeypatch, tmp_path):
    """A limit is not called a lack of permission."""
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.FIRST_ANSWER", 0.5)
    monkeypatch.setattr(bigquery, "denied", {"test-project"})
    for reason, said, code in (
        ("accessDenied", "not allowed with the credentials of this machine (Access Denied", 2),
        ("quotaExceeded", "Quota exceeded: Your project exceeded quota for jobs", 2),
        ("rateLimitExceeded", "Exceeded rate limits: too many api requests", 1),
    ):
        monkeypatch.setattr(bigquery, "refusal", (reason, said.rpartition("(")[2]))
        error = into("a", "append", code=code).err
        assert f"--output_table: jobs of project test-project cannot be run: {said}" in error
        assert ("not allowed" in error) == (reason == "accessDenied")
        assert "reached" not in error
        assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("fault", [520, "lost", "half", EMPTY, PAGE])
def test_what_a_proxy_answers_once_is_asked_again(bigquery, dataset, into, monkeypatch, fault):
    """Each kind of request fails at first; uploads alone are told of, and continued by the job."""
    begun = set()

    def first(method, path):
        kind = (method, re.sub(r"[0-9a-f-]{20,}|[?].*", "", path))
        fails = kind not in begun and "/upload/" not in path
        begun.add(kind)
        return fault if fails else None

    with proxy(os.environ["BIGQUERY_EMULATOR_HOST"]) as between:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", between.url)
        between.fault = first
        into("a", "append")
        assert between.failed > 2
    assert ids(bigquery, dataset) == A


def test_a_proxy_that_stays_in_the_way_is_no_fault_of_the_command(into, monkeypatch):
    for name in ("PATIENCE", "FIRST_ANSWER"):
        monkeypatch.setattr(f"bert_embed.transforms.bigquery.client.{name}", 0.5)
    with proxy(os.environ["BIGQUERY_EMULATOR_HOST"]) as between:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", between.url)
        for fault in (520, PAGE):
            between.fault = lambda method, path, fault=fault: fault
            said = into("a", "append", code=1).err
            assert f"BigQuery at {between.url} cannot be reached" in said
