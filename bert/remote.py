"""Models in Cloud Storage: a gs:// address in, a folder of this machine out, fetched once."""

import base64
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from bert.cache import cache_folder, locked
from bert.model_files import ARCHIVES, MARKERS

if TYPE_CHECKING:
    from google.cloud.storage import Bucket, Client

SCHEME = "gs://"
_LOG = logging.getLogger(__name__)
_SAFETENSORS = "model.safetensors"
# The same weights once more, for other programs: never fetched where they lie beside safetensors.
_OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".ot", ".onnx", ".tflite")
_CHUNK = 1 << 22
_ATTEMPTS = 2  # of a file that arrives damaged
PATIENCE = 30.0  # seconds until Cloud Storage counts as out of reach


@dataclass(frozen=True)
class RemoteFile:
    """A file of a remote folder.

    Attributes:
        name: Path below the folder, with slashes.
        size: Bytes.
        crc32c: As Cloud Storage gives it, base64; "" where it gives none.
        generation: Rises whenever the object is written anew.

    Raises:
        ValueError: A name that leads out of the folder, or that no file can have.
    """

    name: str
    size: int
    crc32c: str
    generation: int

    def __post_init__(self) -> None:
        if {"", ".", ".."} & set(self.name.split("/")) or {"\\", "\0"} & set(self.name):
            raise ValueError(f"gs://: the object {self.name!r} has a name that no file can have")


@dataclass(frozen=True)
class RemoteModel:
    """What lies at a gs:// address.

    Attributes:
        url: The address, without a slash at its end.
        files: The files a model is made of, sorted by name; for an archive, it alone.
    """

    url: str
    files: tuple[RemoteFile, ...]

    @property
    def listing(self) -> str:
        """Address, names, sizes, generations and checksums: another text is another model."""
        lines = [f"{each.name} {each.size} {each.generation} {each.crc32c}" for each in self.files]
        return "\n".join([self.url, *lines])

    def has(self, name: str) -> bool:
        """Whether the folder directly holds a file of this name."""
        return any(each.name == name for each in self.files)


def fetch_model(url: str) -> Path:
    """Returns the local copy of a model's folder, or archive, in Cloud Storage.

    It lies in the cache under a key of names, sizes, generations and checksums, keeps the remote
    folder's name, appears whole, and is fetched once: by the first process of the machine, for
    which the others wait.

    Raises:
        ValueError: No such bucket or folder, no permission, no model there, a file that arrived
            damaged, or a cache that cannot be written.
    """
    return fetch(list_model(url))


def list_model(url: str) -> RemoteModel:
    """Lists a model's folder, or archive, in Cloud Storage.

    Raises:
        ValueError: No such bucket or folder, no permission, or no model there.
    """
    bucket, path = _split(url)
    with _told(url, bucket), _client() as client:
        if path.endswith(ARCHIVES):
            found = _listed(client, bucket, prefix=path)
            blobs = [each for each in found if each.name == path]
            start = len(path) - len(PurePosixPath(path).name)
        else:
            start = len(path) + 1 if path else 0
            blobs = _blobs_below(client, bucket, path, url)
    files = [
        RemoteFile(each.name[start:], each.size, each.crc32c or "", each.generation or 0)
        for each in blobs
        if not each.name.endswith("/")  # a console's placeholder for a folder
    ]
    if not files:
        raise ValueError(f"{url}: nothing is there, check the bucket's and the folder's name")
    return RemoteModel(url.rstrip("/"), tuple(sorted(_needed(files), key=lambda each: each.name)))


def fetch(model: RemoteModel) -> Path:
    """Fetches what `list_model` found; as `fetch_model`."""
    key = hashlib.sha256(model.listing.encode()).hexdigest()[:32]
    dest = cache_folder() / "gs" / key / (PurePosixPath(model.url).name or "model")
    archive = model.url.endswith(ARCHIVES)
    try:
        if not _complete(dest.parent if archive else dest, model):
            dest.parent.parent.mkdir(parents=True, exist_ok=True)
            with locked(dest.parent.with_name(f".{key}.lock")):
                if not _complete(dest.parent if archive else dest, model):
                    shutil.rmtree(dest.parent, ignore_errors=True)
                    _fetch_whole(model, dest, archive)
    except OSError as error:
        raise ValueError(
            f"{dest}: models cannot be kept there ({error.strerror or error}), set "
            "BERT_EMBED_CACHE to a folder that can be written and has room"
        ) from error
    return dest


def read_remote(url: str) -> bytes | None:
    """All bytes of an object in Cloud Storage, or None if there is none.

    Raises:
        ValueError: No permission, or Cloud Storage is out of reach.
    """
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, name = _split(url)
    with _told(url, bucket), _client() as client:
        retry = DEFAULT_RETRY.with_timeout(PATIENCE)
        blob = client.bucket(bucket).get_blob(name, retry=retry)
        return None if blob is None else blob.download_as_bytes()


def remote_files(url: str, start: str, is_wanted: Callable[[str], bool]) -> Iterator[Path]:
    """Fetches the files directly in a folder of Cloud Storage one after the other, by name.

    Each lies on this machine until the next is asked for.

    Args:
        url: The folder.
        start: How their names begin.
        is_wanted: Says of a name whether it is fetched.

    Raises:
        ValueError: No such bucket, no permission, or a file that arrives damaged.
    """
    bucket, path = _split(url)
    prefix = f"{path}/" if path else ""
    with _told(url, bucket), _client() as client:
        found = _listed(client, bucket, prefix=prefix + start, delimiter="/")
        files = [
            RemoteFile(each.name.removeprefix(prefix), each.size, each.crc32c or "", 0)
            for each in found
            if is_wanted(each.name.removeprefix(prefix))
        ]
        for file in sorted(files, key=lambda each: each.name):
            with tempfile.TemporaryDirectory(prefix="bert-embed-") as temporary:
                target = Path(temporary, file.name)
                _download(client.bucket(bucket), path, file, target, url)
                yield target


def _blobs_below(client: "Client", bucket: str, path: str, url: str) -> list[Any]:
    """All objects below a folder, but none before it is known that it holds a model."""
    prefix = f"{path}/" if path else ""
    direct = {
        each.name.removeprefix(prefix)
        for each in _listed(client, bucket, prefix=prefix, delimiter="/")
    }
    if direct and direct.isdisjoint(MARKERS):
        raise ValueError(f"{url}: must hold one of {', '.join(MARKERS)}, holds none of them")
    return _listed(client, bucket, prefix=prefix) if direct else []


def _listed(client: "Client", bucket: str, **which: str) -> list[Any]:
    from google.cloud.storage.retry import DEFAULT_RETRY

    return list(client.list_blobs(bucket, retry=DEFAULT_RETRY.with_timeout(PATIENCE), **which))


def _fetch_whole(model: RemoteModel, dest: Path, archive: bool) -> None:
    megabytes = sum(each.size for each in model.files) / 1e6
    _LOG.warning("fetching %s (%.0f MB), this once", model.url, megabytes)
    bucket, path = _split(model.url)
    folder = str(PurePosixPath(path).parent) if archive else path
    above = dest.parent.parent
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=above) as temporary:
        whole = Path(temporary, dest.parent.name)
        root = whole if archive else whole / dest.name
        with _told(model.url, bucket), _client() as client:
            for each in model.files:
                _download(client.bucket(bucket), folder, each, root / each.name, model.url)
        try:
            os.rename(whole, dest.parent)
        except OSError:
            # Else another process was first; its copy is the same.
            if not _complete(dest.parent if archive else dest, model):
                raise


def _download(bucket: "Bucket", folder: str, file: RemoteFile, target: Path, url: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    name = file.name if folder in ("", ".") else f"{folder}/{file.name}"
    for _ in range(_ATTEMPTS):
        bucket.blob(name).download_to_filename(str(target))
        found = _crc32c(target)
        if target.stat().st_size == file.size and found == (file.crc32c or found):
            return
    raise ValueError(
        f"{url}: {file.name} must have {file.size} bytes and crc32c {file.crc32c}, arrived "
        f"with {target.stat().st_size} and {found}; it may have been written meanwhile, "
        "try again"
    )


def _crc32c(path: Path) -> str:
    import google_crc32c

    checksum = google_crc32c.Checksum()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()


def _complete(root: Path, model: RemoteModel) -> bool:
    files = [(root / each.name, each.size) for each in model.files]
    return all(path.is_file() and path.stat().st_size == size for path, size in files)


def _needed(files: list[RemoteFile]) -> Iterator[RemoteFile]:
    safe = any(PurePosixPath(each.name).name.startswith(_SAFETENSORS) for each in files)
    for each in files:
        if not (safe and each.name.endswith(_OTHER_WEIGHTS)):
            yield each


def _split(url: str) -> tuple[str, str]:
    bucket, _, path = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or not bucket:
        raise ValueError(f"--model must be gs://BUCKET/FOLDER for Cloud Storage, got {url!r}")
    return bucket, path.strip("/")


@contextmanager
def _client() -> Iterator["Client"]:
    """A client with the credentials of the machine; without any it reads what is public."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        client = storage.Client.create_anonymous_client()
    else:
        try:
            credentials, project = google.auth.default()
            # Reading needs no project, but the client insists on a name.
            client = storage.Client(project=project or "none", credentials=credentials)
        except DefaultCredentialsError:
            client = storage.Client.create_anonymous_client()
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _told(url: str, bucket: str) -> Iterator[None]:
    """Turns what Cloud Storage's client raises into a sentence that says what to do."""
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption

    try:
        yield
    except DataCorruption as error:
        raise ValueError(f"{url}: a file arrived damaged, try again") from error
    except exceptions.NotFound as error:
        raise ValueError(f"{url}: there is no bucket {bucket}, or a file is gone") from error
    except (exceptions.Forbidden, exceptions.Unauthorized) as error:
        raise ValueError(
            f"{url}: may not be read with the credentials of this machine: run `gcloud auth "
            "application-default login`, or have the role Storage Object Viewer given to them"
        ) from error
    except (exceptions.GoogleAPIError, GoogleAuthError, requests.RequestException) as error:
        raise ValueError(
            f"{url}: Cloud Storage cannot be reached ({type(error).__name__})"
        ) from error
