"""The image of workers: `embed` in it, it as worker pool, as Prism's containers.

`make test-images` builds it first; $IMAGE names another one. Some three minutes on two cores.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import ROOT, embed, files, finish, flags_of, rows, start
from tests.support.servers.gcs import free_port

IMAGE = os.environ.get("IMAGE", "bert-embed-cpu:test")
PRISM = ROOT / "build" / "prism"
POOL = 50000  # where Beam's boot program has a pool listen
SETTINGS = {"block_bytes": 1000, "threads": 1}
LINES = 60
pytestmark = pytest.mark.slow


def docker(*words, stdin=None):
    return subprocess.run(
        ["docker", *words], input=stdin, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", autouse=True)
def image():
    if shutil.which("docker") is None or docker("version").returncode:
        pytest.skip("Docker does not answer here: start it, or set DOCKER_HOST")
    if docker("image", "inspect", IMAGE).returncode:
        pytest.skip(f"Docker has no image {IMAGE}: `make images` builds it")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    path.write_text("".join(f"{n} seven stars of the river bank\n" for n in range(LINES)))
    return path


@pytest.fixture(scope="module")
def expected(corpus, tiny_bundle, tmp_path_factory):
    """What the local runner writes without any image."""
    output = tmp_path_factory.mktemp("expected") / "out"
    assert embed(output, tiny_bundle, corpus, **SETTINGS) == 0
    assert len(rows(output)["id"]) == LINES
    return output


@pytest.fixture(scope="module")
def job_server(tmp_path_factory) -> Iterator[str]:
    """Prism, which takes jobs."""
    if not PRISM.exists():
        pytest.skip("build/prism is not there: `make build/prism` builds it where Go is installed")
    log = tmp_path_factory.mktemp("prism") / "log"
    port = free_port()
    command = [str(PRISM), f"--job_port={port}", "--serve_http=false"]
    with open(log, "wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as prism:
        yield f"localhost:{port}"
        prism.terminate()


def listens():
    with socket.socket() as client:
        return client.connect_ex(("localhost", POOL)) == 0


@contextmanager
def worker_pool(*folders: Path) -> Iterator[None]:
    """The image as a worker pool, which sees the folders by the same paths."""
    volumes = [word for folder in folders for word in ("-v", f"{folder}:{folder}")]
    made = docker("run", "-d", "--network", "host", *volumes, IMAGE, "--worker_pool")
    assert made.returncode == 0, made.stderr
    container = made.stdout.strip()
    try:
        until = time.monotonic() + 60
        while not listens():
            assert time.monotonic() < until, docker("logs", container)
            time.sleep(0.5)
        yield
    finally:
        docker("rm", "--force", container)


def portable(job_server, kind, config):
    return {
        "runner": "PortableRunner",
        "job_endpoint": job_server,
        "environment_type": kind,
        "environment_config": config,
        **SETTINGS,
    }


@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
def test_embed_in_the_image_writes_what_it_writes_outside(
    tmp_path, tiny_bundle, corpus, expected, user
):
    folders = [tmp_path, Path(tiny_bundle), corpus.parent]
    for folder in folders:
        folder.chmod(0o777)  # pytest's are its user's alone
    volumes = [word for folder in folders for word in ("-v", f"{folder}:{folder}")]
    flags = flags_of(tmp_path / "out", tiny_bundle, corpus, **SETTINGS)
    command = ["--entrypoint", "python", IMAGE, "-m", "bert_embed", "embed", *flags]
    ran = docker("run", "--rm", "--network", "host", "-w", "/", "--user", user, *volumes, *command)
    assert ran.returncode == 0, ran.stderr
    assert files(tmp_path / "out") == files(expected)


def test_the_package_is_imported_from_site_packages_and_nowhere_else():
    code = "import bert_embed.pipeline; print(bert_embed.pipeline.__file__)"
    ran = docker("run", "--rm", "--network", "host", "--entrypoint", "python", IMAGE, "-c", code)
    assert ran.stdout.strip().endswith("/site-packages/bert_embed/pipeline/__init__.py"), ran.stderr


def test_a_worker_pool_writes_what_the_local_runner_writes(
    tmp_path, tiny_bundle, corpus, expected, job_server
):
    output = tmp_path / "out"
    flags = portable(job_server, "EXTERNAL", f"localhost:{POOL}")
    with worker_pool(tmp_path, Path(tiny_bundle), corpus.parent):
        finish(start("embed", *flags_of(output, tiny_bundle, corpus, **flags)))
    assert files(output) == files(expected)


def test_containers_of_prism_write_what_the_local_runner_writes(
    tmp_path, tiny_bundle, corpus, expected, job_server, gcs
):
    """Prism mounts no folders, so its containers read and write Cloud Storage; not as root."""
    texts = gcs.put_folder(corpus.parent, "texts", "in")
    settings = "".join(f"ENV {name}={value}\n" for name, value in gcs.environment.items())
    named = f"{IMAGE.partition(':')[0]}:test-storage"
    built = docker("build", "-t", named, "-", stdin=f"FROM {IMAGE}\nUSER 1000:1000\n{settings}")
    assert built.returncode == 0, built.stderr
    flags = portable(job_server, "DOCKER", named) | {"temp_location": "gs://texts/tmp"}
    try:
        job = start("embed", *flags_of("gs://texts/out", tiny_bundle, f"{texts}/in.txt", **flags))
        finish(job)
    finally:
        docker("rmi", named)
    output = gcs.root / "texts" / "out"
    assert rows(output)["embedding"] == rows(expected)["embedding"]
    assert len(rows(output)["id"]) == LINES
