"""`watch` shows what the files of an output say: of runs that work, ended, died. About 15 s."""

import json
import os
import shutil
import signal
import socket
import time
from collections import Counter

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.watch import WatchedRun
from bert_embed.storage.local import pid_namespace
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import Hold, block_records, embed, flags_of, record, start
from tests.support.servers.gcs import behind

AGO = 100  # seconds since the last part of a run that is made to look unfinished
LINES = 400


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("watched")
    lines = [f"the river bank {n}" if n % 50 else "" for n in range(LINES)]
    (folder / "in.txt").write_text("\n".join(lines) + "\n")
    assert embed(folder / "out", tiny_bundle, folder / "in.txt", block_bytes=500) == 0
    return folder / "out"


@pytest.fixture
def unfinished(finished, tmp_path):
    """The same run when half of its reports were there; it holds no lock."""
    output = tmp_path / "out"
    shutil.copytree(finished, output)
    keep = ("format", "run", "started", "model", "engine", "vectors", "input", "files", "plan")
    keep += ("query_rows", "table", "options", "versions")
    change(output, {name: record(finished)[name] for name in keep} | {"status": "running"})
    found = block_records(output)
    for path in found[len(found) // 2 :]:
        path.unlink()
    began = record(finished)["started"]
    change(output, record(output) | {"started": began.replace("20", "19", 1)})
    for path in block_records(output):
        os.utime(path, (time.time() - AGO, time.time() - AGO))
    return output


def change(output, content):
    (output / "run.json").write_text(json.dumps(content))


def mark(output, block, seconds, **changed):
    """Writes a crash marker that is so old."""
    content = {"format": 1, "run": record(output)["run"], "block": block, "place": "in.txt"}
    content |= {"host": "worker-7", "process": 1, "namespace": ""} | changed
    path = output / "_state" / "working" / f"{block:07d}-00000-{block:012x}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def snapshot(output, capsys, code):
    capsys.readouterr()
    assert main(["watch", str(output), "--once", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def sums(output):
    found = Counter()
    for path in block_records(output):
        row = json.loads(path.read_text())
        found.update({name: row[name] for name in ("records", "embedded", "tokens", "last")})
        found["rejected"] += sum(row["rejected"].values())
        found["covered"] += sum(row["covered"].values())
    return found


def test_a_finished_run_prints_its_summary(finished, capsys):
    assert main(["watch", str(finished)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{finished}: done")
    assert "100% · 392 of about 392 documents" in printed
    assert f"{LINES} records: 392 embedded, 8 rejected (8 empty text)" in printed
    assert "left" not in printed


def test_a_running_run_shows_the_sum_of_its_reports(unfinished, capsys):
    mark(unfinished, 90, 3)
    mark(unfinished, 91, 4, host="worker-8")
    with OutputFolder(str(unfinished)).held():
        seen = snapshot(unfinished, capsys, 0)
        assert main(["watch", str(unfinished), "--once"]) == 0
    printed = capsys.readouterr().out
    expected = sums(unfinished)
    assert seen["state"] == "running"
    assert seen["documents"] == expected["embedded"]
    assert seen["tokens"] == expected["tokens"]
    assert seen["rejected"] == {"empty text": expected["rejected"]}
    size = record(unfinished)["input"]["bytes"]
    assert seen["share"] == pytest.approx(expected["covered"] / size)
    assert (seen["blocks_done"], seen["blocks_in_work"], seen["hosts"]) == (expected["last"], 2, 2)
    assert seen["blocks"] == record(unfinished)["plan"]["blocks"]
    assert seen["documents_estimated"] == pytest.approx(392, rel=0.1)
    assert seen["tokens_per_second"] > 0
    assert seen["seconds_left"] > 0
    assert seen["stragglers"] == []
    assert "2 in work on 2 hosts · tokens/s of the last attempt: " in printed
    assert f"rejected: {expected['rejected']} empty text" in printed
    assert " left\n" in printed


def test_slow_blocks_and_died_processes_are_named(unfinished, capsys):
    mark(unfinished, 90, 600)
    mark(unfinished, 91, 3)
    here = {"host": socket.gethostname(), "namespace": pid_namespace()}
    mark(unfinished, 92, 60, **here, process=2**22 + 1)
    mark(unfinished, 93, 9999, run="another")
    with OutputFolder(str(unfinished)).held():
        slow, died = snapshot(unfinished, capsys, 0)["stragglers"]
        assert main(["watch", str(unfinished), "--once"]) == 0
    assert (slow["block"], slow["host"], slow["crashed"]) == (90, "worker-7", False)
    assert slow["seconds"] == pytest.approx(600, abs=30)
    assert (died["block"], died["crashed"]) == (92, True)
    printed = capsys.readouterr().out
    assert "block 90: slow, nothing finished for 10:0" in printed
    assert "block 92: its process died" in printed


def test_a_run_whose_command_was_killed_is_dead(unfinished, capsys):
    assert snapshot(unfinished, capsys, 1)["state"] == "dead"
    assert main(["watch", str(unfinished)]) == 1
    printed = capsys.readouterr().out
    assert "the same command continues it" in printed
    assert "left" not in printed


def test_a_job_on_a_cluster_needs_no_command(unfinished, capsys):
    job = dict.fromkeys(("name", "endpoint", "flink_master", "id", "submitted"), "")
    change(unfinished, record(unfinished) | {"job": job | {"runner": "FlinkRunner"}})
    assert snapshot(unfinished, capsys, 0)["state"] == "running"
    for path in block_records(unfinished):
        os.utime(path, (time.time() - 5000, time.time() - 5000))
    assert snapshot(unfinished, capsys, 0)["state"] == "stalled"


def test_where_another_machine_works_no_run_is_called_dead(unfinished, capsys):
    mark(unfinished, 90, 30)
    assert snapshot(unfinished, capsys, 0)["state"] == "running"


@pytest.mark.parametrize(
    ("ended", "error"),
    [({"status": "interrupted"}, None), ({"status": "failed", "error": "disk full"}, "disk full")],
)
def test_runs_that_ended_otherwise_say_how(unfinished, capsys, ended, error):
    change(unfinished, record(unfinished) | ended)
    seen = snapshot(unfinished, capsys, 1)
    assert (seen["state"], seen["error"]) == (ended["status"], error)


def test_before_the_first_block_the_phase_is_named(unfinished, capsys):
    for path in block_records(unfinished):
        path.unlink()
    with OutputFolder(str(unfinished)).held():
        assert snapshot(unfinished, capsys, 0)["phase"] == "planning and loading the model"
        mark(unfinished, 0, 1)
        assert snapshot(unfinished, capsys, 0)["phase"] == "computing the first parts"


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not the output of a run: it holds no run.json" in capsys.readouterr().err
    (tmp_path / "run.json").write_text('{"format": 2, "run": "r", "status": "done"}')
    assert main(["watch", str(tmp_path)]) == 2
    assert f"error: {tmp_path}/run.json is damaged: it has no started\n" == capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--interval=0"]) == 2
    assert "--interval must be more than 0 seconds, got 0" in capsys.readouterr().err


def test_a_store_is_asked_for_each_report_once(unfinished, gcs, monkeypatch):
    url = gcs.put_folder(unfinished, "watched", "out")
    with behind(gcs, monkeypatch) as proxy:
        run = WatchedRun(url)
        run.look()
        first = run.snapshot()
        proxy.forget()
        run.look()
        assert run.snapshot().numbers["documents"] == first.numbers["documents"]
        counts = proxy.counts()
    assert first.numbers["documents"] == sums(unfinished)["embedded"]
    assert first.state == "running"
    assert counts["read"] == 1  # run.json
    assert counts["list"] <= 2


@pytest.mark.slow
def test_a_run_is_followed_to_its_end(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("\n".join(f"line {n} of this text" for n in range(LINES)))
    flags = flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", block_bytes=500)
    hold = Hold(tmp_path / "hold", 3)
    run = hold.start("embed", *flags)
    watch = start("watch", str(tmp_path / "out"), "--json", "--interval=0.2")
    assert watch.stdout is not None
    first = watch.stdout.readline()
    hold.go()
    printed, errors = watch.communicate(timeout=300)
    assert run.wait(timeout=60) == 0
    run.communicate()
    seen = [json.loads(line) for line in [first, *printed.splitlines()]]
    assert (watch.returncode, errors) == (0, "")
    assert [each["state"] for each in seen[:-1]] == ["running"] * (len(seen) - 1)
    assert seen[-1]["state"] == "done"
    assert seen[-1]["documents"] == LINES > seen[0]["documents"] > 0
    shares = [each["share"] for each in seen]
    assert shares == sorted(shares)


@pytest.mark.slow
def test_control_c_ends_it(unfinished):
    with OutputFolder(str(unfinished)).held():
        watch = start("watch", str(unfinished), "--interval=0.1")
        assert watch.stdout is not None
        watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=60)
    assert (watch.returncode, errors) == (130, "\ninterrupted\n")
