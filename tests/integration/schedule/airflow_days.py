"""The daily DAGs in a real Airflow 3 and 2: run by `make test-airflow`, which sets both up."""

import datetime
import json
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.command import record, rows
from tests.support.daily import BIN, DAYS, Airflow, write_day, write_settings
from tests.support.forks import write_python
from tests.support.servers.gcs import answers, free_port, running

_FILES = ("bert_embed_days.py", "embed_dag.py")  # what deploy/cron/README.md says to copy


@pytest.fixture(scope="module")
def airflow(new_airflow, tmp_path_factory):
    """An Airflow whose folder of DAGs holds the daily ones alone."""
    return new_airflow.copied(tmp_path_factory.mktemp("home") / "a", *_FILES)


def test_the_second_day_embeds_what_is_new(airflow, tmp_path, tiny_bundle):
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river", "b": "bank"})
    write_day(tmp_path / "texts", DAYS[1], {"a": "red river", "b": "seven", "c": "of"})
    settings = str(write_settings(tmp_path, tiny_bundle, PYTHON=write_python(tmp_path)))
    code, said = run_days(airflow, settings, *DAYS[:2])
    assert code == 0, said
    assert [rows(tmp_path / "vectors" / day)["id"] for day in DAYS[:2]] == [["a", "b"], ["b", "c"]]
    assert record(tmp_path / "vectors" / DAYS[1])["counts"]["skipped"] == 1


def test_what_only_a_person_can_mend_is_not_tried_again(airflow, tmp_path, tiny_bundle):
    """A try that is to be repeated would keep `dags test` waiting, far over this test's time."""
    with open(write_day(tmp_path / "texts", DAYS[0], {"a": "red"}), "a") as file:
        file.write("no JSON\n")
    changes = {"PYTHON": write_python(tmp_path)}
    settings = write_settings(tmp_path, tiny_bundle, "--max_rejected=0", **changes)
    code, said = run_days(airflow, str(settings), DAYS[0])
    assert code != 0
    assert "exit code 3: the day is refused: more records were rejected" in said
    assert "DagRun failed" in said
    assert record(tmp_path / "vectors" / DAYS[0])["status"] == "refused"


def run_days(airflow: Airflow, settings: str, *days: str) -> tuple[int, str]:
    commands = [("dags", "test", "bert_embed_daily", day) for day in days]
    return airflow.run(*commands, AIRFLOW_VAR_BERT_EMBED_SETTINGS=settings)


def test_a_scheduler_catches_up_the_days_in_their_order(new_airflow, tmp_path, tiny_bundle):
    """Each day finds those before it finished: what they have is embedded in none after them."""
    airflow = new_airflow.copied(tmp_path / "airflow", *_FILES)
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(days=back)) for back in (3, 2, 1)]
    for number, day in enumerate(days):
        write_day(tmp_path / "texts", day, {f"d{n}": "red" for n in range(number + 1)})
    url = f"http://127.0.0.1:{free_port()}"
    settings = write_settings(tmp_path, tiny_bundle, PYTHON=write_python(tmp_path))
    env = {
        "AIRFLOW_VAR_BERT_EMBED_SETTINGS": str(settings),
        "BERT_EMBED_FIRST_DAY": days[0],
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    unpause = ("dags", "unpause", "--yes", "bert_embed_daily")
    code, said = airflow.run(("dags", "reserialize"), unpause, **env)
    assert code == 0, said
    port = url.rpartition(":")[2]
    server = ["api-server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
    records = [tmp_path / "vectors" / day / "run.json" for day in days]
    with ExitStack() as programs:
        for words in (server, ["dag-processor"], ["scheduler"]):
            command = [str(BIN / "airflow"), *words]
            log = tmp_path / f"{words[0]}.log"
            started = running(command, log, lambda: True, **airflow.environment() | env)
            programs.enter_context(started)
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
