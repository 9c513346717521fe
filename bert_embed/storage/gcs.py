"""Lists, reads and writes objects of Cloud Storage, each checked; says which errors of stores pass.

The only client of Cloud Storage: one a process, kept open. Beam's file system opens a connection
and requests metadata anew for each object, lists a folder with all below it, and can neither read a
given generation nor create an object only if it does not exist.
"""

import errno
import functools
import io
import json
import os
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from bert_embed.base.environment import requires
from bert_embed.base.errors import FULL_DISK, InputError, StorageError, is_passing
from bert_embed.base.threads import THREADS
from bert_embed.storage.local import FileInfo, exists, split_address

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from google.cloud.storage import Blob, Client


SCHEME = "gs://"
FIRST_ANSWER = 30.0  # seconds until Cloud Storage counts as out of reach
_ANONYMOUS = 5.0  # likewise, on a machine without credentials, which rarely means to use it
PATIENCE = 180.0  # seconds of retries where it has answered before
LOOK_AT_BUCKET = "storage.buckets.get"  # what Beam does before it stages files there
QUICK = (2.0, 3.0)  # seconds of a question whose answer a run can do without
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two bytes
_FIELDS = "items(name,size,updated,generation,contentEncoding,crc32c),nextPageToken"
_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PACKAGE = "google-cloud-storage"
_CODED = "gzip"
_BUFFER = 64 << 10
# Errors of the local file that a download goes to.
_OF_THIS_MACHINE = (errno.EACCES, errno.EROFS, *FULL_DISK)
_AHEAD, _MOST_AHEAD = 2 * _BUFFER, 8 << 20  # the rest of a line costs no request of its own

_Result = TypeVar("_Result")
_lock = threading.Lock()
_answered: set[tuple[int, str]] = set()  # processes and the servers that answered them


def find(path: str) -> FileInfo | None:
    """Size, time and generation of an object now, or None if it does not exist."""
    bucket, name = split_address(path)

    def look(client: "Client") -> FileInfo | None:
        blob = client.bucket(bucket).get_blob(name, **_ONCE)
        return None if blob is None else _info(blob, bucket)

    return _call(path, "read", look)


def listed(
    path: str, prefix: str, wanted: Callable[[str], object], direct: bool = False, most: int = 0
) -> list[FileInfo]:
    """The objects of the bucket of `path` whose names begin with `prefix` and are `wanted`.

    None that is `direct` is below a further folder; `most` are how many to ask for, 0 all.
    """
    bucket, infos = split_address(path)[0], list[FileInfo]()
    which: dict[str, Any] = {"prefix": prefix, "fields": _FIELDS, "max_results": most or None}
    which |= {"delimiter": "/", "page_token": None} if direct else {"page_token": None}
    while True:

        def page(client: "Client") -> tuple[list[FileInfo], str | None]:
            pages = client.list_blobs(bucket, **which, **_ONCE)
            blobs = filter(lambda blob: wanted(blob.name), next(pages.pages))
            return [_info(blob, bucket) for blob in blobs], pages.next_page_token

        found, which["page_token"] = _call(path, "listed", page)
        infos += found
        if which["page_token"] is None or most:
            return infos


def _object(client: "Client", path: str, generation: int | None = None) -> "Blob":
    """The client's object of an address, without a request."""
    bucket, name = split_address(path)
    return client.bucket(bucket).blob(name, generation=generation)


def checksum(path: str) -> str:
    """The CRC32C that the store keeps of an object, in base64."""
    info = find(path)
    if info is None:
        raise FileNotFoundError(f"{path} does not exist")
    return info.etag


def open_object(path: str, info: FileInfo) -> BinaryIO:
    """Opens the stored bytes of the generation that was found; those of two never mix."""
    return io.BufferedReader(ObjectReader(info, _read_range), _BUFFER)


def read_version(path: str) -> tuple[bytes | None, int]:
    """All bytes of an object, checksum compared, and its generation; None and 0 of none."""

    def download(client: "Client") -> tuple[bytes, int]:
        blob = _object(client, path)
        return _bytes_of(blob), int(blob.generation or 0)

    try:
        return _call(path, "read", download)
    except FileNotFoundError:
        return None, 0


def _bytes_of(blob: "Blob", **which: Any) -> bytes:
    """The stored bytes, or some; ConnectionError if another server than the store answers."""
    data = blob.download_as_bytes(raw_download=True, **which, **_ONCE)
    if blob.crc32c is None and blob.generation is None:
        raise ConnectionError("the answer is not that of the store")
    return data


def write(path: str, buffer: io.BytesIO, **condition: int) -> None:
    """Writes an object as a whole, under a condition; the server compares its checksum."""
    to: Any = {"rewind": True, "size": buffer.getbuffer().nbytes} | condition | _ONCE
    _call(path, "written", lambda client: _object(client, path).upload_from_file(buffer, **to))


def create(path: str, data: bytes) -> bool:
    """Creates an object if it does not exist, which the server decides; False if another exists."""
    return write_over(path, data, 0)


def write_over(path: str, data: bytes, version: int) -> bool:
    """Writes an object if its generation is still this one, 0 for none; False if it is not."""
    with requires(SCHEME, _PACKAGE):
        from google.api_core.exceptions import PreconditionFailed

    try:
        write(path, io.BytesIO(data), if_generation_match=version)
    except StorageError as error:
        if not isinstance(error.__cause__, PreconditionFailed):
            raise
        present, now = read_version(path)
        if now == version:
            raise  # the store refuses for another reason
        return present == data  # True: it is ours, and the first answer was lost
    return True


def delete(path: str) -> None:
    """Removes an object; one that does not exist is no error."""
    with suppress(FileNotFoundError):
        _call(path, "removed", lambda client: _object(client, path).delete(**_ONCE))


def _info(blob: "Blob", bucket: str) -> FileInfo:
    return FileInfo(
        f"{SCHEME}{bucket}/{blob.name}",
        int(blob.size),
        blob.updated.timestamp(),
        int(blob.generation or 0),
        blob.crc32c or "",
        packed=blob.content_encoding == _CODED and not blob.name.endswith(".gz"),
    )


class ObjectReader(io.RawIOBase):
    """Reads one version of an object in ranges, which grow while it is read in order."""

    def __init__(self, info: FileInfo, read_range: Callable[[FileInfo, int, int], bytes]) -> None:
        super().__init__()
        self._info, self._at, self._read_range = info, 0, read_range
        self._held, self._held_from = b"", 0  # bytes fetched ahead, and where they begin
        self._ahead = _AHEAD

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._info.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._info.size - self._at)
        size = left if size is None or size < 0 else min(size, left)
        skip = self._at - self._held_from
        data = self._held[skip : skip + size] if 0 <= skip <= len(self._held) else b""
        if len(data) < size:
            data += self._fetch(self._at + len(data), size - len(data))
        self._at += size
        return data

    def _fetch(self, start: int, size: int) -> bytes:
        """The bytes from `start` on; some more are kept for the next read."""
        in_order = start == self._held_from + len(self._held)
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if in_order and start else _AHEAD
        stop = min(start + size + self._ahead, self._info.size)
        data = self._read_range(self._info, start, stop)
        # The end of an object is asked for again: Parquet's footer, and what says how long it is.
        used = 0 if stop == self._info.size and len(data) <= _BUFFER else size
        self._held, self._held_from = data[used:], start + used
        return data[:size]


def _read_range(info: FileInfo, start: int, stop: int) -> bytes:
    which = {} if (start, stop) == (0, info.size) else {"start": start, "end": stop - 1}

    def download(client: "Client") -> bytes:
        blob = _object(client, info.path, info.generation or None)
        data = _bytes_of(blob, checksum=None if which else "auto", **which)
        if len(data) != stop - start:
            raise ConnectionError(f"{len(data)} bytes of {stop - start} arrived")
        return data

    return _call(info.path, "read", download)


_ONCE: Any = {"retry": None, "timeout": _TIMEOUT}  # retried as a whole by _call


def _call(path: str, done: str, call: Callable[["Client"], _Result]) -> _Result:
    """Calls with the client, and again after errors that pass, until the time for retries is up."""
    with translate_errors(path, done):
        result = _retry()(lambda: call(_client()))()
    _answered.add(_server())
    return result


def _retry() -> Any:
    from google.api_core.exceptions import Forbidden, GoogleAPICallError, Unauthorized
    from google.api_core.retry import Retry
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption
    from google.cloud.storage.retry import DEFAULT_RETRY

    is_known = _is_known()

    def is_passing(error: Exception) -> bool:
        nonlocal is_known
        if isinstance(error, Forbidden | Unauthorized | GoogleAuthError) and not is_known:
            is_known = True  # once: the next refusal is one of these credentials
            return _is_known(looks=True)
        if isinstance(error, GoogleAPICallError) and passes(error.code):
            return True
        # The others: what answers is no JSON, or not as the client knows it.
        kinds = (DataCorruption, json.JSONDecodeError, AttributeError, LookupError, TypeError)
        if isinstance(error, kinds) or is_lost(error) or is_passing_login(error):
            return True
        return DEFAULT_RETRY._predicate(error)

    patience = PATIENCE if _server() in _answered else FIRST_ANSWER
    if patience == FIRST_ANSWER and not is_known:
        patience = min(FIRST_ANSWER, _ANONYMOUS)
    return Retry(is_passing, initial=0.2, maximum=20.0, multiplier=2.0, timeout=patience)


def _server() -> tuple[int, str]:
    return os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", "")


def _client() -> "Client":
    acts_as = _acts_as()
    with _lock:
        process, server = _server()
        return _new_client(process, server, acts_as, *(() if server else _credentials(process)))


def _acts_as() -> str | None:
    beam = sys.modules.get("apache_beam.io.filesystems")
    return _impersonated(beam and getattr(beam.FileSystems, "_pipeline_options", None))


@functools.lru_cache(maxsize=8)  # looking into options takes longer than reading an object
def _impersonated(options: "PipelineOptions | None") -> str | None:
    """The service account that the pipeline's options request to act as."""
    if options is None:
        return None
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    return options.view_as(GoogleCloudOptions).impersonate_service_account


@functools.lru_cache(maxsize=8)
def _new_client(
    process: int,
    server: str,
    acts_as: str | None,
    credentials: Any = None,
    project: str | None = None,
) -> "Client":
    """A client for this process, anonymous with an emulator and where there are no credentials."""
    # Our own, because Beam's would look for credentials five times in 24 seconds.
    with requires(SCHEME, _PACKAGE):
        import requests.adapters
        from google.cloud import storage

    del process, server  # keys of the cache
    credentials = _acting(credentials, acts_as)
    if credentials is None:
        client = storage.Client.create_anonymous_client()
    else:  # reading needs no project, but the client requires a name
        client = storage.Client(project=project or "none", credentials=credentials)
    # For traces alone it would ask for the bucket itself, in a thread; many may not read that.
    client._bucket_metadata_cache = None
    adapter = requests.adapters.HTTPAdapter(pool_connections=THREADS, pool_maxsize=2 * THREADS)
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, adapter)
    return client


def _acting(credentials: Any, acts_as: str | None) -> Any:
    from google.auth import impersonated_credentials

    if credentials is None or not acts_as:
        return credentials
    *delegates, account = acts_as.split(",")  # each may act as the next one
    return impersonated_credentials.Credentials(credentials, account, [_SCOPE], delegates=delegates)


def held_permissions(bucket: str, wanted: Sequence[str]) -> frozenset[str] | None:
    """Those of some permissions on a bucket that this account has; None: the store does not say."""
    from google.api_core.exceptions import Forbidden, GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    once: Any = {"timeout": QUICK, "retry": None}
    with suppress(GoogleAPIError, GoogleAuthError, RequestException, OSError):
        asked = _client().bucket(bucket)
        try:
            return frozenset(asked.test_iam_permissions(list(wanted), **once))
        except GoogleAPIError:  # of a store that is not asked so
            try:
                asked.reload(**once)
            except Forbidden:
                return frozenset(wanted) - {LOOK_AT_BUCKET}
    return None


def service_session() -> Any:
    """A session that asks other services of Google as this account; None without credentials."""
    from google.auth.credentials import with_scopes_if_required
    from google.auth.transport.requests import AuthorizedSession

    with _lock:
        credentials = _acting(_credentials(os.getpid())[0], _acts_as())
    if credentials is None:
        return None
    return AuthorizedSession(with_scopes_if_required(credentials, [_SCOPE]), max_refresh_attempts=1)


_found: dict[tuple[int, str | None], tuple[Any, str | None]] = {}  # credentials and project
_missed: dict[tuple[int, str | None], float] = {}  # where none were found, when to look again
_SHARE = 10  # of the time that passes, the part that may be spent on looking where there are none


def _credentials(process: int, looks: bool = False) -> tuple[Any, str | None]:
    """The credentials of this machine, or of a file that is named, and their project; None if none.

    What was found is kept. None are where a metadata server does not answer in time, so these are
    looked for again: when a request is refused, which `looks`, and else once in a while, as it
    takes up to twelve seconds where there is no such server.
    """
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    named = os.environ.get(_CREDENTIALS)
    key, begun = (process, named), time.monotonic()
    if key in _found or (not looks and begun < _missed.get(key, 0.0)):
        return _found.get(key, (None, None))
    try:
        _found[key] = google.auth.default()
    except DefaultCredentialsError as error:
        if named:
            exists(named)  # StorageError: its disk does not answer
            raise InputError(f"{_CREDENTIALS}: {error}") from error
        ended = time.monotonic()
        _missed[key] = ended + _SHARE * (ended - begun)
    return _found.get(key, (None, None))


@contextmanager
def translate_errors(path: str, done: str) -> Iterator[None]:
    """Turns what the client raises into an OSError whose sentence says what to do."""
    with requires(SCHEME, _PACKAGE):
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.storage.exceptions import DataCorruption

    try:
        yield
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise PermissionError(f"{path} may not be {done} {_refusal(error)}") from error
    except exceptions.NotFound as error:
        raise FileNotFoundError(
            f"{path} cannot be {done}: there is no bucket {split_address(path)[0]}, or no such "
            "object"
        ) from error
    except DataCorruption as error:
        damaged = f"{path} cannot be {done}: its bytes arrive damaged again and again"
        raise StorageError(damaged) from error
    except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException, OSError) as e:
        if isinstance(e, StorageError) or getattr(e, "errno", None) in _OF_THIS_MACHINE:
            raise
        if re.search("requester pays|UserProjectMissing", str(e)):
            raise PermissionError(
                f"{path} cannot be {done}: requesters pay in this bucket, which is not supported; "
                "copy the files to one of yours (gcloud storage cp --billing-project=PROJECT)"
            ) from e
        why = f"Cloud Storage cannot be reached or refuses ({type(e.__cause__ or e).__name__})"
        if here := error_here(e):
            why, advice = f"{here.strerror} on this machine", "try again later"
        elif _is_known():
            advice = "try again later"
        else:
            advice = "and there are no credentials on this machine: run `gcloud auth "
            advice += f"application-default login`, or set {_CREDENTIALS}"
        raise StorageError(f"{path} cannot be {done}: {why}, {advice}") from e


def _refusal(error: Any) -> str:
    message = str(error.message)
    if "retention policy" in message or " hold" in message:
        return (
            "because a retention policy of the bucket, or a hold, keeps what is there, and a run "
            "changes its files: write to a bucket without"
        )
    missing = re.search(r"storage\.\w+\.\w+", message)
    lacks = f", which lack {missing[0]}" if missing else ""
    return (
        f"with the credentials of this machine{lacks}: have the role Storage Object User given to "
        "them, or run `gcloud auth application-default login`"
    )


def _is_known(looks: bool = False) -> bool:
    """Whether this machine has credentials, or an emulator, which asks for none."""
    process, server = _server()
    if server:
        return True
    with _lock:  # only one thread waits for credentials
        return _credentials(process, looks)[0] is not None


@contextmanager
def store_errors() -> Iterator[None]:
    """Raises errors of Cloud Storage as InputError with the same message."""
    try:
        yield
    except OSError as error:
        if error.errno is not None or is_passing(error):  # of this machine, such as a full disk
            raise
        raise InputError(str(error)) from error


# Of this machine: its disks, and its limits of files and memory.
_HERE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
# Of a connection: what clients leave as Python raises it, that of DNS and TLS included.
LOST = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_NO_WAY = (
    *(errno.EADDRNOTAVAIL, errno.EAGAIN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR),
    *(errno.ENETDOWN, errno.ENETUNREACH),
)
_LATER = (408, 409, 425, 429)
_NOT_KNOWN, _OTHER_VERSION = 501, 505  # what the server does not do, however often it is asked


def passes(status: int | None) -> bool:
    """Whether a request may be answered later that is answered with this status now.

    >>> passes(503), passes(520), passes(409), passes(404), passes(None)
    (True, True, True, False, False)
    """
    if status is None or status < 500:
        return status in _LATER
    return status not in (_NOT_KNOWN, _OTHER_VERSION)


def is_lost(error: BaseException) -> bool:
    """Whether an error of Python is one of a connection, or of this machine, that may pass."""
    return isinstance(error, LOST) or getattr(error, "errno", None) in (*_HERE, *_NO_WAY)


def error_here(error: BaseException | None) -> OSError | None:
    """The error of this machine behind one of a client, such as too many open files."""
    return next((one for one in _causes(error) if getattr(one, "errno", None) in _HERE), None)


def _causes(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_passing_login(error: BaseException) -> bool:
    """Whether Google's credentials could not be renewed at this moment, by an error of its library.

    That of a metadata server that does not answer is wrapped, and no longer says that it passes;
    that of an account to act as has the answer alone.
    """
    from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

    if not isinstance(error, GoogleAuthError):
        return False
    if error.retryable or isinstance(error, TransportError):
        return True
    if not isinstance(error, RefreshError):
        return False
    return isinstance(error.__cause__, TransportError) or any(
        passes(_code_in(said)) for said in error.args[1:]
    )


def _code_in(answer: object) -> int | None:
    """The status that the body of an answer of Google's services names."""
    try:
        code = json.loads(str(answer))["error"]["code"]
    except (LookupError, TypeError, ValueError):
        return None
    return code if isinstance(code, int) else None
