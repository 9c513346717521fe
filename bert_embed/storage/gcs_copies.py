"""Lists objects of Cloud Storage and copies them to this machine, each checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bert_embed.storage import gcs
from bert_embed.storage.checksums import crc32c_of
from bert_embed.storage.errors import InputError

_ATTEMPTS = 2  # for a file that arrives damaged


@dataclass(frozen=True)
class RemoteFile:
    """An object of Cloud Storage, its CRC32C in base64, and its generation."""

    url: str
    size: int
    crc32c: str
    generation: int


def list_folder(url: str) -> dict[str, RemoteFile]:
    """Returns the objects directly in a folder of Cloud Storage, by name."""
    return {PurePosixPath(file.url).name: file for file in list_below(f"{url}/", direct=True)}


def list_below(url: str, direct: bool = False) -> list[RemoteFile]:
    """Returns the objects whose addresses begin so, or those `direct` in that folder alone."""
    bucket = url.removeprefix(gcs.SCHEME).partition("/")[0]
    with store_errors():
        return [
            RemoteFile(
                *(f"{gcs.SCHEME}{bucket}/{blob.name}", blob.size),
                *(blob.crc32c or "", blob.generation or 0),
            )
            for blob in gcs.list_objects(url, direct)
            if not blob.name.endswith("/")  # a console's placeholder for a folder
        ]


def download(file: RemoteFile, target: Path) -> None:
    """Copies an object to a local file, and compares size and checksum with the listing's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(_ATTEMPTS):
        with store_errors():
            gcs.download(file.url, str(target))
        size, checksum = target.stat().st_size, crc32c_of(target)
        if size == file.size and checksum == (file.crc32c or checksum):
            return
    raise InputError(
        f"{file.url} must have {file.size} bytes and crc32c {file.crc32c}, arrived with {size} and "
        f"{checksum}; it may have been written meanwhile, try again"
    )


@contextmanager
def store_errors() -> Iterator[None]:
    """Raises errors of Cloud Storage as InputError with the same message."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # an error of this machine, such as a full disk
            raise
        raise InputError(str(error)) from error
