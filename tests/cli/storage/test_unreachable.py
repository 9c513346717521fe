"""Google's services out of reach: told in one sentence, soon, and before what needs no network."""

import time

import pytest

from bert_embed.storage import gcs
from tests.support.command import embed

CLOSED = "http://127.0.0.1:9"  # where nothing listens


@pytest.fixture
def without_google(monkeypatch, tmp_path):
    """No credentials, and no way to Google; nothing is waited for long."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HTTPS_PROXY", CLOSED)
    monkeypatch.setattr(gcs, "FIRST_ANSWER", 0.1)
    monkeypatch.setattr(gcs, "_answered", set())  # other tests' clients stand in for Google's


def test_missing_credentials_are_named(without_google, run):
    run("gs://nobody/a.txt", code=1)
    assert "Cloud Storage cannot be reached or refuses (" in run.err
    message = "there are no credentials on this machine: run `gcloud auth application-default"
    assert message in run.err


@pytest.mark.slow
def test_a_plan_waits_once_and_not_for_long(without_google, monkeypatch, run, tiny_bundle, capsys):
    monkeypatch.setattr(gcs, "FIRST_ANSWER", 30.0)
    (path,) = run.written({"in.txt": "the bank\n"})
    began = time.monotonic()
    assert embed("gs://nobody/out", tiny_bundle, path, dry_run=True) == 1
    assert "gs://nobody/out/run.json cannot be read" in capsys.readouterr().err
    assert time.monotonic() - began < 15


def test_bigquery_out_of_reach_is_said_soon(monkeypatch, run):
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.FIRST_ANSWER", 0.1)
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", CLOSED)
    text, table = {"in.txt": "the bank\n"}, "test-project:d.t"
    for source, flags in (
        (text, {"output_format": "bigquery", "output_table": table}),
        (text, {"skip_existing": table}),
        (table, {}),
    ):
        run(source, code=1, **flags)
        assert f"BigQuery at {CLOSED} cannot be reached (ConnectionError)" in run.err
