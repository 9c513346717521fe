"""The cluster of `deploy/flink/compose.yaml`."""

import os
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from tests.support.command import ROOT, embed, files, finish, flags_of, start

FLINK = ROOT / "deploy" / "flink"
IMAGES = (
    "bert-embed-cpu:test",
    os.environ.get("FLINK_IMAGE")
    or re.findall("^ARG FLINK=(.*)", (FLINK / "Dockerfile").read_text(), re.MULTILINE)[0],
)
SETTINGS = {"block_bytes": 4000, "threads": 1}
pytestmark = pytest.mark.slow


def run(*words, env=None):
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def compose(shared):
    """Runs docker-compose on the file, which is up for the tests of this module."""
    if shutil.which("docker-compose") is None or run("docker", "version").returncode:
        pytest.skip("Docker and docker-compose do not answer here: start it, or set DOCKER_HOST")
    if not (ROOT / "build" / "flink" / "job_server").exists():
        pytest.skip("build/flink/job_server is not there: `make flink` fetches it")
    env = {**os.environ, "SHARED": str(shared)}

    def call(*words):
        return run("docker-compose", "--file", str(FLINK / "compose.yaml"), *words, env=env)

    for image in IMAGES:
        if run("docker", "image", "inspect", image).returncode:
            pytest.skip(f"Docker has no image {image}: `make test-images` makes or pulls it")
    built = call("build", "jobmanager")
    assert built.returncode == 0, built.stderr
    up = call("up", "--detach", "--no-build")
    try:
        assert up.returncode == 0, up.stderr
        wait(lambda: '"slots-available":2' in overview(), lambda: call("logs").stdout)
        wait(lambda: "JobService started" in logs(call), lambda: call("logs").stdout)
        yield call
    finally:
        call("down")


def overview():
    try:
        with urllib.request.urlopen("http://localhost:8081/overview", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def logs(call):
    said = call("logs", "job_server")
    return said.stdout + said.stderr


def wait(ready, why, seconds=90):
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, why()
        time.sleep(0.2)


def test_the_cluster_writes_what_the_local_runner_writes(compose, shared, tiny_bundle):
    corpus, model = shared / "in.txt", shared / "model"
    corpus.write_text("".join(f"{n} seven stars of the river bank\n" for n in range(2_000)))
    shutil.copytree(tiny_bundle, model)
    assert embed(shared / "here", str(model), corpus, **SETTINGS) == 0
    worker = '{"command": "/opt/bert-embed/deploy/flink/worker.sh"}'
    flags = {**SETTINGS, "config": FLINK / "job.yaml", "environment_config": worker}
    finish(start("embed", *flags_of(shared / "there", str(model), corpus, **flags)))
    assert files(shared / "there") == files(shared / "here")
