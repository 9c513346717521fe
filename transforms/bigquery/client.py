"""Checks names of tables, opens BigQuery's clients, runs jobs once and translates errors."""

import datetime
import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, StorageError
from bert_embed.storage.gcs import LOST, error_here, is_lost, is_passing_login, passes

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, QueryJob, Table
    from requests import Response

SCHEME = "bq://"
_PACKAGES = ("google-cloud-bigquery", "google-cloud-bigquery-storage")
_DOMAIN = r"(?:[a-z0-9][a-z0-9.-]*\.[a-z]+:)?"  # of projects older than organizations
_PROJECT = rf"{_DOMAIN}[a-z][a-z0-9-]{{1,28}}[a-z0-9]"
_DATASET = r"[A-Za-z0-9_]{1,1024}"
_TABLE = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,1023}"
_DECORATOR = r"\d{4}|\d{6}|\d{8}|\d{10}"
NAME = re.compile(
    rf"(?P<project>{_PROJECT})[:.](?P<dataset>{_DATASET})\.(?P<table>{_TABLE})"
    rf"(?:\$(?P<partition>{_DECORATOR}))?"
)
_COLUMN = re.compile(
    r"(?!_TABLE_|_FILE_|_PARTITION|_ROW_TIMESTAMP|__ROOT__|_COLIDENTIFIER)[A-Z_][A-Z0-9_]{0,299}",
    re.IGNORECASE | re.ASCII,
)
PARTITION_TYPES = {4: "YEAR", 6: "MONTH", 8: "DAY", 10: "HOUR"}
_OK, _MOST_REPEATED = 200, 505
PATIENCE = 60.0  # seconds that a call, not a job, may take
FIRST_ANSWER = 30.0  # seconds until BigQuery counts as out of reach
_STREAM_BYTES = 64 << 20  # of a table for each requested stream
_MOST_STREAMS = 1000  # that the service gives
_MOST_TRIES = 3  # of a job that fails because of the service, for one of these reasons
PAUSE = 10.0  # seconds before the second try, twice before the third: limits are of ten seconds
_PASSING = (
    *("backendError", "internalError", "rateLimitExceeded"),
    *("jobBackendError", "jobInternalError", "jobRateLimitExceeded"),
)
_LIMITS = ("quotaExceeded", "rateLimitExceeded")  # which come as what is not allowed does
# Reasons whose messages describe names, permissions and quotas, never values.
_ABOUT_STATES = frozenset(
    [
        *("accessDenied", "billingNotEnabled", "billingTierLimitExceeded", "blocked", "duplicate"),
        *("notFound", "quotaExceeded", "rateLimitExceeded", "resourceInUse", "resourcesExceeded"),
        *("responseTooLarge", "stopped", "tableUnavailable", "jobRateLimitExceeded"),
    ]
)
_PLACED = re.compile(r".*? at \[\d+:\d+\]")  # what is wrong in the text of a query, and where
# Read by the service's own clients from the environment, except for Storage Read.
_REST_EMULATOR, _READ_EMULATOR = "BIGQUERY_EMULATOR_HOST", "BIGQUERY_STORAGE_EMULATOR_HOST"


@dataclass(frozen=True)
class TableName:
    """A table's name, safe within backticks; `partition` are the digits behind a `$`, or ""."""

    project: str
    dataset: str
    table: str
    partition: str = ""

    def __str__(self) -> str:
        """As on the command line, without the partition."""
        return f"{self.project}:{self.dataset}.{self.table}"

    @property
    def path(self) -> str:
        """As in SQL and for the client, without the partition."""
        return f"{self.project}.{self.dataset}.{self.table}"

    @property
    def destination(self) -> str:
        """As for a load job, with the partition."""
        return self.path + (f"${self.partition}" if self.partition else "")


def table_name(text: str, setting: str) -> TableName:
    """Reads `project:dataset.table`, `project.dataset.table` or `bq://project.dataset.table`.

    >>> table_name("my-project:texts.news$20260131", "output_table").destination
    'my-project.texts.news$20260131'
    """
    match = NAME.fullmatch(text.removeprefix(SCHEME))
    if match is None:
        raise InputError(
            f"{setting} {text!r} is not a table: write project:dataset.table, letters, digits and "
            "_ only (a project and a table may hold dashes)",
            setting,
        )
    name = TableName(*(part or "" for part in match.groups()))
    if name.partition:
        try:  # as many of the format's codes as there are digits for
            datetime.datetime.strptime(name.partition, "%Y%m%d%H"[: len(name.partition) - 2])
        except ValueError:
            why = f"${name.partition} is no {PARTITION_TYPES[len(name.partition)].lower()}"
            raise InputError(f"{setting} {text!r}: {why}", setting) from None
    return name


def check_column(name: str, setting: str) -> str:
    """Returns the name of a column; InputError, which names the setting, if it needs quotes."""
    if _COLUMN.fullmatch(name) is None:
        raise InputError(
            f"{setting} {name!r} is not a column of BigQuery: letters, digits and _ only, and no "
            "name that begins as those of BigQuery's own columns, such as _TABLE_",
            setting,
        )
    return name


class NoCredentials(InputError):
    """There is no account with which BigQuery can be asked."""


@contextmanager
def bigquery_client(project: str) -> Iterator["Client"]:
    """Opens a client whose project runs the jobs and pays; an emulator needs no credentials."""
    with requires("BigQuery", *_PACKAGES):
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import bigquery

    credentials = AnonymousCredentials() if os.environ.get(_REST_EMULATOR) else None
    open_client = functools.partial(bigquery.Client, project=project, credentials=credentials)
    try:
        try:
            client = open_client()
        except GoogleAuthError:  # a metadata server may be slow once
            client = open_client()
    except GoogleAuthError as error:
        raise NoCredentials(
            "BigQuery needs credentials: run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    session: Any = client._http
    session.request = _repeated(session.request)
    try:
        yield client
    finally:
        client.close()


def _repeated(request: Callable[..., "Response"]) -> Callable[..., "Response"]:
    """Sends requests again where the client does not: credentials, and answers of a proxy."""
    from google.api_core.exceptions import GoogleAPICallError, from_http_response
    from google.api_core.retry import Retry

    def is_passing(error: Exception) -> bool:
        return isinstance(error, GoogleAPICallError) or is_lost(error) or is_passing_login(error)

    def answer(method: str, url: str, *args: Any, **kwargs: Any) -> "Response":
        response = request(method, url, *args, **kwargs)
        if response.status_code > _MOST_REPEATED:  # by the client
            raise from_http_response(response)
        is_json = response.status_code == _OK and method != "DELETE" and "/upload/" not in url
        if is_json and not response.content.rstrip().endswith(b"}"):
            raise ConnectionError("the answer is no JSON, or cut short")
        return response

    def repeated(*args: Any, **kwargs: Any) -> "Response":
        patience = FIRST_ANSWER if kwargs.get("timeout") == FIRST_ANSWER else PATIENCE
        retry = Retry(is_passing, initial=0.2, timeout=patience)
        result: Response = retry(answer)(*args, **kwargs)
        return result

    return repeated


@contextmanager
def read_client() -> Iterator[Any]:
    """Opens a client of the Storage Read API, or of an emulator without encryption."""
    with requires("BigQuery", *_PACKAGES):
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


def open_streams(
    table: TableName, columns: Sequence[str], project: str, size: int, snapshot: float | None = None
) -> list[str]:
    """Streams of a table of `size` bytes, of the rows at `snapshot` (seconds since 1970) or now."""
    what = f"table {table} cannot be read"
    with translate_errors(what, host=_read_host()), read_client() as client:
        from google.cloud.bigquery_storage_v1 import types

        session = types.ReadSession(
            table=f"projects/{table.project}/datasets/{table.dataset}/tables/{table.table}",
            data_format=types.DataFormat.ARROW,
        )
        session.read_options.selected_fields = list(columns)
        if snapshot is not None:
            moment = datetime.datetime.fromtimestamp(snapshot, datetime.UTC)
            session.table_modifiers.snapshot_time = moment
        opened = client.create_read_session(
            parent=f"projects/{project}",
            read_session=session,
            max_stream_count=min(_MOST_STREAMS, 1 + size // _STREAM_BYTES),
            timeout=PATIENCE,
            retry=_read_retry(),
        )
    return [stream.name for stream in opened.streams]


def stream_rows(stream: str, what: str, *settings: str) -> Iterator[pa.RecordBatch]:
    """The rows of a stream; the client resumes an interrupted stream where it was."""
    said = f"{what} cannot be read"
    with translate_errors(said, *settings, host=_read_host()), read_client() as client:
        for page in client.read_rows(stream, retry=_read_retry()).rows().pages:
            yield page.to_arrow()


def _read_retry() -> Any:
    """What the Storage Read API's client does of itself, but not for ten minutes, or a day."""
    from google.api_core import exceptions, retry

    return retry.Retry(retry.if_exception_type(exceptions.ServiceUnavailable), timeout=PATIENCE)


def _read_host() -> str:
    return os.environ.get(_READ_EMULATOR) or "bigquerystorage.googleapis.com"


@contextmanager
def translate_errors(what: str, *settings: str, host: str | None = None) -> Iterator[None]:
    """Translates the errors of BigQuery's clients into a sentence that begins with `what`.

    `settings` are those that it names, `host` is the one that is asked, if not that of most calls.
    """
    with requires("BigQuery", *_PACKAGES):
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except exceptions.NotFound as error:
        raise InputError(
            f"{what}: there is no such project, dataset or table ({reason(error)})", *settings
        ) from error
    except (exceptions.Forbidden, exceptions.Unauthorized, exceptions.PermissionDenied) as error:
        said = reason(error)
        if (kind := _kind(error)) in _LIMITS and kind in _PASSING:
            raise StorageError(f"{what}: {said}, try again later") from error
        if kind not in _LIMITS:
            said = f"not allowed with the credentials of this machine ({said})"
        raise InputError(f"{what}: {said}", *settings) from error
    except exceptions.GoogleAPICallError as error:
        # A traceback would show what `reason` omits.
        if passes(error.code) and not isinstance(error, exceptions.Conflict):
            raise StorageError(f"{what}: {reason(error)}, try again later") from None
        raise InputError(f"{what}: {reason(error)}", *settings) from None
    except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException, *LOST) as error:
        cause = error.__cause__ or error
        host = host or os.environ.get(_REST_EMULATOR) or "bigquery.googleapis.com"
        said = f"BigQuery at {host} cannot be reached ({type(cause).__name__})"
        if here := error_here(error):
            said = f"{here.strerror} on this machine"
        elif _kind(cause) in _LIMITS:
            raise StorageError(f"{what}: {reason(cause)}, try again later") from None
        raise StorageError(f"{what}: {said}, try again later") from error


def reason(error: Any) -> str:
    """The service's message of an error, on one line; for a query without the text of a row."""
    errors, job = _errors(error), getattr(error, "query_job", None)
    if job is not None:
        return job_failure(job, errors[0] if errors else {})
    said = next((one["message"] for one in errors if one.get("message")), None)
    return " ".join((said or str(getattr(error, "message", error))).split())


def _errors(error: Any) -> list[dict[str, str]]:
    return [one for one in getattr(error, "errors", None) or () if isinstance(one, dict)]


def _kind(error: Any) -> str:
    """The service's word for an error, such as `accessDenied`."""
    return next((one.get("reason", "") for one in _errors(error)), "")


def job_failure(job: Any, error: Mapping[str, str]) -> str:
    """Says that a job failed, and why; the service's message only if it cannot quote a row."""
    kind = error.get("reason") or "error"
    message = " ".join((error.get("message") or "").split())
    placed = _PLACED.match(message)
    if kind not in _ABOUT_STATES:
        show = f"bq show --job --format=prettyjson {job.project}:{job.location}.{job.job_id}"
        show = "bq query --dry_run" if getattr(job, "dry_run", None) else show
        message = f"{kind} (its message may quote a row and is not shown; `{show}` shows it)"
    if placed is not None:
        message = placed[0]
    return message if getattr(job, "dry_run", None) else f"job {job.job_id} failed: {message}"


def first_request() -> dict[str, Any]:
    """Settings of a command's first request, which fails soon where BigQuery is out of reach."""
    from google.cloud.bigquery import DEFAULT_RETRY

    return {"retry": DEFAULT_RETRY.with_timeout(FIRST_ANSWER), "timeout": FIRST_ANSWER}


def get_table(client: "Client", name: TableName, **request: Any) -> "Table | None":
    """The table, or None if it or its dataset does not exist."""
    from google.api_core.exceptions import NotFound

    try:
        return client.get_table(name.path, **({"timeout": PATIENCE} | request))
    except NotFound:
        return None


def run_once(
    client: "Client",
    location: str | None,
    name: str,
    start: Callable[[str], Any],
    is_void: Callable[[Any], bool],
    disposition: str,
    first: int = 0,
    tries: int = _MOST_TRIES,
) -> tuple[Any, bool]:
    """Runs a job once, by a name that BigQuery accepts once; gives it, and whether it ended now.

    A job of that name that is still running is waited for; it is the one that was asked for if it
    has the same disposition. After a job that failed, or whose result `is_void`, the next attempt
    appends a number to the name, `first` at least; so it does where an upload that broke off has
    the name, but is no job.
    """
    from google.api_core.exceptions import Conflict, Forbidden

    jobs = named_jobs(client, location, name, first)
    ended = jobs and jobs[-1].state != "DONE" and _wait(jobs[-1]) is None
    if ended and jobs[-1].write_disposition == disposition:
        return jobs[-1], True
    done, attempt = last_done(jobs), first + len(jobs)
    if done is not None and not is_void(done):
        return done, False
    while True:
        job_id = _attempt_name(name, attempt)
        tries -= 1
        try:
            job = start(job_id)
        except Conflict:  # another process started it
            job = _started(client, location, job_id)
            if job is None:
                later = attempt + 1, tries + 1
                return run_once(client, location, name, start, is_void, disposition, *later)
        except Forbidden as error:  # of an upload: other requests are repeated by the client
            if not tries or _kind(error) not in _PASSING:
                raise
            job = None
        if job is not None:
            failed = _wait(job)
            if failed is None:
                return job, True
            if not tries or failed.get("reason") not in _PASSING:
                raise InputError(job_failure(job, failed))
            attempt += 1
        time.sleep(PAUSE * (_MOST_TRIES - tries))


def _started(client: "Client", location: str | None, job_id: str) -> Any:
    """A job that another process started; None if there is none, as after a broken upload."""
    from google.api_core.exceptions import NotFound

    for _ in range(_MOST_TRIES):
        with suppress(NotFound):
            return client.get_job(job_id, location=location, timeout=PATIENCE)
        time.sleep(PAUSE)  # its file may be on its way
    return None


def named_jobs(client: "Client", location: str | None, name: str, first: int = 0) -> list[Any]:
    """The jobs that `run_once` started under a name, in order; BigQuery keeps them six months."""
    from google.api_core.exceptions import NotFound

    jobs: list[Any] = []
    try:
        while True:
            job_id = _attempt_name(name, first + len(jobs))
            jobs.append(client.get_job(job_id, location=location, timeout=PATIENCE))
    except NotFound:
        return jobs


def last_done(jobs: Sequence[Any]) -> Any:
    """The last of these jobs that has succeeded, None if there is none."""
    done = (job for job in reversed(jobs) if job.state == "DONE" and not job.error_result)
    return next(done, None)


def _attempt_name(name: str, attempt: int) -> str:
    return f"{name}_{attempt}" if attempt else name


def dry_query(client: "Client", query: str) -> "QueryJob":
    """A query that is checked, not run: its job has the location and the columns."""
    from google.cloud.bigquery import QueryJobConfig

    config = QueryJobConfig(dry_run=True, use_query_cache=False)
    return client.query(query, job_config=config, job_retry=None, **first_request())


def _wait(job: Any) -> dict[str, str] | None:
    """Waits for a job; returns its error, or None."""
    from google.api_core.exceptions import GoogleAPICallError

    try:
        job.result()
    except GoogleAPICallError as error:
        if not job.error_result:
            raise
        return {"reason": "", "message": reason(error)} | job.error_result
    return job.error_result
