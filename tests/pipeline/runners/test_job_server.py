"""A job server that does not answer is reported before the job starts, by its flag."""

import socket

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import embed
from tests.support.servers.gcs import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("one\n")
    return path


@pytest.mark.parametrize(
    ("runner", "flag"), [("PortableRunner", "job_endpoint"), ("FlinkRunner", "flink_master")]
)
def test_nobody_answers(tmp_path, tiny_bundle, text, capsys, runner, flag):
    address = f"localhost:{free_port()}"
    assert embed(tmp_path / "out", tiny_bundle, text, runner=runner, **{flag: address}) == 1
    assert f"error: --{flag} {address} does not answer (Connection refused);" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_nobody_answers_dedup(tmp_path, capsys):
    address = f"localhost:{free_port()}"
    words = ["--runner=PortableRunner", f"--job_endpoint={address}"]
    assert main(["dedup", str(tmp_path / "in"), str(tmp_path / "out"), *words]) == 1
    assert f"error: --job_endpoint {address} does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({}, "--job_endpoint is missing"),
        ({"job_endpoint": "localhost"}, "must be a host and a port, such as localhost:8099"),
    ],
    ids=["missing", "no port"],
)
def test_an_address_that_is_none(tmp_path, tiny_bundle, text, capsys, flags, told):
    assert embed(tmp_path / "out", tiny_bundle, text, runner="PortableRunner", **flags) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("runner", ["FlinkRunner", "spark"])
def test_a_runner_that_would_download_one_is_asked_for_its_address(
    tmp_path, tiny_bundle, text, capsys, runner
):
    assert embed(tmp_path / "out", tiny_bundle, text, runner=runner, dry_run=True) == 2
    told = capsys.readouterr().err
    assert f"--job_endpoint is missing: give --runner {runner} the address" in told
    assert ("--flink_master" in told) == (runner == "FlinkRunner")


def test_a_dry_run_needs_no_server(tmp_path, tiny_bundle, text, capsys):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        flags = {"runner": "PortableRunner", "job_endpoint": f"localhost:{deaf.getsockname()[1]}"}
        assert embed(tmp_path / "out", tiny_bundle, text, dry_run=True, **flags) == 0
    note = f"note: --job_endpoint {flags['job_endpoint']} does not answer"
    assert note in capsys.readouterr().out


def test_the_command_line_has_another_runner_than_the_file(tmp_path, tiny_bundle, text):
    config = tmp_path / "job.yaml"
    config.write_text("runner: PortableRunner\njob_endpoint: localhost:1\n")
    flags = {"config": config, "runner": "FnApiRunner"}
    assert embed(tmp_path / "out", tiny_bundle, text, **flags) == 0
