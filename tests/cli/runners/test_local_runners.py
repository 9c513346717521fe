"""The same corpus on each of Beam's local runners: the same files, the same counts."""

import gzip
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import (
    RUNNERS,
    Hold,
    embed,
    files,
    finish,
    flags_of,
    record,
    rejected,
    rows,
    runner_flags,
    start,
)

pytestmark = pytest.mark.slow

WORKER = "sdk_worker_main"
SMALL = {"block_bytes": 4000, "threads": 1}
LINES = 2200


def lines(count):
    words = ["red", "river", "bank", "of", "seven", "stars"]
    drawn = np.random.default_rng(7).choice(words, (count, 6))
    return [f"{n} " + " ".join(row) for n, row in enumerate(drawn)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, compressed text and JSON lines; small files that share blocks; records to reject."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = lines(1800)
    (folder / "a.txt").write_text("\n".join([*texts[:800], "", *texts[800:1000]]))
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("\n".join(texts[1000:1400]))
    rows = [json.dumps({"id": f"c{n}", "text": text}) for n, text in enumerate(texts[1400:])]
    (folder / "c.jsonl").write_text("\n".join([*rows[:200], "{broken", *rows[200:], '{"id": "x"}']))
    for number in range(20):
        (folder / f"d{number:02d}.txt").write_text(f"small file {number}\n")
    return folder


@pytest.fixture(scope="module")
def expected(corpus, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("expected") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert len(files(output)) > 10
    return output


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory):
    """Twenty blocks."""
    path = tmp_path_factory.mktemp("long") / "in.txt"
    path.write_text("\n".join(lines(LINES)))
    return path


@pytest.fixture(params=RUNNERS)
def runner(request):
    """Beam's flags for a runner."""
    return runner_flags(request.param)


def counted(output):
    """All of the record that must not depend on who ran it."""
    kept = record(output)
    kept["counts"].pop("parts_reused", None)
    names = ("counts", "rejected", "tokens", "padding_share", "lengths", "files", "vectors")
    return {name: kept[name] for name in names if name in kept}


def assert_same_output(output, expected):
    assert files(output) == files(expected)
    assert counted(output) == counted(expected)
    assert counted(output)["counts"]["embedded"] == len(rows(output)["id"]) == 1820
    assert len(rejected(output)) == 3


def test_the_output_is_that_of_the_default_runner(tmp_path, corpus, expected, tiny_bundle):
    """Of worker processes: below, where one of them was killed."""
    flags = flags_of(tmp_path / "out", tiny_bundle, corpus, **SMALL)
    errors = finish(start("embed", *flags, *runner_flags("prism")))
    assert "Traceback" not in errors
    assert_same_output(tmp_path / "out", expected)


def test_a_proxy_is_not_asked_for_this_machine(
    tmp_path, corpus, expected, tiny_bundle, monkeypatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "intranet")
    monkeypatch.setenv("no_grpc_proxy", "")  # which the run sets
    mode = {"direct_running_mode": "multi_threading", "direct_num_workers": 2}
    assert embed(tmp_path / "out", tiny_bundle, corpus, **SMALL, **mode) == 0
    assert dict(os.environ)["no_grpc_proxy"] == "localhost,intranet"
    assert_same_output(tmp_path / "out", expected)


def test_ctrl_c_ends_at_once(tmp_path, long_corpus, tiny_bundle, runner):
    """In the first half of a run whose blocks could then go on to its end."""
    output, hold = tmp_path / "out", Hold(tmp_path / "hold", 5)
    flags = [*flags_of(output, tiny_bundle, long_corpus, **SMALL), *runner]
    job = hold.start("embed", *flags, fresh=True)
    workers = [each for each in descendants(job.pid) if WORKER in command_line(each)]
    assert len(workers) == (2 if "multi_processing" in "".join(runner) else 0)
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "Traceback" not in errors
    assert not any(os.path.exists(f"/proc/{each}") for each in workers)
    blocks = long_corpus.stat().st_size / SMALL["block_bytes"]
    assert len(list(output.glob("_state/blocks/0*"))) < blocks / 2, "it went on to its end"
    last = errors.strip().splitlines()[-1]
    assert all(flag in last for flag in runner if flag != "--runner=FnApiRunner")  # the default


# Before which there is no connection, whose end a process would notice.
CONNECTS = {
    "PrismRunner": "apache_beam.runners.portability.portable_runner|JobServiceHandle|submit",
    "FnApiRunner": "apache_beam.runners.worker.sdk_worker|SdkHarness|run",
}


def test_processes_of_a_killed_run_end_with_it(tmp_path, long_corpus, tiny_bundle, runner):
    flags = [*flags_of(tmp_path / "out", tiny_bundle, long_corpus, **SMALL), *runner]
    hold = Hold(tmp_path / "hold", 0, CONNECTS[runner[0].partition("=")[2]])
    job = hold.start("embed", *flags, fresh=True)
    others = descendants(job.pid)
    assert others
    job.kill()
    job.wait()
    for _ in range(100):
        left = [each for each in others if command_line(each)]
        time.sleep(0.1 * bool(left))
    hold.go()
    assert left == []


def test_a_worker_process_that_is_killed_fails_the_job_and_the_same_command_continues(
    tmp_path, corpus, expected, tiny_bundle
):
    output = tmp_path / "out"
    flags = [*flags_of(output, tiny_bundle, corpus, **SMALL), *RUNNERS["processes"]]
    hold = Hold(tmp_path / "hold", 5)
    job = hold.start("embed", *flags, fresh=True)
    worker = next(each for each in descendants(job.pid) if WORKER in command_line(each))
    os.kill(worker, signal.SIGKILL)
    hold.go()
    _, errors = job.communicate(timeout=120)
    assert job.returncode == 1
    assert "a worker process died" in errors
    assert "Traceback" not in errors
    assert record(output)["status"] == "failed"
    done = len(list(output.glob("_state/blocks/0*")))
    errors = finish(start("embed", *flags))
    assert "Traceback" not in errors
    assert record(output)["counts"].get("parts_reused", 0) == done
    assert_same_output(output, expected)


def test_a_prism_that_is_killed_fails_the_job(tmp_path, long_corpus, tiny_bundle):
    output, hold = tmp_path / "out", Hold(tmp_path / "hold", 5)
    flags = [*flags_of(output, tiny_bundle, long_corpus, **SMALL), *runner_flags("prism")]
    job = hold.start("embed", *flags, fresh=True)
    prism = next(each for each in descendants(job.pid) if "--job_port" in command_line(each))
    os.kill(prism, signal.SIGKILL)
    hold.go()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "error: the job failed: Prism does not answer any more (UNAVAILABLE: " in errors
    assert "Traceback" not in errors
    assert record(output)["status"] == "failed"


@pytest.mark.parametrize("interrupted", [True, False], ids=["Ctrl-C", "killed worker"])
def test_workers_that_end_before_they_connect_end_the_run(
    tmp_path, long_corpus, tiny_bundle, interrupted
):
    """Beam waits for them for good."""
    output, hold = tmp_path / "out", Hold(tmp_path / "hold", 0, CONNECTS["FnApiRunner"])
    flags = [*flags_of(output, tiny_bundle, long_corpus, **SMALL), *RUNNERS["processes"]]
    job = hold.start("embed", *flags, fresh=True)
    worker = next(each for each in descendants(job.pid) if WORKER in command_line(each))
    os.kill(*((job.pid, signal.SIGINT) if interrupted else (worker, signal.SIGKILL)))
    try:
        _, errors = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == (130 if interrupted else 1)
    assert ("a worker process died" in errors) != interrupted
    assert "Traceback" not in errors
    assert record(output)["status"] == ("interrupted" if interrupted else "failed")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({"runner": "PrismRunner"}, "`make build/prism`"),
        ({"runner": "PrismRunner", "prism_location": "no/prism"}, "no/prism is not a program"),
        ({"runner": "PrismRunner", "prism_location": "http://x/y"}, "http://x/y is not a program"),
        ({"direct_num_workers": 2}, "multi_processing"),
        (
            {"direct_num_workers": -1, "direct_running_mode": "multi_processing"},
            "--direct_num_workers must be at least 0, all cores, got -1",
        ),
    ],
    ids=["no location", "no program", "no release", "one process", "fewer than none"],
)
def test_what_a_runner_lacks_is_said_before_work_starts(
    tmp_path, corpus, tiny_bundle, capsys, flags, wanted
):
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 2
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_direct_runner_is_taken_for_the_local_one(tmp_path, corpus, expected, tiny_bundle, caplog):
    """Beam's own would try to download another runner, and start it."""
    assert embed(tmp_path / "out", tiny_bundle, corpus, runner="DirectRunner", **SMALL) == 0
    assert "this run takes FnApiRunner" in caplog.text
    assert files(tmp_path / "out") == files(expected)


def descendants(process):
    """Ids of the processes that a process started, and of theirs."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text("ascii").split()):
            found += [child, *descendants(child)]
    return found


def command_line(process):
    """Empty of one that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_text("utf-8", errors="replace")
    return ""
