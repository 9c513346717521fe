"""deploy/try_it.sh: its ten commands against the fakes, what they must print, and what is left."""

import os
import re
import subprocess
import sys
import time

import pytest

from tests.support.command import ROOT, ran, record
from tests.support.servers.dataflow import dataflow_server, run_graph

pytestmark = pytest.mark.slow
SCRIPT = str(ROOT / "deploy" / "try_it.sh")
_GCLOUD = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *"jobs list"*) echo {state} ;;
esac
"""
_PYTHON = """#!/bin/sh
case "$*" in
  *DataflowRunner*) exec {python} "$@" --dataflow_endpoint={url} ;;
esac
exec {python} "$@"
"""
_SAYS_IT_ALL = """#!/bin/sh
[ "$1" != -c ] || exec {python} "$@"
echo tokens, 100 embedded, all as written, nothing to do
"""


@pytest.fixture
def try_it(gcs, tmp_path):
    """Starts it with programs in the place of gcloud and Python."""

    def started(project, state, python, **variables):
        gcloud = _GCLOUD.format(log=tmp_path / "log", state=state)
        for name, text in (("gcloud", gcloud), ("python", python)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        env = os.environ | {"PYTHON": str(tmp_path / "python"), "TRY_SLEEP": "0"} | variables
        env["PATH"] = f"{tmp_path}:{env['PATH']}"
        with (tmp_path / "said").open("wb") as out:
            return subprocess.Popen([SCRIPT, project, "us-east1"], env=env, stdout=out, stderr=out)

    return started


def check_that_nothing_is_left(log, project):
    """It cleans up, whatever happens."""
    commands = log.read_text().splitlines()
    assert commands[-2].startswith(f"storage rm --recursive gs://{project}-bert-embed-try")
    assert commands[-1].startswith("artifacts repositories delete bert-embed-try")


def test_its_commands_do_what_they_say_and_nothing_is_left(gcs, tmp_path, minilm, try_it):
    lines = "".join(f'{{"id": "{n}", "text": "red {n}"}}\n' for n in range(120))
    gcs.put("acme-bert-embed-try", {"texts.jsonl": lines})
    with dataflow_server(tmp_path, gcs) as dataflow:
        python = _PYTHON.format(python=sys.executable, url=dataflow.url)
        process = try_it("acme", "Done", python, **dataflow.environment)
        while process.poll() is None:
            for job in list(dataflow.jobs.values()):
                if job["currentState"] == "JOB_STATE_RUNNING":
                    run_graph(dataflow, job)
            time.sleep(0.2)
    assert process.returncode == 0, (tmp_path / "said").read_text()
    assert len(dataflow.jobs) == 1, "the second run of step 8 has nothing to do"
    run = record(gcs.root / "acme-bert-embed-try" / "vectors")
    assert (run["status"], run["counts"]["embedded"]) == ("done", 100)
    launched = re.search(r".*flex-template run.*", (tmp_path / "log").read_text())[0]
    assert "limit=100" in launched
    check_that_nothing_is_left(tmp_path / "log", "acme")


def test_a_job_of_the_template_that_fails_fails_it(tmp_path, try_it):
    python = _SAYS_IT_ALL.format(python=sys.executable)
    assert try_it("acme", "Failed", python).wait(100) == 1, (tmp_path / "said").read_text()
    check_that_nothing_is_left(tmp_path / "log", "acme")


def test_it_shows_its_ten_commands():
    shown = ran([SCRIPT, "acme-project", "us-east1", "--print"], check=True).stdout
    assert [line.split("/")[0] for line in shown.splitlines() if "/10 " in line] == [
        str(number) for number in range(1, 11)
    ]
    assert "must print: 100 embedded" in shown
    assert ran([SCRIPT, "acme-project"]).returncode == 2
