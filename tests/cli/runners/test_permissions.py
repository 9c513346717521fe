"""The roles of docs/cloud.md: each step of the page passes with its row, and with no role less."""

import json
import re
import time

import pytest

from tests.support.command import ROOT, embed
from tests.support.servers.dataflow import PROJECT, dataflow_server
from tests.support.servers.gcs import behind
from tests.support.servers.permissions import ROLES, Account

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "cloud.md").read_text("utf-8")
LINE = '{"id": "a", "text": "the bank of the river"}\n'
WORKERS = "workers@p.iam.gserviceaccount.com"
_ROLE = re.compile(r"`([a-z]+\.[a-zA-Z]+)`")


def row(purpose):
    """The roles of a row of the page's table: on the project, and elsewhere."""
    [line] = [line for line in PAGE.splitlines() if f"| {purpose} |" in line]
    project, elsewhere = line.strip("|").split("|")[-2:]
    return _ROLE.findall(project), _ROLE.findall(elsewhere)


def resource(role, buckets):
    """Where a role of a row is granted: on the bucket that a row needs it for, or a data set."""
    kind = role.partition(".")[0]
    return {"iam": ["account"], "bigquery": ["permitted"]}.get(kind) or buckets[role]


def accounts(purposes, buckets, without=()):
    """The account with all roles of rows, and for each role another that lacks it there."""
    grants = []
    for purpose in purposes:
        project, elsewhere = row(purpose)
        grants += [("project", role) for role in project]
        grants += [(place, role) for role in elsewhere for place in resource(role, buckets)]
    grants = [grant for grant in dict.fromkeys(grants) if grant[1] in ROLES]
    yield None, _account(grants)
    for grant in grants:
        if grant[1] not in without:
            yield grant, _account([one for one in grants if one != grant])


def _account(grants):
    account = Account()
    for place, role in grants:
        account.grant(place, role)
    return account


SUBMITS = "`--runner DataflowRunner`"
READS, WRITES = "`--input gs://…`, `--model gs://…`", "`--output gs://…`, `--temp_location`"
TABLE = "a BigQuery table or query in, a table in `--skip_existing`"
QUERY, LOADS = "a query, or `--limit` of a table", "`--output_format bigquery`"
IN, OUT = "gs://permitted-in", "gs://permitted-out"
BOTH = {"storage.objectViewer": [IN], "storage.objectUser": [OUT]}
SUBMITTER = BOTH | {"storage.legacyBucketReader": [OUT]}


@pytest.fixture
def storage(gcs, monkeypatch):
    """Cloud Storage behind a proxy that asks the account."""
    for name in (IN, OUT):
        gcs.put(name.removeprefix("gs://"), {"in.jsonl": LINE * 9})
    with behind(gcs, monkeypatch) as proxy:
        yield proxy


@pytest.fixture
def table(bigquery):
    """Makes a table with a text in a data set of this name."""

    def made(name):
        bigquery.client.delete_table(f"test-project.{name}.t", not_found_ok=True)
        bigquery.fill(f"test-project.{name}.t", [json.loads(LINE)])
        return f"test-project.{name}.t"

    return made


@pytest.fixture
def dataflow(tmp_path, gcs, monkeypatch):
    with dataflow_server(tmp_path, gcs) as server:
        name = "GOOGLE_APPLICATION_CREDENTIALS"
        monkeypatch.setenv(name, server.environment[name])
        yield server


def test_submitting_needs_every_role_of_its_row(storage, dataflow, tiny_bundle, command, gcs):
    for number, (missing, account) in enumerate(accounts([SUBMITS], SUBMITTER)):
        storage.fault, dataflow.account = account.storage, account
        words = [f"--input={IN}/in.jsonl", f"--output={OUT}/s{number}"]
        words, began = [*_submission(dataflow, tiny_bundle), *words], time.monotonic()
        errors = command(*words, code=0 if missing is None else 2).err
        assert len(dataflow.jobs) == 1, missing
        if missing is not None:
            assert errors.count("\n") == 1
            assert any(one in errors for one in ROLES[missing[1]]), (missing, errors)
            assert time.monotonic() - began < 10
            assert not list(gcs.root.glob(f"permitted-out/s{number}/*"))


def test_a_bucket_that_may_not_be_looked_at_is_named(storage, dataflow, tiny_bundle, command):
    """The emulator does not know the question; Beam would try again for minutes."""
    storage.fault = lambda method, path: (
        403 if path.partition("?")[0].endswith("/b/permitted-out") else None
    )
    words = [f"--input={IN}/in.jsonl", f"--output={OUT}/unseen"]
    began = time.monotonic()
    errors = command(*_submission(dataflow, tiny_bundle), *words, code=2).err
    assert f"--temp_location {OUT} lacks the permission storage.buckets" in errors
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("purposes", "flags"),
    [
        ([READS, WRITES], {}),
        ([TABLE], {"input": "test-project:permitted.t"}),
        ([TABLE, QUERY], {"query": "SELECT * FROM `test-project.permitted.t`", "project": PROJECT}),
        ([WRITES, LOADS], {"output_format": "bigquery"}),
    ],
    ids=["files", "table", "query", "load"],
)
def test_a_run_needs_every_role_of_its_rows(
    storage, table, bigquery, tiny_bundle, tmp_path, capsys, monkeypatch, purposes, flags
):
    table("permitted")
    (tmp_path / "in.jsonl").write_text(LINE * 9)
    if "query" not in flags:
        source = f"{IN}/in.jsonl" if READS in purposes else tmp_path / "in.jsonl"
        flags = {"input": source} | flags
    # The emulator's Storage Read does not ask the account; the bucket is read and written by one.
    unasked = ["bigquery.readSessionUser", "bigquery.resourceViewer"]
    unasked += ["storage.objectViewer"] if LOADS in purposes else []
    unasked += ["bigquery.jobUser"] if QUERY in purposes else []  # `user` holds it, too
    for number, (missing, account) in enumerate(accounts(purposes, BOTH, unasked)):
        remote = f"{OUT}/{tmp_path.name}-{number}"
        output = remote if WRITES in purposes else tmp_path / str(number)
        if LOADS in purposes:
            flags["output_table"] = f"test-project.permitted.v{number}"
        storage.fault = account.storage
        monkeypatch.setattr(bigquery, "forbids", account.bigquery)
        code = embed(output, tiny_bundle, **flags)
        errors = capsys.readouterr().err
        assert (code == 0) == (missing is None), (missing, errors)
        if missing is not None:
            assert any(one in errors for one in ROLES[missing[1]]), (missing, errors)


def test_a_table_that_may_be_read_alone_is_refused_before_work(bigquery, run, table, monkeypatch):
    flags = {"output_format": "bigquery", "output_table": table("readable").replace(".t", ".v")}
    bigquery.client.delete_table(flags["output_table"], not_found_ok=True)
    run({"in.jsonl": LINE}, "first", **flags)
    account = Account().grant("project", "bigquery.jobUser")
    account.grant("readable", "bigquery.dataViewer")
    monkeypatch.setattr(bigquery, "forbids", account.bigquery)
    said = "--output_table test-project:readable.v lacks the permission bigquery.tables.up"
    run.refused({"in.jsonl": LINE}, said, **flags)


def test_the_account_of_workers_may_read_the_rows_of_a_query(
    bigquery, storage, dataflow, table, tiny_bundle, monkeypatch, command
):
    granted = []

    def note(method, path, body):
        if method == "PATCH" and "/datasets/_bert_embed_" in path:
            granted.extend(json.loads(body)["access"])

    words = [f"--query=SELECT * FROM `{table('queried')}`", f"--output={OUT}/queried"]
    monkeypatch.setattr(bigquery, "forbids", note)
    command(*_submission(dataflow, tiny_bundle), *words)
    assert {"role": "READER", "userByEmail": WORKERS} in granted


def _submission(dataflow, model):
    words = ["embed", *dataflow.flags("permitted-out"), f"--model={model}"]
    words += [f"--service_account_email={WORKERS}", "--no_wait_until_finish"]
    return [*words, "--sdk_container_image=us-docker.pkg.dev/p/r/i:1"]
