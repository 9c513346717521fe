"""A small HTTP proxy in front of a server: counts what is asked, and fails as servers do."""

import http.client
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers.gcs import GcsServer

_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}
Fault = int | str | None


@dataclass
class Proxy:
    """A running proxy.

    Attributes:
        url: Where it listens.
        fault: Says of a request (method, path) what becomes of it: None passes it on, a number
            answers with that status, "cut" drops the connection half-way through the answer,
            "lost" passes it on and drops the answer, "flip" changes a byte of the answer.
        delay: Seconds that each request waits.
        asked: (method, kind) of every request, in order; kinds: list, get, read, write, other.
        paths: (method, path) of every request.
        failed: How many were answered by a fault.
    """

    url: str
    fault: Callable[[str, str], Fault] = lambda method, path: None
    delay: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0

    def counts(self) -> Counter:
        """How often each kind was asked for."""
        return Counter(kind for _, kind in self.asked)

    def forget(self) -> None:
        """Counts from zero again."""
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


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """Runs a proxy in front of the server at `upstream` (http://host:port)."""
    made = Proxy("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            with lock:
                made.asked.append((self.command, kind_of(self.command, self.path)))
                made.paths.append((self.command, self.path))
            if made.delay:
                time.sleep(made.delay)
            fault = made.fault(self.command, self.path)
            if fault is not None:
                with lock:
                    made.failed += 1
            if isinstance(fault, int):
                self.answer(fault, {}, b'{"error":{"code":%d,"message":"a fault"}}' % fault)
                return
            status, headers, data = self.ask(body)
            if fault == "lost":
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
            host = upstream.removeprefix("http://")
            sent = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request(self.command, self.path, body, {**sent, "Host": host})
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            headers = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
            if "Location" in headers:  # of an upload in pieces: it goes on through here
                headers["Location"] = headers["Location"].replace(upstream, made.url)
            return answer.status, headers, data

        def answer(
            self, status: int, headers: dict[str, str], data: bytes, sent: bytes | None = None
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "content-length" not in {name.lower() for name in headers}:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if sent is None else sent)

        def drop(self) -> None:
            self.wfile.flush()
            linger = struct.pack("ii", 1, 0)  # a reset, not an orderly end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
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
