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


def test_missing_credentials_are_named(without_google, tiny_bundle, tmp_path, capsys):
    assert embed(tmp_path / "out", tiny_bundle, "gs://nobody/a.txt") == 1
    message = capsys.readouterr().err
    assert "Cloud Storage cannot be reached or refuses (" in message
    assert "there are no credentials on this machine: run `gcloud auth application-default" in (
        message
    )


@pytest.mark.slow
def test_a_plan_waits_once_and_not_for_long(
    without_google, monkeypatch, tiny_bundle, tmp_path, capsys
):
    monkeypatch.setattr(gcs, "FIRST_ANSWER", 30.0)
    path = tmp_path / "in.txt"
    path.write_text("the bank\n")
    began = time.monotonic()
    assert embed("gs://nobody/out", tiny_bundle, path, dry_run=True) == 1
    assert "gs://nobody/out/run.json cannot be read" in capsys.readouterr().err
    assert time.monotonic() - began < 15


def test_a_wrong_table_is_said_before_the_input_is_looked_for(
    without_google, tiny_bundle, tmp_path, capsys
):
    flags = {"output_format": "bigquery", "output_table": "vectors.news"}
    assert embed(tmp_path / "out", tiny_bundle, "gs://nobody/a.txt", **flags) == 2
    message = capsys.readouterr().err
    assert "--output_table 'vectors.news' is not a table: write project:dataset.table" in message


@pytest.mark.parametrize(
    "flags",
    [
        {"output_format": "bigquery", "output_table": "test-project:d.t"},
        {"skip_existing": "test-project:d.t"},
        {"input": "test-project:d.t"},
    ],
    ids=["output", "earlier", "input"],
)
def test_bigquery_out_of_reach_is_said_soon(monkeypatch, tiny_bundle, tmp_path, capsys, flags):
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.FIRST_ANSWER", 0.1)
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", CLOSED)
    path = tmp_path / "in.txt"
    path.write_text("the bank\n")
    given = flags.pop("input", path)
    assert embed(tmp_path / "out", tiny_bundle, given, **flags) == 1
    assert f"BigQuery at {CLOSED} cannot be reached (ConnectionError)" in capsys.readouterr().err
