"""What a dry run says of a job on a cluster and of tables, with and without an account."""

import pytest

from bert_embed.pipeline.runners.dataflow import worker_lines
from bert_embed.pipeline.runners.options import RunnerOptions

pytestmark = pytest.mark.slow
INTO = {"output_format": "bigquery", "dry_run": True}


def plan(run, table, **flags):
    run({"in.jsonl": '{"text": "a red river", "year": 7}\n'}, output_table=table, **INTO, **flags)
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
    run(input="test-project:texts.news", dry_run=True)
    assert "note: input and output were not looked at (BigQuery needs credentials" in run.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--setup_file=./setup.py",), "packages that each worker installs, as many as"),
        (("--sdk_container_image=a/b:c", "--max_num_workers=9"), "a/b:c, at most 9 workers of "),
    ],
)
def test_the_plan_names_region_image_and_machines(more, said):
    flags = ("--region=us-central1", "--project=acme", *more)
    (line,) = worker_lines(RunnerOptions(runner="DataflowRunner", beam_args=flags))
    assert line.startswith(f"DataflowRunner in us-central1, project acme: {said}")
