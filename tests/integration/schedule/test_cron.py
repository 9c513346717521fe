"""The daily script: one at a time, logged, true exit codes, stopped and continued."""

import ast
import datetime
import gzip
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from bert_embed.pipeline.errors import ExitCode
from tests.support.command import ROOT, Hold, embed, files, record, rows, stray
from tests.support.daily import (
    DAYS,
    SCRIPT,
    daily,
    log,
    some_texts,
    start_daily,
    state_of,
    write_day,
    write_settings,
)
from tests.support.forks import write_python

pytestmark = pytest.mark.slow

TEXTS = some_texts(1000)


@pytest.fixture(scope="module")
def forks(tmp_path_factory):
    """Days start with Beam imported already, unless their processes are what a test is about."""
    return {"PYTHON": write_python(tmp_path_factory.mktemp("forks"))}


def test_days_in_their_order_and_again(tmp_path, tiny_bundle, forks):
    """A day with too many rejected and a day without input are reported, and stop nothing."""
    with open(write_day(tmp_path / "texts", DAYS[0], {"a": "red river", "b": "bank"}), "a") as file:
        file.write("no JSON\n")
    write_day(tmp_path / "texts", DAYS[2], {"a": "red river", "b": "seven", "c": "of"})
    settings = write_settings(tmp_path, tiny_bundle, "--max_rejected=0", **forks)
    code, said = daily(settings, DAYS[0], DAYS[2])
    assert code == 3
    named = f"{DAYS[0]} to {DAYS[2]} ({DAYS[0]}: 3, {DAYS[1]}: 66)"
    assert f"exit code 3 for {named}, see {tmp_path}/state/logs/" in said
    for day, ended in zip(DAYS, (3, 66, 0), strict=True):
        assert f"{day} ended with exit code {ended}" in log(tmp_path)
    assert rows(tmp_path / "vectors" / DAYS[2])["id"] == ["b", "c"]
    before = state_of(tmp_path / "vectors")
    assert daily(settings, DAYS[2]) == (0, "")
    assert state_of(tmp_path / "vectors") == before
    assert "nothing to do" in log(tmp_path)
    assert daily(settings, DAYS[1])[0] == 66


def test_of_missing_days_only_the_last_starts_python(tmp_path, tiny_bundle):
    """Each start takes seconds; one tells of wrong settings."""
    starts, python = tmp_path / "starts", tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho >> {starts}\nexit 66\n")
    python.chmod(0o755)
    for day in DAYS[1:]:
        write_day(tmp_path / "texts", day, {"a": "red river"})
    (tmp_path / "texts" / DAYS[1] / ".ready").touch()
    ready = f"{tmp_path}/texts/{{day}}/.ready"
    settings = write_settings(tmp_path, tiny_bundle, PYTHON=str(python), READY=ready)
    missing, *_, last = before = [f"2023-12-{day}" for day in range(28, 32)]
    assert daily(settings, missing, last)[0] == 66
    assert log(tmp_path).count("exit code 66") == len(before)
    assert f"{missing} has no {tmp_path}/texts/{missing}/.ready; a day without" in log(tmp_path)
    assert len(starts.read_text()) == 1
    assert daily(settings, last, DAYS[2])[0] == 66
    assert len(starts.read_text()) == 3, "a day that is ready, and the last one"


def test_without_a_date_the_days_up_to_yesterday_are_caught_up(tmp_path, tiny_bundle, forks):
    zone = datetime.timezone(datetime.timedelta(hours=14))  # where it is tomorrow already
    first = datetime.datetime.now(zone).date() - datetime.timedelta(days=3)
    days = [str(first + datetime.timedelta(days=number)) for number in range(4)]
    for day in days:
        write_day(tmp_path / "texts", day, {day: "money"})
    changes = {"TIME_ZONE": "Etc/GMT-14"} | forks
    settings = write_settings(tmp_path, tiny_bundle, **changes)
    code, said = daily(settings, "--stdout")
    assert code == 0
    done = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert done in (days[:3], days), "a day may have begun meanwhile"
    assert f"{done[1]} ended with exit code 0" in said
    assert log(tmp_path) == ""


def test_a_failing_day_ends_the_days_and_tells_its_exit_code(tmp_path, tiny_bundle, forks):
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river"})
    damaged = tmp_path / "texts" / DAYS[1] / "part.txt.gz"
    damaged.parent.mkdir()
    random = np.random.default_rng(3)
    long_lines = "\n".join(random.bytes(30_000).hex() for _ in range(60))
    whole = gzip.compress(long_lines.encode())
    damaged.write_bytes(whole[: len(whole) * 2 // 3])
    write_day(tmp_path / "texts", DAYS[2], {"a": "red river", "b": "bank"})
    settings = write_settings(tmp_path, tiny_bundle, KEEP_LOGS_DAYS="5", **forks)
    old, young = (tmp_path / "state" / "logs" / f"2024-01-0{n}.log" for n in (1, 2))
    old.parent.mkdir(parents=True)
    for path, age in ((old, 7), (young, 3)):
        path.touch()
        os.utime(path, (time.time() - age * 86_400,) * 2)
    code, said = daily(settings, DAYS[0], DAYS[2])
    assert code == 1, log(tmp_path)
    assert "exit code 1" in said
    assert [old.exists(), young.exists()] == [False, True]
    assert f"{damaged} is damaged gzip data" in log(tmp_path)
    assert not (tmp_path / "vectors" / DAYS[2]).exists()
    assert daily(settings, DAYS[2])[0] == 69

    damaged.write_bytes(gzip.compress(b"mended\n"))
    assert daily(settings, DAYS[1])[0] == 2, "a mended input is another run"
    assert daily(settings, DAYS[1], DAYS[2], "--", "--overwrite") == (0, "")
    assert rows(tmp_path / "vectors" / DAYS[2])["id"] == ["b"]


def test_a_day_waits_for_one_that_ended_before_its_run_began(tmp_path, tiny_bundle, forks):
    """Nothing is in its folder yet, but it was to be embedded first."""
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river"})
    write_day(tmp_path / "texts", DAYS[1], {"a": "red river", "b": "bank"})
    assert daily(write_settings(tmp_path, str(tmp_path / "absent"), **forks), DAYS[0])[0] == 2
    settings = write_settings(tmp_path, tiny_bundle, **forks)
    assert daily(settings, DAYS[1], "--", "--dry_run")[0] == daily(settings, DAYS[1])[0] == 69
    mark = tmp_path / "state" / "begun" / DAYS[0]
    assert f"{DAYS[0]} comes before {DAYS[1]} and is not finished" in log(tmp_path)
    assert f"{mark} says that it was begun" in log(tmp_path)
    assert daily(settings, DAYS[0]) == daily(settings, DAYS[1]) == (0, "")
    assert rows(tmp_path / "vectors" / DAYS[1])["id"] == ["b"]
    assert list(mark.parent.iterdir()) == []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("whole")
    source = write_day(folder / "texts", DAYS[0], TEXTS)
    assert embed(folder / "out", tiny_bundle, source, block_bytes=1000) == 0
    return files(folder / "out")


def test_one_at_a_time_and_stopped_and_continued(tmp_path, tiny_bundle, uninterrupted, forks):
    write_day(tmp_path / "texts", DAYS[0], TEXTS)
    settings = write_settings(tmp_path, tiny_bundle, "--block_bytes=1000", **forks)
    output = tmp_path / "vectors" / DAYS[0]
    hold = Hold(tmp_path / "hold", 10)
    process = start_daily(settings, DAYS[0], **hold.environment)
    hold.wait(process)
    code, said = daily(settings, DAYS[0])
    assert code == 75
    assert f"busy: another start holds {tmp_path}/state/lock" in said
    assert "busy" in log(tmp_path)

    process.send_signal(signal.SIGTERM)
    hold.go()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert record(output)["status"] == "interrupted"
    assert daily(settings, DAYS[0]) == (0, "")
    assert files(output) == uninterrupted
    assert record(output)["counts"]["parts_reused"] >= 10
    assert stray(output) == []


def test_a_run_whose_script_was_killed_keeps_the_lock(tmp_path, tiny_bundle, uninterrupted):
    write_day(tmp_path / "texts", DAYS[0], TEXTS)
    settings = write_settings(tmp_path, tiny_bundle, "--block_bytes=1000")
    output = tmp_path / "vectors" / DAYS[0]
    hold = Hold(tmp_path / "hold", 1)
    process = start_daily(settings, DAYS[0], **hold.environment)
    hold.wait(process)
    process.kill()
    process.communicate()
    assert daily(settings, DAYS[0])[0] == 75
    hold.go()
    while record(output)["status"] == "running":
        time.sleep(0.05)
    assert files(output) == uninterrupted


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ([], {"INPUT": "texts/{day}"}, 'must set INPUT to an absolute path, it is "texts/{day}"'),
        ([], {"CATCH_UP_DAYS": "week"}, "must set CATCH_UP_DAYS to a number from 1 on"),
        ([], {"TIME_ZONE": "Europe/Berlinn"}, "a zone that this machine knows, it is"),
        ([], {"PYTHON": "/none/python"}, "there is no Python at /none/python"),
        (["2024-02-30"], {}, "a day is given as 2026-01-02, not 2024-02-30"),
        ([DAYS[1], DAYS[0]], {}, "2024-02-29 comes after 2024-02-28"),
        (["2999-01-01"], {}, "2999-01-01 is not over yet in UTC"),
        (["--dim=3"], {}, "--dim=3 is no flag of embed_daily.sh; those of embed stand behind --"),
        ([*DAYS], {}, "usage: embed_daily.sh"),
    ],
)
def test_what_is_wrong_is_told_before_any_work(tmp_path, words, changes, message):
    code, said = daily(write_settings(tmp_path, "minilm", **changes), *words)
    assert code == 2
    assert message in said
    assert [path.name for path in tmp_path.iterdir()] == ["settings.sh"]


def test_lines_of_windows_and_closed_streams_are_no_reason_to_leave_a_day_out(
    tmp_path, tiny_bundle, forks
):
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river"})
    settings = write_settings(tmp_path, tiny_bundle, TIME_ZONE="CET-1CEST", **forks)
    settings.write_bytes(settings.read_bytes().replace(b"\n", b"\r\n"))
    words = ["bash", "-c", '"$@" <&- >&- 2>&-', "bash", SCRIPT, settings, DAYS[0]]
    assert subprocess.run(words, check=False).returncode == 0
    assert f"{DAYS[0]} ended with exit code 0" in log(tmp_path)
    assert rows(tmp_path / "vectors" / DAYS[0])["id"] == ["a"]


def test_help_and_a_settings_file_that_is_not_there(tmp_path):
    assert f"there is no file of settings {tmp_path}/none.sh" in daily(tmp_path / "none.sh")[1]
    for word, wanted in (("-h", 0), ("--help", 0), (tmp_path / "none.sh", 2)):
        code, said = daily(word)
        assert (code, said.startswith("usage: embed_daily.sh")) == (wanted, not wanted)


DEPLOY = ROOT / "deploy"


def test_the_script_has_the_codes_of_the_command_line():
    script = (DEPLOY / "cron" / "embed_daily.sh").read_text("utf-8")
    named = re.search(r"^readonly ((?:[A-Z_]+=\d+ ?)+)$", script, re.MULTILINE)[1]
    codes = dict(word.split("=") for word in named.split())
    assert len(codes) == 5
    assert codes == {name: str(ExitCode[name].value) for name in codes}


def test_airflow_explains_every_code():
    """Airflow runs in an environment of its own, so its file is read, not imported."""
    program = ast.parse((DEPLOY / "airflow" / "embed_dag.py").read_text("utf-8"))
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and node.targets[0].id in ("MEANINGS", "FINAL")
    }
    assert set(values["MEANINGS"]) == set(ExitCode) - {ExitCode.DONE}
    assert values["FINAL"] == (ExitCode.USAGE, ExitCode.TOO_MANY_REJECTED)
