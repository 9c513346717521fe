"""A Hugging Face hub of our own for tests: gives revisions, lists and files as the hub does."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/(?P<what>revision|tree)/(?P<revision>[^/]+)")
_FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class HubServer:
    """A running hub.

    Attributes:
        environment: What a process must have set to use it.
        models: Folders of models by name, then by commit.
        names: Commits by branch or tag, the same for all models.
        sent: The paths of the files that were downloaded.
    """

    environment: dict[str, str]
    models: dict[str, dict[str, Path]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """Runs a hub in a thread."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = HubServer({"HF_ENDPOINT": f"http://127.0.0.1:{http.server_port}"})
    http.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        found = _API.fullmatch(path) or _FILE.fullmatch(path)
        hub: HubServer = self.server.hub  # type: ignore[attr-defined]
        commits = hub.models.get(found["repo"]) if found else None
        if found is None or commits is None:
            self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        commit = hub.names.get(found["revision"], found["revision"])
        if commit not in commits:
            self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif "path" in found.groupdict():
            self._send(commits[commit] / found["path"], commit)
        else:
            self._describe(found["what"], found["repo"], commits[commit], commit)

    def _describe(self, what: str, repo: str, folder: Path, commit: str) -> None:
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        told: Any = {"id": repo, "sha": commit, "siblings": [{"rfilename": each} for each in names]}
        if what == "tree":
            told = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": _etag(file)}
                for name, file in zip(names, files, strict=True)
            ]
        self._answer(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def _send(self, file: Path, commit: str) -> None:
        if not file.is_file():
            self._answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        if self.command == "GET":
            self.server.hub.sent.append(file.name)  # type: ignore[attr-defined]
        headers = {"ETag": f'"{_etag(file)}"', "X-Repo-Commit": commit}
        self._answer(200, file.read_bytes(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
