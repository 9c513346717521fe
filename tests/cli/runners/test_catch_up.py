"""Launches of a template day after day: one that failed or was refused costs no day."""

import datetime
import json
import re

import pytest

from bert_embed.pipeline.cli import exit_code
from deploy.dataflow.template import run_template
from tests.integration.deploy.test_terraform import SIMPLE, SOURCES
from tests.support.command import record
from tests.support.servers.dataflow import dataflow_server, run_graph

pytestmark = pytest.mark.slow
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")


@pytest.fixture
def cloud(gcs, tmp_path):
    bucket = gcs.client.bucket("days")
    if not bucket.exists():
        bucket.create()
    for day in DAYS:
        bucket.blob(f"texts/{day}/a.jsonl").upload_from_string('{"id": "a", "text": "red"}\n')
    with dataflow_server(tmp_path, gcs) as server, server.at_hand():
        yield server


def launcher(cloud, model, folder):
    """What the schedule's body has a launcher do at a time: the exit code, and its job or None."""
    body = SOURCES["schedule.tf"]
    asked = dict(re.findall(r"^ +(today|catch_up_days) += (\S+)$", body, re.MULTILINE))
    assert asked == {"today": "local.day_begins", "catch_up_days": "var.catch_up_days"}
    words = [*cloud.flags("days"), "--sdk_container_image=us-docker.pkg.dev/p/r/i:1"]
    words += [f"--model={model}", "--job_name=daily"]
    words += ["--input=gs://days/texts/{yesterday}/*.jsonl", "--output=gs://days/v/{yesterday}"]
    words += ["--today=00:00", f"--template_location={folder}/job.json"]

    def launch(time, *more):
        job = folder / "job.json"
        job.unlink(missing_ok=True)
        now = datetime.datetime.fromisoformat(f"2026-03-{time}+00:00")
        code = exit_code("embed", lambda: run_template([*words, *more], now))
        return code, json.loads(job.read_text()) if job.exists() else None

    return launch


def done(gcs):
    runs = sorted((gcs.root / "days" / "v").glob("*"))
    return [run.name for run in runs if record(run)["status"] == "done"]


def test_no_day_is_lost(cloud, gcs, tiny_bundle, tmp_path, capsys):
    launch = launcher(cloud, tiny_bundle, tmp_path)
    week = "--catch_up_days=7"
    code, failed = launch("02T02:17", week)
    assert code == 0, capsys.readouterr().err
    assert failed is not None
    # It fails. The launch of the next day is refused, as it still runs: nothing starts at all.
    assert done(gcs) == []
    for time, day in (("04T02:17", 0), ("04T14:17", 1), ("05T02:17", 2)):
        code, job = launch(time, week)
        assert code == 0, capsys.readouterr().err
        run_graph(cloud, job)
        assert done(gcs) == list(DAYS[: day + 1]), "the oldest first"
    code, job = launch("04T14:17", week)
    assert (code, "nothing to do" in capsys.readouterr().out) == (0, True)
    assert job is not None


def test_days_without_a_day_in_the_output_are_refused(cloud, tiny_bundle, tmp_path, capsys):
    launch = launcher(cloud, tiny_bundle, tmp_path)
    assert launch("02T02:17", "--catch_up_days=2", "--output=gs://days/all") == (2, None)
    assert "catch_up_days 2 requires a day in output" in capsys.readouterr().err


def test_the_schedule_launches_more_often_than_days_begin():
    """So that what the first launch of a day left is embedded by the next."""
    [schedule] = re.findall(r'default +\= "(\d+ [\d,]+ \* \* \*)"', SOURCES["variables.tf"])
    assert len(schedule.split()[1].split(",")) > 1
    assert "{" in re.search(r"output += (.*)", SIMPLE)[1]
