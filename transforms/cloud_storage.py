"""Cloud Storage: gs:// addresses in, listings, bytes and whole objects out; retried, told plainly.

Through Beam's own client (its options and credentials), kept open a process. Beam's file system
opens a connection and asks for metadata anew for each object, lists a folder with all below it,
and neither reads a given generation nor creates an object only where there is none.
"""

import functools
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from transforms.file_info import FileInfo, StorageError
from transforms.parallel import THREADS, in_parallel

if TYPE_CHECKING:
    from google.cloud.storage import Blob, Client

SCHEME = "gs://"
FIRST_ANSWER = 30.0  # seconds until Cloud Storage counts as out of reach
PATIENCE = 180.0  # seconds of retries where it has answered before
_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two bytes
_FIELDS = "items(name,size,updated,generation,contentEncoding),nextPageToken"
_CODED = "gzip"
_BUFFER = 64 << 10
_AHEAD, _MOST_AHEAD = 2 * _BUFFER, 8 << 20  # a line that goes on costs no request of its own
_RANGE_NOT_SATISFIABLE = 416

_Given = TypeVar("_Given")
_lock = threading.Lock()
_answered: set[tuple[int, str]] = set()  # processes and servers that have heard of each other


def list_files(pattern: str) -> list[FileInfo]:
    """Objects that an address, a folder or a glob names, sorted; hidden ones are left out of it.

    `*` stands within a name, `**` also for folders. An object of that very name is taken, too,
    even if it holds characters of a glob.

    Raises:
        FileNotFoundError: No such bucket.
        PermissionError: Not with these credentials.
        StorageError: Cloud Storage does not answer.
        ValueError: An object that is decompressed on the way (Content-Encoding).
    """
    bucket, name = _split(pattern)
    found = {}
    if name and not name.endswith("/"):
        found = {each.path: each for each in [_stat(pattern)] if each is not None}
    glob = re.search(r"[*?\[]", name)
    if glob is None:
        prefix = name.rstrip("/") + "/" if name else ""
        listed = _listed(pattern, bucket, prefix)
        wanted = [each for each in listed if not _is_hidden(each.name[len(prefix) :])]
    else:
        matches = re.compile(FileSystem.translate_pattern(name)).match
        listed = _listed(pattern, bucket, name[: glob.start()])
        wanted = [each for each in listed if matches(each.name)]
    found |= {each.path: each for each in (_info(blob, bucket) for blob in wanted)}
    return [found[path] for path in sorted(found) if not path.endswith("/")]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or "/." in name


def stat(path: str) -> FileInfo:
    """Size, time and generation of an object now; FileNotFoundError if it is not there."""
    found = _stat(path)
    if found is None:
        raise FileNotFoundError(f"{path} is not there")
    return found


def _stat(path: str) -> FileInfo | None:
    bucket, name = _split(path)
    blob = _call(path, "read", lambda c: c.bucket(bucket).get_blob(name, **_ONCE))
    return None if blob is None else _info(blob, bucket)


def open_object(path: str, info: FileInfo | None = None) -> BinaryIO:
    """Opens the stored bytes of the object that was listed, else of what is there now.

    Every read asks for that generation: one that was replaced or removed meanwhile raises
    FileNotFoundError, half of the old and half of the new never come together.
    """
    return io.BufferedReader(_ObjectReader(info or stat(path)), _BUFFER)


def read(path: str) -> bytes | None:
    """All bytes of an object, its checksum compared, or None if there is none."""
    bucket, name = _split(path)
    try:
        return _call(
            path,
            "read",
            lambda c: c.bucket(bucket).blob(name).download_as_bytes(raw_download=True, **_ONCE),
        )
    except FileNotFoundError:
        return None


def write(path: str, made: io.BytesIO) -> None:
    """Writes an object as a whole; the server compares its checksum."""
    _upload(path, made)


def create(path: str, data: bytes) -> bool:
    """Writes an object if there is none, which the server decides; False if there is another."""
    from google.api_core.exceptions import PreconditionFailed

    try:
        _upload(path, io.BytesIO(data), if_generation_match=0)
    except PreconditionFailed:
        return read(path) == data  # ours, if only the first answer was lost
    return True


def _upload(path: str, made: io.BytesIO, **condition: int) -> None:
    bucket, name = _split(path)
    size = made.getbuffer().nbytes

    def upload(client: "Client") -> None:
        client.bucket(bucket).blob(name).upload_from_file(
            made, rewind=True, size=size, **_ONCE, **condition
        )

    _call(path, "written", upload)


def list_folder(folder: str) -> list[FileInfo]:
    """Objects directly in a folder."""
    bucket, name = _split(folder)
    prefix = name.rstrip("/") + "/" if name else ""
    listed = _listed(folder, bucket, prefix, delimiter="/")
    return [_info(each, bucket) for each in listed if each.name != prefix]


def delete(paths: list[str]) -> None:
    """Removes objects; one that is gone already is no error."""
    for _ in in_parallel(_delete, paths):
        pass


def _delete(path: str) -> None:
    bucket, name = _split(path)
    with suppress(FileNotFoundError):
        _call(path, "removed", lambda c: c.bucket(bucket).delete_blob(name, **_ONCE))


def _listed(path: str, bucket: str, prefix: str, **which: str) -> "list[Blob]":
    with _told(path, "listed"):
        found = _client().list_blobs(
            bucket, prefix=prefix, fields=_FIELDS, retry=_retry(), timeout=_TIMEOUT, **which
        )
        listed = list(found)
    _answered.add(_server())
    return listed


def _info(blob: "Blob", bucket: str) -> FileInfo:
    path = f"{SCHEME}{bucket}/{blob.name}"
    if blob.content_encoding == _CODED and not blob.name.endswith(".gz"):
        raise ValueError(
            f"{path} is stored with Content-Encoding gzip; give it a name that ends in .gz and no "
            "Content-Encoding"
        )
    return FileInfo(path, int(blob.size), blob.updated.timestamp(), int(blob.generation or 0))


def _split(path: str) -> tuple[str, str]:
    bucket, _, name = path.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise ValueError(f"{path} must be {SCHEME}BUCKET/NAME")
    return bucket, name


class _ObjectReader(io.RawIOBase):
    """One generation of an object, read in ranges; the more is read on end, the larger they are."""

    def __init__(self, info: FileInfo) -> None:
        super().__init__()
        self._info, self._at = info, 0
        self._held, self._held_from = b"", 0  # what was fetched ahead, and where it begins
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
        known = self._held[skip : skip + size] if 0 <= skip <= len(self._held) else b""
        if len(known) < size:
            known += self._fetch(self._at + len(known), size - len(known))
        self._at += size
        return known

    def _fetch(self, start: int, size: int) -> bytes:
        """The bytes from `start` on; some more are kept for the next read."""
        goes_on = start == self._held_from + len(self._held)
        self._ahead = min(2 * self._ahead, _MOST_AHEAD) if goes_on and start else _AHEAD
        stop = min(start + size + self._ahead, self._info.size)
        data = _read_range(self._info, start, stop)
        self._held, self._held_from = data[size:], start + size
        return data[:size]


def _read_range(info: FileInfo, start: int, stop: int) -> bytes:
    bucket, name = _split(info.path)
    which = {} if (start, stop) == (0, info.size) else {"start": start, "end": stop - 1}

    def download(client: "Client") -> bytes:
        blob = client.bucket(bucket).blob(name, generation=info.generation or None)
        checksum = None if which else "auto"
        data = blob.download_as_bytes(raw_download=True, checksum=checksum, **which, **_ONCE)
        if len(data) != stop - start:
            raise ConnectionError(f"{len(data)} bytes of {stop - start} arrived")
        return data

    return _call(info.path, "read", download)


_ONCE: Any = {"retry": None, "timeout": _TIMEOUT}  # retried as a whole by _call


def _call(path: str, done: str, call: Callable[["Client"], _Given]) -> _Given:
    """Calls with the client until it succeeds, or patience ends, or trying again is no use."""
    client = _client()
    with _told(path, done):
        given = _retry()(call)(client)
    _answered.add(_server())
    return given


def _retry() -> Any:
    from google.api_core.retry import Retry
    from google.cloud.storage.exceptions import DataCorruption
    from google.cloud.storage.retry import DEFAULT_RETRY

    def is_passing(error: Exception) -> bool:
        return isinstance(error, DataCorruption) or DEFAULT_RETRY._predicate(error)

    patience = PATIENCE if _server() in _answered else FIRST_ANSWER
    return Retry(is_passing, initial=0.2, maximum=20.0, multiplier=2.0, timeout=patience)


def _server() -> tuple[int, str]:
    return os.getpid(), os.environ.get("STORAGE_EMULATOR_HOST", "")


def _client() -> "Client":
    with _lock:  # the first one may wait for credentials, the others shall not do so, too
        return _made_client(*_server(), _acts_for(getattr(FileSystems, "_pipeline_options", None)))


@functools.lru_cache(maxsize=8)  # looking into options takes longer than reading an object
def _acts_for(options: PipelineOptions | None) -> str | None:
    """The account that the pipeline's options have the machine's own one act for."""
    return options and options.view_as(GoogleCloudOptions).impersonate_service_account


@functools.lru_cache(maxsize=8)
def _made_client(process: int, server: str, acts_for: str | None) -> "Client":
    """A client for this process, anonymous before an emulator and where there are no credentials.

    Beam itself looks for credentials five times in 24 seconds before it goes on without.
    """
    import google.auth
    import requests.adapters
    from apache_beam.io.gcp.gcsio import create_storage_client
    from google.auth.exceptions import DefaultCredentialsError

    known = not server
    if known:
        try:
            google.auth.default()
        except DefaultCredentialsError:
            known = False
    options = PipelineOptions([f"--impersonate_service_account={acts_for}"] if acts_for else [])
    client = create_storage_client(options, use_credentials=known)
    adapter = requests.adapters.HTTPAdapter(pool_connections=THREADS, pool_maxsize=2 * THREADS)
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, adapter)
    return client


@contextmanager
def _told(path: str, done: str) -> Iterator[None]:
    """Turns what the client raises into an OSError whose sentence says what to do."""
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption

    try:
        yield
    except exceptions.PreconditionFailed:
        raise
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise PermissionError(
            f"{path} may not be {done} with the credentials of this machine: have the role "
            "Storage Object User given to them, or run `gcloud auth application-default login`"
        ) from error
    except exceptions.NotFound as error:
        raise FileNotFoundError(
            f"{path} cannot be {done}: there is no bucket {_split(path)[0]}, or no such object"
        ) from error
    except DataCorruption as error:
        raise StorageError(
            f"{path} cannot be {done}: its bytes arrive damaged again and again"
        ) from error
    except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException, OSError) as e:
        raise StorageError(
            f"{path} cannot be {done}: Cloud Storage cannot be reached or refuses "
            f"({type(e.__cause__ or e).__name__}), try again later"
        ) from e
