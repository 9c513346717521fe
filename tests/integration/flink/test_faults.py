"""Workers, nodes and the client die under a job on the cluster; nothing is lost, nothing twice."""

import os
import shutil
import signal
import time
from dataclasses import replace

import pytest

from tests.integration.flink.conftest import BLOCK_BYTES
from tests.support.command import finish, flags_of, record
from tests.support.flink.cluster import (
    begun,
    computing,
    events,
    reports,
    same_output,
    same_rows,
    wait_until,
)
from tests.support.flink.handlers import Faults

SOME = 4  # parts that are finished when something dies


@pytest.fixture
def slow(tmp_path):
    """Workers that take their time, and tell what they do."""
    (tmp_path / "trace").mkdir()
    return Faults(trace=str(tmp_path / "trace"), pace=0.5)


def flags(output, model, corpus):
    return flags_of(output, model, corpus, block_bytes=BLOCK_BYTES)


def wait_for_a_block_under_way(tmp_path, process):
    """Waits until some parts are finished; returns a worker in the middle of another."""
    output, trace = tmp_path / "out", tmp_path / "trace"
    wait_until(lambda: len(reports(output)) >= SOME, f"{SOME} parts", process)
    wait_until(lambda: next(computing(trace), None) is not None, "a block under way", process)
    return next(computing(trace))


def task_managers_at_work(cluster, trace):
    """The TaskManagers whose workers computed blocks."""
    return {pid for row in events(trace) for pid in row["ancestors"]} & set(cluster.task_managers)


# First: other tests leave a cluster that restarts no job, and a change takes a new JobManager.
def test_without_restarts_the_same_command_goes_on(
    tmp_path, cluster, corpus, tiny_bundle, whole, slow
):
    """The model is gone at first, then a worker is killed, then nothing stands in the way."""
    cluster.restart_jobs(False)
    bundle, output = tmp_path / "bundle", tmp_path / "out"
    shutil.copytree(tiny_bundle, bundle)
    command = flags(output, str(bundle), corpus)

    with cluster.start(*command) as process:
        wait_until((output / "run.json").exists, "the start", process)
        bundle.rename(tmp_path / "elsewhere")
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert f"error: the job failed: {bundle}: the model is not on this machine" in errors
    assert record(output)["status"] == "failed"
    (tmp_path / "elsewhere").rename(bundle)

    with cluster.start(*command, faults=slow) as process:
        worker = wait_for_a_block_under_way(tmp_path, process)
        done = reports(output)
        os.kill(worker["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "error: the job failed: a worker process died (CANCELLED" in errors
    assert "the same command continues" in errors
    assert record(output)["status"] == "failed"

    done = reports(output)
    third = cluster.embed(*command)
    assert third.returncode == 0, third.stderr
    assert same_output(output, whole)
    assert done.items() <= reports(output).items()
    # The other worker may have ended its block after the job had failed.
    assert record(output)["counts"]["parts_reused"] >= len(done) >= SOME


def test_a_killed_worker_costs_its_block_only(tmp_path, cluster, corpus, tiny_bundle, whole, slow):
    cluster.restart_jobs(True)
    cluster.have_task_managers(2)
    output, trace = tmp_path / "out", tmp_path / "trace"
    with cluster.start(*flags(output, tiny_bundle, corpus), faults=slow) as process:
        worker = wait_for_a_block_under_way(tmp_path, process)
        done, killed = reports(output), time.time()
        os.kill(worker["pid"], signal.SIGKILL)
        finish(process)
    assert same_output(output, whole)
    assert done.items() <= reports(output).items()
    assert begun(trace, set(done), killed) == set()
    assert SOME <= len(done) <= record(output)["counts"]["parts_reused"]
    assert task_managers_at_work(cluster, trace) == set(cluster.task_managers)


def test_a_killed_task_manager_is_replaced(tmp_path, cluster, corpus, tiny_bundle, whole, slow):
    cluster.restart_jobs(True)
    cluster.have_task_managers(3)
    output, trace = tmp_path / "out", tmp_path / "trace"
    with cluster.start(*flags(output, tiny_bundle, corpus), faults=slow) as process:
        worker = wait_for_a_block_under_way(tmp_path, process)
        done, killed = reports(output), time.time()
        (victim,) = set(worker["ancestors"]) & set(cluster.task_managers)
        cluster.kill_task_manager(victim)
        finish(process)
    assert same_output(output, whole)
    assert done.items() <= reports(output).items()
    assert begun(trace, set(done), killed) == set()
    assert task_managers_at_work(cluster, trace) == set(cluster.task_managers)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_job_goes_on_without_its_client(
    tmp_path, cluster, corpus, tiny_bundle, whole, slow, sent
):
    cluster.restart_jobs(True)
    cluster.have_task_managers(2)
    output = tmp_path / "out"
    command = flags(output, tiny_bundle, corpus)
    with cluster.start(*command, faults=slow) as process:
        wait_for_a_block_under_way(tmp_path, process)
        process.send_signal(sent)
        out, _ = process.communicate(timeout=60)
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert f"the job {record(output)['job']['id']} continues" in out
    assert record(output)["status"] == "running"
    wait_until(lambda: record(output)["status"] != "running", "the end of the job")
    assert same_output(output, whole)
    again = cluster.embed(*command)
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stdout


def test_a_job_outlives_its_job_server(tmp_path, cluster, corpus, tiny_bundle, whole, slow):
    cluster.restart_jobs(True)
    cluster.have_task_managers(2)
    output = tmp_path / "out"
    command = flags(output, tiny_bundle, corpus)
    slower = replace(slow, pace=4.0)  # the job must not end before its loss is noticed
    with cluster.start(*command, faults=slower) as process:
        wait_for_a_block_under_way(tmp_path, process)
        again = cluster.embed(*command)
        os.kill(cluster.job_server, signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    cluster.start_job_server()
    job = record(output)["job"]
    assert again.returncode == 1
    assert f"the job {job['id']} of an earlier command writes to this --output and is RUNN" in (
        again.stderr
    )
    assert process.returncode == 1
    assert "error: the job server does not answer any more (UNAVAILABLE: " in errors
    assert f"list it as {job['name']}" in errors
    assert "Traceback" not in errors
    jobs = cluster.rest("jobs/overview")["jobs"]
    assert [each["name"] for each in jobs].count(job["name"]) == 1
    wait_until(lambda: record(output)["status"] == "done", "the end of the job")
    assert same_rows(output, whole)
    last = cluster.embed(*command)
    assert last.returncode == 0, last.stderr
    assert "nothing to do" in last.stdout


def test_a_killed_job_manager_costs_what_was_under_way(
    tmp_path, cluster, corpus, tiny_bundle, whole, slow
):
    cluster.restart_jobs(True)
    cluster.have_task_managers(2)
    output = tmp_path / "out"
    command = flags(output, tiny_bundle, corpus)
    slower = replace(slow, pace=4.0)  # the job must not end before its loss is noticed
    with cluster.start(*command, faults=slower) as process:
        wait_for_a_block_under_way(tmp_path, process)
        done = reports(output)
        os.kill(cluster.job_manager, signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "error: the JobManager does not answer any more (" in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 20
    cluster.start_job_manager(restarts=True)
    cluster.have_task_managers(2)
    again = cluster.embed(*command)
    assert again.returncode == 0, again.stderr
    assert "note: an earlier command submitted the job" in again.stderr
    assert done.items() <= reports(output).items()
    assert same_rows(output, whole)
