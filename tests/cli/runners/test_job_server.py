"""A job server that does not answer is reported before the job starts, by its flag."""

import socket

import pytest

from tests.support.servers.gcs import free_port

pytestmark = pytest.mark.slow
TEXT = {"in.txt": "one\n"}


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


CLUSTERS = {
    "FlinkRunner": ["--flink_master=localhost:1"],
    "flink": ["--flink_master=localhost:1"],
    "PortableRunner": ["--job_endpoint=localhost:1"],
    "SparkRunner": ["--job_endpoint=localhost:1"],
    "DataflowRunner": [],
    "FnApiRunner": [],
}
MISTYPED = {
    "--skip_existng=DIR": "--skip_existng; did you mean --skip_existing?",
    "--max_rejeced=1%": "--max_rejeced; did you mean --max_rejected?",
    "--max-rejeced": "--max_rejeced; did you mean --max_rejected?",
    "--batch_size=3": "--batch_size; did you mean --batch_tokens?",
    "--jop_endpoint=a:1": "--jop_endpoint; did you mean --job_endpoint?",
    "--enviroment_type=DOCKER": "--enviroment_type; did you mean --environment_type?",
    "more.txt": "more.txt stands alone: repeat --input",
}


@pytest.mark.parametrize("runner", CLUSTERS)
def test_a_mistyped_flag_is_found_on_every_runner(tmp_path, command, runner):
    for word, message in MISTYPED.items():
        words = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out", f"--runner={runner}"]
        assert message in command("embed", *words, *CLUSTERS[runner], word, code=2).err
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
def test_flags_of_a_job_server_pass(tmp_path, run, tiny_bundle, command, caplog, runner):
    switches = {"object_reuse", "faster_copy", "attached_mode"}
    words = [f"--{name}" if name in switches else f"--{name}=1" for name in OF_JOB_SERVERS.split()]
    words += ["--some_thing_new", "3", *CLUSTERS[runner], "--dry_run", f"--runner={runner}"]
    (text,) = run.written(TEXT)
    command("embed", *words, input=text, output=tmp_path / "out", model=tiny_bundle)
    assert "--some_thing_new is no flag of this program" in caplog.text
