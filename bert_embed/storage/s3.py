"""Lists, reads and writes objects of Amazon S3, and of what speaks its protocol.

Beam's file system for S3 neither reads one version of an object nor creates one only if it does not
exist, and waits up to ten minutes for a request. Only its options are used here.
"""

import io
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, StorageError
from bert_embed.base.threads import THREADS
from bert_embed.storage.gcs import FIRST_ANSWER, PATIENCE, ObjectReader, error_here, is_lost, passes
from bert_embed.storage.local import FileInfo, crc32c_of_bytes, split_address

SCHEME = "s3://"
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 60}  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 20.0  # seconds between attempts
_GIVEN_UP = 5.0  # seconds of retries after one request was given up, as a failing run has more
_LOOKED_FOR = 10.0  # seconds in which a server of credentials may answer late, if there is one
# Of answers, whatever their status: too many requests, and others that were in the way.
_PASSING = re.compile(
    "Throttl|SlowDown|TooManyRequests|LimitExceeded|RequestTimeout(?!Too)|Aborted"
)
_OLD = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")  # which are renewed
_REFUSED, _GONE, _CHANGED, _UNKNOWN = (401, 403), 404, 412, 501

_Result = TypeVar("_Result")
_lock = threading.Lock()
_answered: dict[tuple[int, str], bool] = {}  # of processes and servers, the last request
_clients: dict[tuple[int, str, PipelineOptions | None], Any] = {}  # with credentials


def find(path: str) -> FileInfo | None:
    """Size, time and ETag of an object now, or None if it does not exist."""
    # As listings tell it: a request for the object itself rounds the time to seconds.
    first = next(_listed(path, split_address(path)[1], MaxKeys=1), None)
    return first if first is not None and first.path == path else None


def listed(
    path: str, prefix: str, wanted: Callable[[str], object], direct: bool = False, most: int = 0
) -> list[FileInfo]:
    """The objects of the bucket of `path` whose names begin so, as `gcs.listed`."""
    infos = _listed(path, prefix, **({"Delimiter": "/"} if direct else {}))
    infos = (info for info in infos if wanted(split_address(info.path)[1]))
    return list(itertools.islice(infos, most or None))


def _listed(path: str, prefix: str, **which: Any) -> Iterator[FileInfo]:
    """The objects of the bucket of `path` whose names begin with `prefix`, in order."""
    bucket = split_address(path)[0]
    more = True
    while more:

        def listing(client: Any) -> dict[str, Any]:
            answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, **which)
            return _from_store(answer, "IsTruncated")

        page = _call(path, "listed", listing)
        for item in page.get("Contents", ()):
            place, modified = f"{SCHEME}{bucket}/{item['Key']}", item["LastModified"].timestamp()
            yield FileInfo(place, item["Size"], modified, etag=item.get("ETag", ""))
        more = page.get("IsTruncated", False)
        which["ContinuationToken"] = page.get("NextContinuationToken")


def _from_store(answer: dict[str, Any], always: str) -> dict[str, Any]:
    """An answer; ResponseParserError if it lacks what is always in it, as that of a proxy does."""
    from botocore.parsers import ResponseParserError

    if always not in answer:
        raise ResponseParserError(f"the answer is not that of the store, it has no {always}")
    return answer


def open_object(path: str, info: FileInfo) -> BinaryIO:
    """Opens the stored bytes that were found; FileNotFoundError once they are replaced."""
    return io.BufferedReader(ObjectReader(info, _read_range), 64 << 10)


def _read_range(info: FileInfo, start: int, stop: int) -> bytes:
    which = {"IfMatch": info.etag} if info.etag else {}
    if (start, stop) != (0, info.size):  # no range is of an empty object
        which["Range"] = f"bytes={start}-{stop - 1}"
    data, _ = _get(info.path, **which)
    if len(data) != stop - start:
        raise FileNotFoundError(f"{info.path} has another size than was listed")
    return data


def _get(path: str, **which: str) -> tuple[bytes, str]:
    bucket, name = split_address(path)

    def get(client: Any) -> tuple[bytes, str]:
        answer = _from_store(client.get_object(Bucket=bucket, Key=name, **which), "ETag")
        return answer["Body"].read(), answer["ETag"]

    return _call(path, "read", get)


def read_version(path: str) -> tuple[bytes | None, str]:
    """All bytes of a file, and its ETag; None and "" if it does not exist."""
    try:
        return _get(path)
    except FileNotFoundError:
        return None, ""


def checksum(path: str) -> str:
    """The CRC32C of a file's bytes, in base64; reads them, as not every store keeps it."""
    return crc32c_of_bytes(_get(path)[0])


def write(path: str, buffer: io.BytesIO, **condition: str) -> None:
    """Writes a file as a whole, under a condition; StorageError if it cannot be written."""
    bucket, name = split_address(path)
    what = {"Bucket": bucket, "Key": name, "Body": buffer.getvalue(), **condition}
    _call(path, "written", lambda client: _from_store(client.put_object(**what), "ETag"))


def create(path: str, data: bytes) -> bool:
    """Creates a file if it does not exist, which the server decides; False if another exists."""
    if read_version(path)[0] is not None:  # a server that knows no condition may ignore it
        return False
    return write_over(path, data, "")


def write_over(path: str, data: bytes, version: str) -> bool:
    """Writes a file if its ETag is still this one, "" for none; False if it is not."""
    try:
        write(path, io.BytesIO(data), **{"IfMatch": version} if version else {"IfNoneMatch": "*"})
    except OSError as error:
        status = _status(error.__cause__)
        if status == _UNKNOWN:
            write(path, io.BytesIO(data))
            return True
        if status == _GONE and version:
            return False
        if status != _CHANGED:
            raise
        present, now = read_version(path)
        if now == version:
            raise  # the store refuses for another reason
        return present == data  # True: it is ours, and the first answer was lost
    return True


def delete(path: str) -> None:
    """Removes a file; one that does not exist is no error."""
    bucket, name = split_address(path)
    with suppress(FileNotFoundError):  # nor a bucket
        _call(path, "removed", lambda client: client.delete_object(Bucket=bucket, Key=name))


def _call(path: str, done: str, call: Callable[[Any], _Result]) -> _Result:
    """Calls with the client, and again after errors that pass, until the time for retries is up."""
    with requires(SCHEME, "boto3"):
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
        from botocore.parsers import ResponseParserError

    server = _server()
    begun, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            result = call(_client())
            _answered[server] = True
            return result
        except (BotoCoreError, ClientError, ResponseParserError, OSError) as error:
            here = error_here(error)
            why = f"{here.strerror} on this machine" if here else error
            said, patience = f"{path} cannot be {done}: {why}", _patience(server)
            if isinstance(error, NoCredentialsError):
                said += ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"
                patience = min(_LOOKED_FOR, patience)
            status = _status(error)
            if status == _GONE or (status == _CHANGED and done == "read"):
                raise FileNotFoundError(said) from error
            if not (here or _is_passing(error)):
                kind = PermissionError if status in _REFUSED else StorageError
                raise kind(said) from error
            if _code(error) in _OLD:
                _clients.clear()
            if time.monotonic() + pause > begun + patience:
                _answered[server] = False
                raise StorageError(f"{said}, again and again: try again later") from error
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _patience(server: tuple[int, str]) -> float:
    answered = _answered.get(server)
    if answered is None:
        return FIRST_ANSWER
    return PATIENCE if answered else min(_GIVEN_UP, PATIENCE)


def _status(error: BaseException | None) -> int | None:
    """The status of an answer that is an error; None where there was no answer."""
    response = getattr(error, "response", None) or {}  # None is what lost answers have
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode")


def _code(error: Any) -> str:
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def _is_passing(error: Exception) -> bool:
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(error, exceptions.ClientError):
        code = _code(error)
        return passes(_status(error)) or code in _OLD or bool(_PASSING.search(code))
    lost = (
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
        exceptions.NoCredentialsError,
        exceptions.TokenRetrievalError,
        exceptions.HTTPClientError,
        exceptions.ConnectionError,
        exceptions.IncompleteReadError,
        exceptions.ChecksumError,
        exceptions.FlexibleChecksumError,
        ResponseParserError,
    )
    return isinstance(error, lost) or is_lost(error)


def _server() -> tuple[int, str]:
    return os.getpid(), os.environ.get("AWS_ENDPOINT_URL", "")


def _client() -> Any:
    options = getattr(FileSystems, "_pipeline_options", None)
    key = (*_server(), options)
    with _lock:
        return _clients.get(key) or _new_client(key)


def _new_client(key: tuple[int, str, PipelineOptions | None]) -> Any:
    """A client by Beam's options, else by the environment, kept if it has credentials.

    It retries nothing.
    """
    with requires(SCHEME, "boto3"):
        import boto3
        from botocore.config import Config

    settings = (key[-1] or PipelineOptions([])).view_as(S3Options)
    session = boto3.session.Session()
    try:
        client = session.client(
            "s3",
            aws_access_key_id=settings.s3_access_key_id,
            aws_secret_access_key=settings.s3_secret_access_key,
            aws_session_token=settings.s3_session_token,
            endpoint_url=settings.s3_endpoint_url,
            region_name=settings.s3_region_name,
            api_version=settings.s3_api_version,
            verify=settings.s3_verify,
            use_ssl=not settings.s3_disable_ssl,
            config=Config(
                retries={"total_max_attempts": 1}, max_pool_connections=2 * THREADS, **_TIMEOUTS
            ),
        )
    except ValueError as error:  # of an address that is none
        raise InputError(f"{SCHEME} cannot be used: {error}; look at AWS_ENDPOINT_URL") from error
    if settings.s3_access_key_id or session.get_credentials() is not None:
        _clients[key] = client
    return client
