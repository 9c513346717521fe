"""The DAGs in a real Airflow: run by `make test-airflow`, which sets it up, not by `make test`.

Airflow is a program here, never imported: its environment and that of the pipeline stay apart.
"""

import ast
import datetime
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.parser import parse_embed
from tests.support.command import record, rows
from tests.support.daily import DAYS, ROOT, state_of, write_day, write_settings
from tests.support.servers.gcs import answers, free_port, running

BIN = ROOT / "build" / "airflow-venv" / "bin"
DAGS = ROOT / "deploy" / "airflow"
_READ = """
import importlib.util
from airflow.dag_processing.dagbag import DagBag
bag = DagBag({folder!r})
print("read", [sorted(bag.dags), bag.import_errors, importlib.util.find_spec("apache_beam")])
"""
_DATAFLOW = """{"project": "my-project", "region": "us-central1", "temp_location": "gs://bucket/tmp",
"image": "us-docker.pkg.dev/my-project/images/bert-embed:1"}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An Airflow with a database of its own."""
    folder = tmp_path_factory.mktemp("airflow")
    code, said = airflow(folder, "db", "migrate")
    assert code == 0, said
    return folder


def airflow(home: Path, *words: str, program: str = "airflow", **env: str) -> tuple[int, str]:
    """Runs a command of Airflow; returns its exit code and all it said."""
    done = subprocess.run(
        [BIN / program, *words],
        env={**os.environ, **settings_of(home), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def settings_of(home: Path) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW_VAR_BERT_EMBED_HOME": str(ROOT),
        "AIRFLOW_VAR_BERT_EMBED_DATAFLOW": _DATAFLOW,
        "BERT_EMBED_FIRST_DAY": DAYS[0],
    }


def test_the_dags_are_read_where_no_pipeline_is_installed(home):
    _, said = airflow(home, "-c", _READ.format(folder=str(DAGS)), program="python")
    found = [line for line in said.splitlines() if line.startswith("read ")]
    assert found == ["read [['bert_embed_daily', 'bert_embed_dataflow'], {}, None]"], said


def test_the_second_day_embeds_what_is_new_and_a_day_again_changes_nothing(
    home, tmp_path, tiny_bundle
):
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river", "b": "bank"})
    write_day(tmp_path / "texts", DAYS[1], {"a": "red river", "b": "seven", "c": "of"})
    settings = str(write_settings(tmp_path, tiny_bundle))
    for day in DAYS[:2]:
        code, said = run_day(home, settings, day)
        assert code == 0, said
    assert [rows(tmp_path / "vectors" / day)["id"] for day in DAYS[:2]] == [["a", "b"], ["b", "c"]]
    assert record(tmp_path / "vectors" / DAYS[1])["counts"]["skipped"] == 1

    before = state_of(tmp_path / "vectors")
    code, said = run_day(home, settings, DAYS[0])
    assert code == 0, said
    assert "nothing to do" in said
    assert state_of(tmp_path / "vectors") == before


def test_what_only_a_person_can_mend_is_not_tried_again(home, tmp_path, tiny_bundle):
    """A try that is to be repeated would keep `dags test` waiting, far over this test's time."""
    with open(write_day(tmp_path / "texts", DAYS[0], {"a": "red"}), "a") as file:
        file.write("no JSON\n")
    settings = write_settings(tmp_path, tiny_bundle, "--max_rejected=0")
    code, said = run_day(home, str(settings), DAYS[0])
    assert code != 0
    assert "exit code 3: the day is done, but more records were rejected" in said
    assert "DagRun failed" in said
    assert record(tmp_path / "vectors" / DAYS[0])["status"] == "done"


def run_day(home: Path, settings: str, day: str) -> tuple[int, str]:
    return airflow(
        home, "dags", "test", "bert_embed_daily", day, AIRFLOW_VAR_BERT_EMBED_SETTINGS=settings
    )


def test_a_day_is_that_of_the_time_zone_and_dataflow_gets_its_flags(home):
    """Midnight in Berlin is still the day before in UTC."""
    words = ("tasks", "render", "bert_embed_dataflow", "embed", f"{DAYS[1]}T23:00:00+00:00")
    env = {"BERT_EMBED_TIME_ZONE": "Europe/Berlin", "AIRFLOW_VAR_BERT_EMBED_SETTINGS": "/s.sh"}
    code, said = airflow(home, *words, **env)
    assert code == 0, said
    command = ast.literal_eval(next(line for line in said.splitlines() if line.startswith("[")))
    script = str(ROOT / "deploy" / "cron" / "embed_daily.sh")
    assert command[:5] == [script, "--stdout", "/s.sh", DAYS[2], "--"]
    options = parse_embed(["--input=gs://b/i", "--output=gs://b/o", *command[5:]])
    assert options.runner == "DataflowRunner"
    assert "--temp_location=gs://bucket/tmp" in options.beam_args
    assert "--job_name=bert-embed-{day}" in options.beam_args


def test_a_scheduler_catches_up_the_days_in_their_order(tmp_path, tiny_bundle):
    """Each day finds those before it finished: what they have is embedded in none after them."""
    home = tmp_path / "airflow"
    assert airflow(home, "db", "migrate")[0] == 0
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(days=back)) for back in (3, 2, 1)]
    for number, day in enumerate(days):
        write_day(tmp_path / "texts", day, {f"d{n}": "red" for n in range(number + 1)})
    url = f"http://127.0.0.1:{free_port()}"
    env = settings_of(home) | {
        "AIRFLOW_VAR_BERT_EMBED_SETTINGS": str(write_settings(tmp_path, tiny_bundle)),
        "BERT_EMBED_FIRST_DAY": days[0],
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    assert airflow(home, "dags", "reserialize", **env)[0] == 0
    assert airflow(home, "dags", "unpause", "--yes", "bert_embed_daily", **env)[0] == 0
    port = url.rpartition(":")[2]
    server = ["api-server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
    records = [tmp_path / "vectors" / day / "run.json" for day in days]
    with ExitStack() as programs:
        for words in (server, ["dag-processor"], ["scheduler"]):
            command = [str(BIN / "airflow"), *words]
            log = tmp_path / f"{words[0]}.log"
            programs.enter_context(running(command, log, lambda: True, **env))
            if words is server:
                wait_until(lambda: answers(f"{url}/api/v2/version"), log)
        wait_until(lambda: all(is_done(path) for path in records), tmp_path / "scheduler.log")
    assert [rows(tmp_path / "vectors" / day)["id"] for day in days] == [["d0"], ["d1"], ["d2"]]


def is_done(path: Path) -> bool:
    return path.exists() and json.loads(path.read_text("utf-8"))["status"] == "done"


def wait_until(ready: Callable[[], bool], log: Path) -> None:
    limit = time.monotonic() + 240
    while not ready():
        assert time.monotonic() < limit, log.read_text("utf-8", errors="replace")[-4000:]
        time.sleep(0.2)
