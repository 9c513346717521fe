"""A Dataflow for tests, which takes jobs and runs none, and the account that submits them."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.discovery import problems
from tests.support.servers.gcs import Answering, GcsServer, serving
from tests.support.servers.permissions import Account

PROJECT, REGION = "test-project", "us-central1"
_JOBS = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/?]+))?(/\w+)?")
_SHOWN = ("id", "name", "projectId", "location", "currentState", "clientRequestId", "type")
_ACTIVE = ("JOB_STATE_PENDING", "JOB_STATE_RUNNING")


@dataclass
class DataflowServer:
    """A running Dataflow, which runs nothing.

    Attributes:
        url: Such as http://localhost:4443; the name, not the number, makes Beam speak REST.
        gcs: Where jobs are staged.
        environment: What a process must have set to use both, as a service account.
        jobs: The jobs by id, as they were asked for, with what the service adds.
        state: What a new job's state is said to be.
        refusal: Why no job is taken; None: they are.
        account: Whose jobs these are, if it may not do everything.
        silence: Why nothing is said of jobs; None: it is.
    """

    url: str
    gcs: GcsServer
    environment: dict[str, str]
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    state: str = "JOB_STATE_RUNNING"
    refusal: str | None = None
    silence: str | None = None
    account: Account | None = None

    @property
    def job(self) -> dict[str, Any]:
        return list(self.jobs.values())[-1]

    def graph(self, job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
        return beam_runner_api_pb2.Pipeline.FromString(self.staged_graph(job))

    def staged_graph(self, job: dict[str, Any]) -> bytes:
        """The same, as bytes."""
        options = job["environment"]["sdkPipelineOptions"]
        address = options["options"]["pipelineUrl"]
        return (self.gcs.root / address.removeprefix("gs://")).read_bytes()

    def flags(self, bucket: str) -> list[str]:
        """What every submission needs, with temporary files in a bucket; but for an image."""
        words = ["--runner=DataflowRunner", f"--project={PROJECT}", f"--region={REGION}"]
        return [*words, f"--temp_location=gs://{bucket}/tmp", f"--dataflow_endpoint={self.url}"]

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Has clients of this process talk to both."""
        with mock.patch.dict(os.environ, self.environment):
            yield

    def create(self, project: str, region: str, job: dict[str, Any]) -> dict[str, Any] | None:
        """Takes a job; None if one of its name is active, as the service has it."""
        if any(
            each["name"] == job["name"] and each["currentState"] in _ACTIVE
            for each in self.jobs.values()
        ):
            return None
        number = f"2026-01-01_00_00_00-{len(self.jobs) + 1}"
        place = {"id": number, "projectId": project, "location": region}
        self.jobs[number] = job | place | {"currentState": self.state}
        return self.jobs[number]


@contextmanager
def dataflow_server(folder: Path, gcs: GcsServer) -> Iterator[DataflowServer]:
    """Runs a Dataflow in a thread, with an account whose key is made in `folder`."""
    with serving(_Handler) as http:
        url = f"http://localhost:{http.server_port}"
        account = write_service_account(folder / "account.json", f"{url}/token")
        environment = gcs.environment | {"GOOGLE_APPLICATION_CREDENTIALS": str(account)}
        http.dataflow = DataflowServer(url, gcs, environment)  # type: ignore[attr-defined]
        yield http.dataflow  # type: ignore[attr-defined]


def write_service_account(path: Path, token_uri: str) -> Path:
    """Writes the file of a service account with a fresh key, which `token_uri` gives tokens to."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": f"submitter@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(account))
    return path


class _Handler(Answering):
    def do_POST(self) -> None:
        dataflow: DataflowServer = self.server.dataflow  # type: ignore[attr-defined]
        body = self.body()
        found = _JOBS.fullmatch(self.path.partition("?")[0])
        if self.path == "/token":
            self.answer_json({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"})
        elif self.path.endswith(":testIamPermissions") and dataflow.account is not None:
            asked = json.loads(body)["permissions"]
            self.answer_json(json.loads(dataflow.account.project(self.path, asked)))
        elif found is None:
            self._refuse(404, "NOT_FOUND", self.path)
        elif dataflow.account and dataflow.account.lacks("project", "dataflow.jobs.create"):
            self._refuse(403, "PERMISSION_DENIED", "dataflow.jobs.create is missing")
        elif dataflow.refusal is not None:
            self._refuse(400, "INVALID_ARGUMENT", dataflow.refusal)
        else:
            asked = json.loads(body)
            if wrong := problems(asked, "dataflow.v1b3", "Job"):
                self._refuse(400, "INVALID_ARGUMENT", wrong[0])
                return
            job = dataflow.create(found[1], found[2], asked)
            if job is None:
                name = asked["name"]
                self._refuse(409, "ALREADY_EXISTS", f"there is already an active job named {name}")
            else:
                self.answer_json({name: job[name] for name in _SHOWN if name in job})

    def do_GET(self) -> None:
        dataflow: DataflowServer = self.server.dataflow  # type: ignore[attr-defined]
        found = _JOBS.fullmatch(self.path.partition("?")[0])
        job = dataflow.jobs.get(found[3] or "") if found else None
        if job is None:
            self._refuse(404, "NOT_FOUND", self.path)
        elif dataflow.silence is not None:
            self._refuse(403, "PERMISSION_DENIED", dataflow.silence)
        elif found[4]:  # its messages or metrics, of which there are none
            self.answer_json({})
        else:
            self.answer_json({name: job[name] for name in _SHOWN if name in job})

    def _refuse(self, code: int, status: str, message: str) -> None:
        error = {"code": code, "status": status, "message": message}
        self.answer_json({"error": error}, code)


def run_graph(dataflow: DataflowServer, job: dict[str, Any]) -> None:
    """Does what the service's workers would do, here."""
    graph = dataflow.graph(job)
    for environment in graph.components.environments.values():
        environment.Clear()
        environment.urn = "beam:env:embedded_python:v1"
    FnApiRunner().run_via_runner_api(graph, PipelineOptions([])).wait_until_finish()
    job["currentState"] = "JOB_STATE_DONE"
