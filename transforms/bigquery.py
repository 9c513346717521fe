"""BigQuery: names of tables checked, clients of the machine, jobs that run once, clear errors."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.file_info import StorageError

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table

_SCHEME = "bq://"
_DOMAIN = r"(?:[a-z0-9][a-z0-9.-]*\.[a-z]+:)?"  # of projects made before there were organizations
_PROJECT = rf"{_DOMAIN}[a-z][a-z0-9-]{{1,28}}[a-z0-9]"
_DATASET = r"[A-Za-z0-9_]{1,1024}"
_TABLE = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,1023}"
_DECORATOR = r"\d{4}|\d{6}|\d{8}|\d{10}"
_NAME = re.compile(
    rf"(?P<project>{_PROJECT})[:.](?P<dataset>{_DATASET})\.(?P<table>{_TABLE})"
    rf"(?:\$(?P<partition>{_DECORATOR}))?"
)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,299}")
PARTITION_TYPES = {4: "YEAR", 6: "MONTH", 8: "DAY", 10: "HOUR"}
PATIENCE = 60.0  # seconds that a call, not a job, may take
# What the service's own clients take from the environment; Storage Read has no name of its own.
_REST_EMULATOR, _READ_EMULATOR = "BIGQUERY_EMULATOR_HOST", "BIGQUERY_STORAGE_EMULATOR_HOST"


@dataclass(frozen=True)
class TableName:
    """A table's name, each part of which is safe within backticks.

    Attributes:
        project: Such as `my-project`.
        dataset: Letters, digits and underscores.
        table: The same and dashes.
        partition: Digits behind a `$`, such as 20260131; "" for the whole table.
    """

    project: str
    dataset: str
    table: str
    partition: str = ""

    def __str__(self) -> str:
        """As the command line has it, without the partition."""
        return f"{self.project}:{self.dataset}.{self.table}"

    @property
    def path(self) -> str:
        """As SQL and the client have it, without the partition."""
        return f"{self.project}.{self.dataset}.{self.table}"

    @property
    def destination(self) -> str:
        """As a load job has it, with the partition."""
        return self.path + (f"${self.partition}" if self.partition else "")


def table_name(text: str, flag: str) -> TableName:
    """Reads `project:dataset.table`, `project.dataset.table` or `bq://project.dataset.table`.

    Raises:
        ValueError: Naming the flag, if it is none of these.

    >>> table_name("my-project:texts.news$20260131", "--output_table").destination
    'my-project.texts.news$20260131'
    """
    found = _NAME.fullmatch(text.removeprefix(_SCHEME))
    if found is None:
        raise ValueError(
            f"{flag} {text!r} is no table: write project:dataset.table, letters, digits and _ only "
            "(a project and a table may hold dashes)"
        )
    return TableName(*(part or "" for part in found.groups()))


def looks_like_table(text: str) -> bool:
    """Whether an input is meant as a table: by its form, unless there is a file of that name.

    >>> looks_like_table("my-project:texts.news"), looks_like_table("news.2026.txt")
    (True, False)
    """
    if text.startswith(_SCHEME):
        return True
    if "/" in text or os.path.exists(text) or _NAME.fullmatch(text) is None:
        return False
    # A file that is missing is not to be called a missing table: a.jsonl.gz, notes.old.txt.
    return ":" in text or "-" in text.split(".")[0]


def check_column(name: str, flag: str) -> str:
    """The name of a column, if it is one that needs no quoting.

    Raises:
        ValueError: Naming the flag.
    """
    if _COLUMN.fullmatch(name) is None:
        raise ValueError(f"--{flag} {name!r} is no column of BigQuery: letters, digits and _ only")
    return name


@contextmanager
def bigquery_client(project: str) -> Iterator["Client"]:
    """A client with the credentials of the machine; with an emulator it needs none.

    Args:
        project: Whose jobs these are, and who pays for them.

    Raises:
        ValueError: There are no credentials.
    """
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import bigquery

    try:
        client = bigquery.Client(project=project, credentials=_credentials())
    except GoogleAuthError as error:
        raise ValueError(
            "BigQuery needs credentials: run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    try:
        yield client
    finally:
        client.close()


@contextmanager
def read_client() -> Iterator[Any]:
    """A client of the Storage Read API; with an emulator it talks to that, without encryption."""
    from google.cloud.bigquery_storage_v1 import BigQueryReadClient

    address = os.environ.get(_READ_EMULATOR)
    if address is None:
        with BigQueryReadClient() as client:
            yield client
        return
    import grpc
    from google.cloud.bigquery_storage_v1.services.big_query_read.transports.grpc import (
        BigQueryReadGrpcTransport,
    )

    with grpc.insecure_channel(address) as channel:
        yield BigQueryReadClient(transport=BigQueryReadGrpcTransport(channel=channel))


def _credentials() -> Any:
    from google.auth.credentials import AnonymousCredentials

    return AnonymousCredentials() if os.environ.get(_REST_EMULATOR) else None


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turns what BigQuery's clients raise into a sentence that begins with `what`."""
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except exceptions.NotFound as error:
        raise ValueError(f"{what}: there is no such project, dataset or table") from error
    except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.PermissionDenied) as error:
        raise ValueError(
            f"{what}: not allowed with the credentials of this machine ({reason(error)})"
        ) from error
    except exceptions.GoogleAPICallError as error:
        raise ValueError(f"{what}: {reason(error)}") from error
    except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException) as error:
        kind = type(error).__name__
        raise StorageError(
            f"{what}: BigQuery cannot be reached ({kind}), try again later"
        ) from error


def reason(error: Any) -> str:
    """What the service says of an error, on one line."""
    errors = getattr(error, "errors", None) or ()
    said = [each["message"] for each in errors if isinstance(each, dict) and each.get("message")]
    return " ".join((said[0] if said else str(getattr(error, "message", error))).split())


def get_table(client: "Client", name: TableName, decorated: bool = False) -> "Table | None":
    """The table, or None if there is none (or not its dataset)."""
    from google.api_core.exceptions import NotFound

    try:
        return client.get_table(name.destination if decorated else name.path, timeout=PATIENCE)
    except NotFound:
        return None


def run_once(
    client: "Client", location: str | None, name: str, start: Callable[[str], Any], skip: Any = None
) -> Any:
    """Runs a job under a name of its own, so that it is done once however often this is called.

    A job of that name that runs or is done is waited for, not started again; one that failed keeps
    its name for good, the next try takes the name with a number behind it.

    Args:
        client: Of the project that runs the job.
        location: Where the job runs.
        name: Letters, digits, dashes and underscores.
        start: Starts the job under the id it is given.
        skip: Tells of a job that is done whether it does not count, because what it made is gone.

    Returns:
        The job, done.

    Raises:
        ValueError: It failed, with the service's reason.
    """
    from google.api_core.exceptions import Conflict

    attempt, tries = 0, 0
    while True:
        job_id = f"{name}_{attempt}" if attempt else name
        job = find_job(client, job_id, location)
        fresh = job is None
        if job is None:
            try:
                job = start(job_id)
            except Conflict:  # another process was faster
                job = client.get_job(job_id, location=location, timeout=PATIENCE)
        failed = _wait(job)
        if failed is None and (fresh or skip is None or not skip(job)):
            return job
        attempt += 1
        tries += fresh
        if fresh and failed is not None and (tries >= 3 or not _passes(failed)):
            raise ValueError(f"job {job_id} failed: {' '.join(failed['message'].split())}")


def done_job(client: "Client", location: str | None, name: str) -> Any:
    """The job that `run_once` would find done, None if there is none."""
    attempt = 0
    job = find_job(client, name, location)
    while job is not None and (job.state != "DONE" or job.error_result):
        attempt += 1
        job = find_job(client, f"{name}_{attempt}", location)
    return job


def find_job(client: "Client", job_id: str, location: str | None) -> Any:
    """A job by its id, or None."""
    from google.api_core.exceptions import NotFound

    try:
        return client.get_job(job_id, location=location, timeout=PATIENCE)
    except NotFound:
        return None


def _wait(job: Any) -> dict[str, str] | None:
    """Waits for a job; what went wrong with it, or None."""
    from google.api_core.exceptions import GoogleAPICallError

    try:
        job.result()
    except GoogleAPICallError as error:
        if not job.error_result:
            raise
        return {"reason": "", "message": reason(error)} | job.error_result
    return job.error_result


def _passes(failed: dict[str, str]) -> bool:
    """Whether a failure is the service's own, which the next try need not meet."""
    return failed.get("reason") in ("backendError", "internalError", "rateLimitExceeded")
