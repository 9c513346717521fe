"""deploy/try_it.sh: its ten commands against the fakes, what they must print, and what is left."""

import os
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


@pytest.mark.parametrize(("state", "code"), [("Done", 0), ("Failed", 1)])
def test_its_commands_do_what_they_say_and_nothing_is_left(gcs, tmp_path, minilm, state, code):
    log, project = tmp_path / "log", f"acme-{state.lower()}"
    bucket = gcs.client.create_bucket(f"{project}-bert-embed-try")
    bucket.blob("texts.jsonl").upload_from_string(
        "".join(f'{{"id": "{n}", "text": "red {n}"}}\n' for n in range(120))
    )
    with dataflow_server(tmp_path, gcs) as dataflow:
        programs = {
            "gcloud": _GCLOUD.format(log=log, state=state),
            "python": _PYTHON.format(python=sys.executable, url=dataflow.url),
        }
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        env = {**os.environ, **dataflow.environment, "PYTHON": str(tmp_path / "python")}
        env |= {"PATH": f"{tmp_path}:{env['PATH']}", "TRY_SLEEP": "0"}
        with (tmp_path / "said").open("wb") as out:
            process = subprocess.Popen([SCRIPT, project, "us-east1"], env=env, stdout=out, stderr=2)
            while process.poll() is None:
                for job in list(dataflow.jobs.values()):
                    if job["currentState"] == "JOB_STATE_RUNNING":
                        run_graph(dataflow, job)
                time.sleep(0.2)
    said = (tmp_path / "said").read_text()
    assert process.returncode == code, said
    assert len(dataflow.jobs) == 1, "the second run of step 8 has nothing to do"
    run = record(gcs.root / f"{project}-bert-embed-try" / "vectors")
    assert (run["status"], run["counts"]["embedded"]) == ("done", 100)
    commands = log.read_text().splitlines()
    launched = [line for line in commands if "flex-template run" in line]
    assert "limit=100" in launched[0]
    # It cleans up, whatever happens.
    assert commands[-2].startswith(f"storage rm --recursive gs://{project}-bert-embed-try")
    assert commands[-1].startswith("artifacts repositories delete bert-embed-try")


def test_it_shows_its_ten_commands():
    shown = ran([SCRIPT, "acme-project", "us-east1", "--print"], check=True).stdout
    assert [line.split("/")[0] for line in shown.splitlines() if "/10 " in line] == [
        str(number) for number in range(1, 11)
    ]
    assert "must print: 100 embedded" in shown
    assert ran([SCRIPT, "acme-project"]).returncode == 2
