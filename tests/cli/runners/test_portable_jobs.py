"""A job server that dies, or has a job already: what is said, and that no job is doubled unsaid."""

import json
import socket
import subprocess
import sys
import time

import pytest
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from bert_embed.pipeline.runners.errors import explains_itself, lost_connection, root_message
from tests.support.command import ROOT, flags_of, record, rows, start
from tests.support.servers.gcs import free_port

LINES = 60
TEXT = {"in.txt": "".join(f"{n} the river bank\n" for n in range(LINES))}
NOTE = "note: an earlier command submitted the job"


@pytest.fixture
def server():
    """Beam's own job server, which runs jobs in this process."""
    made = LocalJobServicer()
    made.port = made.start_grpc_server()
    yield made
    made.stop(0)


def portable(server):
    return {
        "runner": "PortableRunner",
        "job_endpoint": f"localhost:{server.port}",
        "environment_type": "LOOPBACK",
    }


def begun(output, **job):
    """Makes a finished run one whose command did not see the end of its job."""
    found = record(output)
    found |= {"status": "running", "job": found["job"] | job}
    (output / "run.json").write_text(json.dumps(found))


class Running(LocalJobServicer):
    """A job server that says of every job that it runs."""

    def GetState(self, request, context=None):
        return beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.RUNNING)


@pytest.mark.slow
def test_the_job_is_recorded_found_done_and_not_started_twice(run, server):
    output = run(TEXT, **portable(server))
    assert len(rows(output)["id"]) == LINES
    job = record(output)["job"]
    assert job["runner"] == "PortableRunner"
    assert job["endpoint"] == f"localhost:{server.port}"
    assert job["name"].startswith("bert-embed-")
    assert job["id"]
    begun(output)
    run(TEXT, **portable(server))
    assert f"{NOTE} {job['name']} ({job['id']}) and did not see its end" in run.err
    assert "its runner says DONE" in run.err
    assert record(output)["documents_per_second"] is None  # all was computed before
    # A job of which nobody knows is named by any later command.
    begun(output, endpoint="localhost:1", id="lost")
    run(TEXT)
    assert f"{NOTE} {record(output)['job']['name']} (lost)" in run.err
    assert "should it still run, this command computes the same beside it" in run.err
    assert "http://JOBMANAGER:8081/jobs/overview" in run.err
    other = Running()
    begun(output, endpoint=f"localhost:{other.start_grpc_server()}")
    before = (output / "run.json").read_bytes()
    try:
        run(TEXT, code=1, **portable(server))
        run(TEXT, code=1, overwrite=True, pooling="cls")
    finally:
        other.stop(0)
    assert "of an earlier command writes to this --output and is RUNNING" in run.err
    assert (output / "run.json").read_bytes() == before


@pytest.mark.slow  # two processes load Beam
def test_a_job_server_that_dies_leaves_the_state_unknown(tmp_path, run, tiny_bundle):
    """The server is a process of its own, killed while the job waits for its worker."""
    code = (
        "import time\n"
        "from apache_beam.runners.portability.local_job_service import LocalJobServicer\n"
        "print(LocalJobServicer().start_grpc_server(), flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as dying,
        socket.create_server(("localhost", 0)) as deaf,
    ):
        port = dying.stdout.readline().strip()
        flags = {"runner": "PortableRunner", "job_endpoint": f"localhost:{port}"}
        pool = f"localhost:{deaf.getsockname()[1]}"
        flags |= {"environment_type": "EXTERNAL", "environment_config": pool}
        output = tmp_path / "out"
        client = start("embed", *flags_of(output, tiny_bundle, *run.written(TEXT), **flags))
        until = time.monotonic() + 120
        while time.monotonic() < until and client.poll() is None:
            if (output / "run.json").exists() and "job" in record(output):
                break
            time.sleep(0.2)
        dying.kill()
        _, errors = client.communicate(timeout=120)
    assert client.returncode == 1
    job = record(output)["job"]
    assert "error: the job server does not answer any more (UNAVAILABLE: " in errors
    assert f"it is not known whether the job {job['name']} ({job['id']}) still runs" in errors
    assert "Traceback" not in errors
    assert record(output)["status"] == "running"


FRAMES = """
\tat org.apache.flink.runtime.rest.RestClient.parseResponse(RestClient.java:644)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""

ENDED = "Pipeline bert_1-2 failed in state FAILED: "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("java.net.ConnectException: Connection refused", "ConnectException: Connection refused"),
        (
            "org.apache.flink.runtime.rest.util.RestClientException: [Internal server error., "
            "<Exception on server side:\norg.apache.flink.runtime.messages."
            f"FlinkJobNotFoundException: Could not find Flink job (a1){FRAMES}"
            "End of exception on server side>]",
            "FlinkJobNotFoundException: Could not find Flink job (a1)",
        ),
        (
            f"java.lang.RuntimeException: outer{FRAMES}Caused by: java.lang.IllegalStateException: "
            f"middle{FRAMES}\t... 14 more\nCaused by: java.io.IOException: inner{FRAMES}",
            "IOException: inner",
        ),
        (
            "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id x timed out.",
            "TimeoutException: Heartbeat of TaskManager with id x timed out.",
        ),
        ("unknown error", "unknown error"),
    ],
)
def test_the_innermost_cause_is_one_sentence(text, sentence):
    error = RuntimeError(ENDED + text)
    assert root_message(error) == sentence
    assert explains_itself(error)
    assert lost_connection(error) == ("JobManager" if "ConnectException" in text else None)


def test_an_error_of_a_worker_keeps_its_traceback():
    error = RuntimeError(
        f"{ENDED}java.lang.RuntimeException: Error received from SDK harness for instruction 4: "
        "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x' [while running "
        f"'Write'-ptransform-7]\n{FRAMES}"
    )
    assert root_message(error) == "KeyError: 'x'"
    assert not explains_itself(error)
    assert lost_connection(error) is None
    error = RuntimeError("Pipeline bert_1 failed in state CANCELLED: unknown error")
    assert root_message(error) == "the job was cancelled"


def test_nobody_answers(run):
    for runner, flag in (("PortableRunner", "job_endpoint"), ("FlinkRunner", "flink_master")):
        address = f"localhost:{free_port()}"
        output = run(TEXT, code=1, runner=runner, **{flag: address})
        assert f"error: --{flag} {address} does not answer (Connection refused);" in run.err
        assert not output.exists()


def test_an_address_that_is_missing_or_none(run):
    for runner, flags, told in (
        ("PortableRunner", {}, "--job_endpoint is missing"),
        ("PortableRunner", {"job_endpoint": "localhost"}, "must be a host and a port, such as lo"),
        ("PortableRunner", {"job_endpoint": "localhost:x"}, "must be a host and a port"),
        ("PortableRunner", {"job_endpoint": "localhost:99999"}, "must be a host and a port"),
        ("PortableRunner", {"job_endpoint": f"localhost:{10**25}"}, "must be a host and a port"),
        # Runners that would download a server.
        ("FlinkRunner", {}, "--job_endpoint is missing: give --runner FlinkRunner the address"),
        ("spark", {}, "--job_endpoint is missing: give --runner spark the address"),
    ):
        run.refused(TEXT, told, runner=runner, **flags)
        if runner != "PortableRunner":
            assert ("--flink_master" in run.err) == (runner == "FlinkRunner")


def test_a_dry_run_needs_no_server(tmp_path, run):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        place = f"localhost:{deaf.getsockname()[1]}"
        run(TEXT, dry_run=True, runner="PortableRunner", job_endpoint=place)
    assert f"note: --job_endpoint {place} does not answer" in run.out
    # The command line has another runner than the file.
    run.written({"job.yaml": "runner: PortableRunner\njob_endpoint: localhost:1\n"})
    run(TEXT, config=tmp_path / "job.yaml", runner="FnApiRunner")


MISTYPED = {
    "--skip_existng=DIR": "--skip_existng; did you mean --skip_existing?",
    "--max-rejeced": "--max_rejeced; did you mean --max_rejected?",
    "--batch_size=3": "--batch_size; did you mean --batch_tokens?",
    "--jop_endpoint=a:1": "--jop_endpoint; did you mean --job_endpoint?",
    "--enviroment_type=DOCKER": "--enviroment_type; did you mean --environment_type?",
    "more.txt": "more.txt stands alone: repeat --input",
}


@pytest.mark.parametrize("runner", ["flink", "PortableRunner", "DataflowRunner", "FnApiRunner"])
def test_a_mistyped_flag_is_found_on_every_runner(tmp_path, command, runner):
    words = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out", f"--runner={runner}"]
    for word, message in MISTYPED.items():
        assert message in command("embed", *words, word, code=2).err
    assert not (tmp_path / "out").exists()


# Of Beam 2.77's FlinkPipelineOptions and SparkPipelineOptions, as a job server names them.
OF_JOB_SERVERS = (
    "parallelism max_parallelism checkpointing_interval checkpointing_mode "
    "checkpoint_timeout_millis min_pause_between_checkpoints num_concurrent_checkpoints "
    "number_of_execution_retries execution_retry_delay object_reuse operator_chaining faster_copy "
    "state_backend state_backend_storage_path max_bundle_size max_bundle_time_mills "
    "latency_tracking_interval auto_watermark_interval execution_mode_for_batch savepoint_path "
    "flink_conf_dir file_input_split_max_size_m_b force_slot_sharing_group "
    "job_check_interval_in_secs attached_mode files_to_stage spark_master batch_interval_millis "
    "storage_level max_records_per_batch read_time_percentage checkpoint_dir "
    "checkpoint_duration_millis bundle_size cache_disabled default_environment_type "
    "default_environment_config user_agent stable_unique_names "
)


@pytest.mark.parametrize("runner", ["FlinkRunner", "PortableRunner", "SparkRunner"])
def test_flags_of_a_job_server_pass(run, caplog, runner):
    switches = {"object_reuse", "faster_copy", "attached_mode"}
    flags = {name: True if name in switches else 1 for name in OF_JOB_SERVERS.split()}
    place = {"job_endpoint": "localhost:1", "dry_run": True, "runner": runner}
    run(TEXT, some_thing_new=3, **flags, **place)
    assert "--some_thing_new is no flag of this program" in caplog.text
