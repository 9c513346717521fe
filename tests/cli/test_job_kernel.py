"""All jobs begin and end the same way, whatever they compute: done, lost, failed, interrupted."""

import pickle
import subprocess
import sys
import threading

import apache_beam as beam
import pytest
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2

from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.results.run_record import RunRecord, read_record
from bert_embed.transforms import reconcile
from tests.support.command import ROOT, flags_of, record

RUN_ON_RUNNER = job.run_on_runner
WAIT = 60  # seconds
JOB = dict.fromkeys(("runner", "name", "endpoint", "flink_master", "id"), "of the server")


@pytest.fixture(params=["embed", "tokenize"])
def words(request, tmp_path, tiny_bundle):
    """A command that writes to the folder `out`."""
    (tmp_path / "in.txt").write_text("the river\nthe bank\n")
    return [request.param, *flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt")]


@pytest.fixture
def ends_with(monkeypatch):
    """Has the runner raise an error after, or before, it ran the job."""

    def runs(error, after=True):
        def run(*arguments):
            if after:
                RUN_ON_RUNNER(*arguments)
            raise error

        monkeypatch.setattr(job, "run_on_runner", run)

    return runs


def test_a_lost_connection_to_a_job_that_is_done_is_a_note(words, tmp_path, ends_with, command):
    ends_with(OSError("the server is gone"))
    assert "note: the server is gone; the job is complete" in command(*words).err
    assert record(tmp_path / "out")["status"] == "done"


def test_a_failure_is_noted_and_told_with_a_cure(words, tmp_path, ends_with, command, monkeypatch):
    ends_with(OSError("no space left"), after=False)
    said = command(*words, code=1).err
    assert "error: the job failed: no space left\n" in said
    assert "kept; once this is fixed, the same command continues\n" in said
    assert record(tmp_path / "out")["status"] == "failed"
    ends_with(KeyboardInterrupt(), after=False)
    said = command(*words, code=130).err
    assert "\ninterrupted; " in said
    assert "the same command computes the rest" in said
    assert "error" not in said
    assert record(tmp_path / "out")["status"] == "interrupted"
    monkeypatch.undo()
    command(*words)
    assert record(tmp_path / "out")["status"] == "done"


def test_a_record_that_vanished_fails_the_job(words, tmp_path, monkeypatch, command):
    def run(*arguments):
        waits = RUN_ON_RUNNER(*arguments)
        (tmp_path / "out" / "run.json").unlink()
        return waits

    monkeypatch.setattr(job, "run_on_runner", run)
    said = "run.json does not say that the job is complete: it was changed or removed meanwhile"
    assert said in command(*words, code=1).err


@pytest.fixture(params=["here", pytest.param("gs", marks=pytest.mark.slow)])
def output(request, tmp_path):
    if request.param == "here":
        return str(tmp_path / "out")
    name = f"kernel-{abs(hash(request.node.name))}"
    request.getfixturevalue("gcs").client.create_bucket(name)
    return f"gs://{name}/out"


@pytest.mark.parametrize("changed", ["stopped", "submitted", "finished"])
def test_a_job_that_ends_meanwhile_stays_done(output, changed, tiny_bundle, tmp_path, monkeypatch):
    """The command's change of run.json and the worker's, each between read and write of the other:
    the second one waits on disks, and is read again in stores.
    """
    (tmp_path / "in.txt").write_text("the river\nthe bank\n")
    at_the_end, go, others = threading.Event(), threading.Event(), []
    finish, change = reconcile.finish, getattr(RunRecord, changed)

    def finish_late(*arguments):
        at_the_end.set()
        assert changed == "finished" or go.wait(WAIT)
        return finish(*arguments)

    def between(*arguments):
        monkeypatch.setattr(RunRecord, changed, change)
        go.set()
        others[0].join(1)
        return change(*arguments)

    def run(runner, words, build, submitted):
        def work():
            RUN_ON_RUNNER(runner, words, build, lambda server_job: None)

        def submit():
            assert at_the_end.wait(WAIT)
            submitted(JOB)

        others.append(threading.Thread(target=submit if changed == "finished" else work))
        others[0].start()
        if changed == "finished":
            work()
            return True
        assert at_the_end.wait(WAIT)
        if changed == "stopped":
            raise OSError("the server is gone")
        submitted(JOB)
        others[0].join(WAIT)
        return True

    monkeypatch.setattr(reconcile, "finish", finish_late)
    monkeypatch.setattr(RunRecord, changed, between)
    monkeypatch.setattr(job, "run_on_runner", run)
    words = ["embed", *flags_of(output, tiny_bundle, tmp_path / "in.txt")]
    assert main(words) == (1 if changed == "stopped" else 0)
    others[0].join(WAIT)
    assert read_record(output).status == "done"
    assert not list(tmp_path.rglob(".tmp-*"))


# Unpickles what workers get, as they do; says which modules of the pipeline that imports.
UNPICKLED = """
import pickle, sys
from apache_beam.internal import pickler

for payload in pickle.load(sys.stdin.buffer):
    pickler.loads(payload)
print(*(name for name in sys.modules if name.startswith("bert_embed.pipeline")))
"""


@pytest.mark.slow
def test_workers_need_nothing_of_the_command_line(tiny_bundle, tmp_path, monkeypatch):
    """What reads, computes, judges and records a run lies below the pipeline."""
    (tmp_path / "in.txt").write_text("the river\nthe bank\n")
    sent = []

    def build(runner, words, work, submitted):
        pipeline = beam.Pipeline(runner="FnApiRunner")
        work(pipeline)
        for transform in pipeline.to_runner_api().components.transforms.values():
            if transform.spec.urn == "beam:transform:pardo:v1":
                made = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
                sent.append(made.do_fn)
        raise RuntimeError("only built")

    monkeypatch.setattr(job, "run_on_runner", build)
    assert main(["embed", *flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt")]) == 1
    sent = [do_fn.payload for do_fn in sent if do_fn.urn == python_urns.PICKLED_DOFN_INFO]
    assert len(sent) > 5
    command = [sys.executable, "-c", UNPICKLED]
    done = subprocess.run(command, cwd=ROOT, input=pickle.dumps(sent), capture_output=True)
    assert (done.stdout.decode().split(), done.returncode) == ([], 0), done.stderr
