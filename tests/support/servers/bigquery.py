"""A real BigQuery for tests: bqemulator in an environment of its own, behind a small proxy.

`python -m tests.support.servers.bigquery` makes the environment; without it the first test that
needs one does.
"""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.discovery import problems
from tests.support.servers.gcs import (
    ANONYMOUS,
    Answering,
    answers,
    asked,
    free_port,
    running,
    serving,
)

_ROOT = Path(__file__).resolve().parents[3]
_FOLDER = _ROOT / "build" / "bqemulator-venv"
_EXTENSIONS = "; ".join(
    ["from duckdb_extensions import import_extension"]
    + [f"import_extension({name!r})" for name in ("spatial", "avro")]
)
_JOBS = re.compile(r"/bigquery/v2/projects/[^/]+/jobs/?")
_JOB = re.compile(r"(/bigquery/v2/projects/[^/]+/(?:jobs|queries)/)([^/?]+)(.*)")
_TABLE = re.compile(r"/bigquery/v2/projects/[^/]+/datasets/[^/]+/tables/[^/]+")
_CHANGE = re.compile(r"\s*(?:DELETE FROM|INSERT INTO|UPDATE)\s+`([^`]+)`")
_ROW_BYTES = 100  # the emulator does not know how large a table is
_Field = tuple[str, str, str]  # name, type and mode
_TEXTS = (("id", "STRING", "NULLABLE"), ("text", "STRING", "NULLABLE"))


def emulator_environment() -> Path:
    """Makes the emulator's environment unless it is there; returns its folder."""
    mark = _FOLDER / "made"
    uv = [sys.executable, "-m", "uv", "export", "--frozen", "--quiet", "--no-annotate"]
    locked = [*uv, "--no-emit-project", "--only-group", "emulator"]
    wanted = subprocess.run(locked, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    if mark.exists() and mark.read_text() == wanted:
        return _FOLDER
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(_FOLDER)], check=True)
    python = str(_FOLDER / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = _FOLDER / "packages.txt"
    pins.write_text(wanted)
    subprocess.run([*install, "--no-deps", "--requirement", str(pins)], check=True)
    home = {**os.environ, "HOME": str(_FOLDER)}  # DuckDB keeps its extensions below it
    subprocess.run([python, "-c", _EXTENSIONS], check=True, env=home)
    mark.write_text(wanted)
    return _FOLDER


@dataclass
class BigQueryServer:
    """A running BigQuery.

    Attributes:
        client: Talks to it, without credentials.
        environment: What a process must have set to use it.
        denied: Projects and datasets that nobody may see.
        refusal: How requests for these end: the `reason` and `message` of their error.
        hides_jobs: Whether jobs are another account's, which may not be seen.
        failing: How load jobs end, if not well: the `reason` and `message` of their error.
        forbids: Says of a request (method, path, body) which permission for it is missing, if any;
            of the method TEST, whose body is a permission, whether it is.
        limited: How many uploads break off because of a rate limit; their jobs never exist.
        destinations: Destination tables of the load and copy jobs, with their partitions.
        jobs: Ids of the jobs that were started, by kind: `load`, `copy`, `query`.
        refused: Ids that were refused because there was such a job.
    """

    client: Any = None
    environment: dict[str, str] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    refusal: tuple[str, str] = ("accessDenied", "Access Denied")
    hides_jobs: bool = False
    failing: dict[str, str] | None = None
    forbids: Callable[[str, str, bytes], str | None] = lambda method, path, body: None
    limited: int = 0
    destinations: list[str] = field(default_factory=list)
    jobs: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [row.values() for row in self.client.query(sql).result()]

    def fill(self, table: str, rows: list[dict], schema: Sequence[_Field] = _TEXTS) -> None:
        """Makes a table, of ids and texts if nothing else is said, and its data set."""
        from google.cloud import bigquery

        self.client.create_dataset(table.rsplit(".", 1)[0], exists_ok=True)
        fields = [bigquery.SchemaField(*field) for field in schema]
        self.client.create_table(bigquery.Table(table, schema=fields))
        config = bigquery.LoadJobConfig(schema=fields, source_format="NEWLINE_DELIMITED_JSON")
        if rows:  # not load_table_from_json, whose kind of upload the emulator refuses
            lines = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
            self.client.load_table_from_file(lines, table, job_config=config).result()


@contextmanager
def bigquery_server(gcs_root: Path, folder: Path) -> Iterator[BigQueryServer]:
    """Runs the emulator and the proxy before it; load jobs read gs:// below `gcs_root`."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    environment = emulator_environment()
    rest, grpc = free_port(), free_port()
    command = [str(environment / "bin" / "bqemulator"), "start", "--project=test-project"]
    command += [f"--rest-port={rest}", f"--grpc-port={grpc}"]
    settings = {"BQEMU_GCS_LOCAL_ROOT": str(gcs_root), "HOME": str(environment)}
    health = f"http://127.0.0.1:{rest}/bigquery/v2/projects/test-project/datasets"
    with running(command, folder / "bigquery.log", lambda: answers(health), **settings):
        server = BigQueryServer()
        with _proxy(server, rest) as url:
            server.environment = {
                "BIGQUERY_EMULATOR_HOST": url,
                "BIGQUERY_STORAGE_EMULATOR_HOST": f"127.0.0.1:{grpc}",
                **ANONYMOUS,
            }
            os.environ["BIGQUERY_EMULATOR_HOST"] = url
            try:
                server.client = bigquery.Client("test-project", AnonymousCredentials())
            finally:
                del os.environ["BIGQUERY_EMULATOR_HOST"]
            yield server
            server.client.close()


@contextmanager
def _proxy(server: BigQueryServer, port: int) -> Iterator[str]:
    handler = type("Handler", (_Handler,), {"server_state": server, "port": port})
    with serving(handler) as http:
        yield f"http://127.0.0.1:{http.server_port}"


class _Handler(Answering):
    """Passes on, and adds what the emulator lacks of the service.

    A second job of one id is refused; columns that an uploaded file lacks are null; an upload keeps
    the id it asks for, and may fail as the service has it; a query may have a destination;
    partitions are noted and left out; tables have a size, and the time when their rows changed
    last, and may require a filter; a project or dataset may be denied; a filtered list of datasets
    is empty; jobs that exist may be hidden.
    """

    server_state: BigQueryServer
    port: int
    known: ClassVar[dict[str, str]] = {}  # id of a job to what the emulator calls it
    failed: ClassVar[dict[str, dict[str, str]]] = {}  # id of a job to its error
    schemas: ClassVar[dict[str, list[str]]] = {}  # id of a load job to the columns that it names
    changed: ClassVar[dict[str, int]] = {}  # table to the milliseconds of its rows' last change
    filtered: ClassVar[set[str]] = set()  # tables that are read with a filter on partitions alone
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "/datasets?" in self.path and "filter=" in self.path:
            self._send(200, {}, b'{"datasets":[]}')
            return
        job = _JOB.fullmatch(self.path)
        hides = self.server_state.hides_jobs and "/jobs/" in self.path
        if hides and job is not None and job[2] in self.known:
            message = f"User does not have bigquery.jobs.get permission for job {job[2]}"
            self._send(*_denial("accessDenied", f"Access Denied: {message}"))
            return
        if job is not None:
            self.path = job[1] + self.known.get(job[2], job[2]) + job[3]
        status, headers, body = self._ask(b"")
        if job is not None and job[2] in self.known and status == 200:
            body = _renamed(body, job[2], self.failed.get(job[2]))
        if _TABLE.match(self.path) and status == 200:
            body = _with_facts(body, self.changed, self.filtered)
        self._send(status, headers, body)

    def do_POST(self) -> None:
        body = self.body()
        path = self.path.partition("?")[0]
        upload = path.startswith("/upload/")
        if not _JOBS.fullmatch(path.removeprefix("/upload")):
            table = json.loads(body or b"{}")
            if table.get("requirePartitionFilter"):
                self.filtered.add(_path(table["tableReference"]))
            self._send(*self._ask(body))
            return
        request = json.loads(body)
        name = request.get("jobReference", {}).get("jobId", "")
        if name in self.known:
            self.server_state.refused.append(name)
            message = f"Already Exists: Job {name}"
            errors = [{"reason": "duplicate", "message": message}]
            answer = {"error": {"code": 409, "message": message, "errors": errors}}
            self._send(409, {}, json.dumps(answer).encode())
            return
        if name and not request["configuration"].get("dryRun"):
            self.known[name] = name
        self._note(request, name)
        status, headers, answered = self._ask(json.dumps(request).encode())
        if upload and "location" in headers:
            session = re.sub(r"http://[^/]+", f"http://{self.headers['Host']}", headers["location"])
            headers["location"] = session
            self.known["upload " + session.rpartition("upload_id=")[2]] = name
        self._send(status, headers, answered)

    def do_PUT(self) -> None:
        body, failing = self.body(), self.server_state.failing
        if self.server_state.limited:
            self.server_state.limited -= 1
            self._send(*_denial("rateLimitExceeded", "Exceeded rate limits: too many requests"))
            return
        name = self.known.get("upload " + self.path.rpartition("upload_id=")[2])
        body = _with_columns(body, self.schemas.get(name or "", []))
        status, headers, answered = self._ask(b"-" * len(body) if failing else body)
        if name and failing:
            self.failed[name] = failing
        if name and status == 200:
            self.known[name] = json.loads(answered)["jobReference"]["jobId"]
            answered = _renamed(answered, name, failing)
        self._send(status, headers, answered)

    def do_DELETE(self) -> None:
        self._send(*self._ask(b""))

    def do_PATCH(self) -> None:
        self._send(*self._ask(self.body()))

    def _note(self, request: dict[str, Any], name: str) -> None:
        configuration = request["configuration"]
        kind = next(each for each in ("load", "copy", "query") if each in configuration)
        if not configuration.get("dryRun"):
            self.server_state.jobs.append((kind, name))
        asked = configuration[kind]
        target = asked.get("destinationTable")
        if kind == "query":
            if target and not configuration.get("dryRun"):
                asked["query"] = f"CREATE OR REPLACE TABLE `{_path(target)}` AS {asked['query']}"
                del asked["destinationTable"]
            if (change := _CHANGE.match(asked["query"])) is not None:
                self.changed[change[1]] = time.time_ns() // 1_000_000
            return
        if asked.get("sourceFormat") == "PARQUET":
            self.schemas[name] = [column["name"] for column in asked["schema"]["fields"]]
        self.server_state.destinations.append(target["tableId"])
        target["tableId"] = target["tableId"].partition("$")[0]
        self.changed[_path(target)] = time.time_ns() // 1_000_000

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        kind = next((name for ends, name in _BODIES if re.search(ends, self.path)), None)
        is_json = self.command in ("POST", "PATCH") and body[:1] == b"{"  # a PUT brings data
        wrong = problems(json.loads(body), "bigquery.v2", kind) if kind and is_json else []
        if wrong:
            return _denial("invalid", f"Invalid JSON payload received. {wrong[0]}")
        denied = self.server_state.denied
        if any(f"/datasets/{n}" in self.path or f"/projects/{n}/" in self.path for n in denied):
            return _denial(*self.server_state.refusal)
        if self.path.partition("?")[0].endswith(":testIamPermissions"):
            asked_for = json.loads(body)["permissions"]
            forbids = self.server_state.forbids
            held = [one for one in asked_for if not forbids("TEST", self.path, one.encode())]
            return 200, {}, json.dumps({"permissions": held}).encode()
        if missing := self.server_state.forbids(self.command, self.path, body):
            return _denial("accessDenied", f"Access Denied: Permission {missing} denied")
        path = re.sub(r"(/tables/[^/?]+?)(\$|%24)\d+", r"\1", self.path)
        del self.headers["accept-encoding"]  # the answer may be changed
        status, headers, answered = asked(self, f"http://127.0.0.1:{self.port}", path, body)
        return status, {name.lower(): value for name, value in headers.items()}, answered

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        kept = {name: value for name, value in headers.items() if name in _KEPT}
        self.answer(status, {"Content-Type": "application/json"} | kept, body)


# What the service takes as the body of a request, by the end of its path.
_BODIES = (
    (r"/jobs/?(\?|$)", "Job"),
    (r"/queries/?(\?|$)", "QueryRequest"),
    (r":testIamPermissions", "TestIamPermissionsRequest"),
    (r"/tables(/[^/?]+)?(\?|$)", "Table"),
    (r"/datasets(/[^/?]+)?(\?|$)", "Dataset"),
)
_KEPT = ("location", "range", "etag", "x-guploader-uploadid")


def _denial(reason: str, message: str) -> tuple[int, dict[str, str], bytes]:
    errors = [{"reason": reason, "message": message}]
    answer = {"error": {"code": 403, "message": message, "errors": errors}}
    return 403, {}, json.dumps(answer).encode()


def _renamed(body: bytes, name: str, error: dict[str, str] | None) -> bytes:
    job = json.loads(body)
    job["jobReference"]["jobId"] = name
    if error is not None:
        job["status"]["errorResult"], job["status"]["errors"] = error, [error]
    return json.dumps(job).encode()


def _with_columns(data: bytes, names: list[str]) -> bytes:
    """A Parquet file with these columns, those that it lacks null; the same if it lacks none."""
    try:
        table, out = pq.read_table(io.BytesIO(data)), io.BytesIO()
    except pa.ArrowInvalid:  # a damaged file, or none
        return data
    if len(names) <= table.num_columns:
        return data
    there = {name: table[name] for name in table.column_names}
    pq.write_table(pa.table({n: there.get(n, pa.nulls(len(table))) for n in names}), out)
    return out.getvalue()


def _path(table: dict[str, str]) -> str:
    return ".".join(table[part] for part in ("projectId", "datasetId", "tableId"))


def _with_facts(body: bytes, changed: dict[str, int], filtered: set[str]) -> bytes:
    table = json.loads(body)
    name = table.get("tableReference")  # of the table itself, not of its rows
    table["requirePartitionFilter"] = name is not None and _path(name) in filtered
    if name is not None and (change := changed.get(_path(name))) is not None:
        table["lastModifiedTime"] = str(max(change, int(table.get("lastModifiedTime") or 0)))
    if not int(table.get("numBytes") or 0):
        table["numBytes"] = str(int(table.get("numRows") or 0) * _ROW_BYTES)
    return json.dumps(table).encode()


if __name__ == "__main__":
    emulator_environment()
