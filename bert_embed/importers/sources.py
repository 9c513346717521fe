"""Finds or fetches a model's local folder: an archive, Cloud Storage, TF Hub, Hugging Face."""

import gzip
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import BinaryIO, cast

from packaging.version import parse

from bert_embed.base.environment import requires
from bert_embed.base.errors import (
    InputError,
    StorageError,
    is_passing,
    reason,
    refusal,
    required,
    shown_bytes,
)
from bert_embed.bundle.bundle import ARCHIVES, HUB_HANDLES, MARKERS
from bert_embed.bundle.cache import fetch, list_model
from bert_embed.bundle.find import HUB_SCHEME, Snapshot, cached_snapshot, fetched_snapshot, hub_name
from bert_embed.storage.gcs import SCHEME, is_lost, passes
from bert_embed.storage.local import absolute

_MOST_UNPACKED = 64 << 30  # bytes; the largest BERT has some 1.4 GB, Adam's slots three times that
_MOST_FILES = 10_000
_MOST_HEADER = 1 << 24
_CHUNK = 1 << 20


class _Bounded:
    """A stream that refuses large reads, because tarfile reads whole headers into memory."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self.seek, self.tell = stream.seek, stream.tell
        self._read = stream.read

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._read(size)


def _write_members(archive: tarfile.TarFile, root: Path) -> None:
    """Writes an archive's files into a folder; links become copies: they could lead out.

    InputError: a member leads out, or is no file, or there are too many.
    """
    room, size = min(_MOST_UNPACKED, shutil.disk_usage(root).free), 0
    for count, member in enumerate(archive, 1):
        path, is_link = PurePosixPath(member.name), member.islnk() or member.issym()
        if path.is_absolute() or ".." in path.parts or "\0" in member.name:
            raise InputError(f"{member.name!r} leads out of it")
        place = root / path
        size += member.size  # of a link 0
        _check_room(size, room, count)
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        try:
            content = archive.extractfile(member)
        except (KeyError, RecursionError):  # a link to nothing before it, or in a circle
            content = None
        if content is None:
            raise InputError(f"{member.name!r} is no file, nor a link to one of its files")
        place.parent.mkdir(parents=True, exist_ok=True)
        with content, open(place, "wb") as target:
            while data := content.read(_CHUNK):
                size += len(data) if is_link else 0
                _check_room(size, room, count)
                target.write(data)


def _check_room(size: int, room: int, count: int) -> None:
    if size > room or count > _MOST_FILES:
        raise InputError(
            f"it holds more than {shown_bytes(room)} (what is free on the disk of temporary files, "
            f"at most 64 GiB) or more than {_MOST_FILES:,} files"
        )


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks below `folder`, and returns the folder of the model in it.

    InputError: it cannot be read, a path leads out of it, it is too large for the disk or for any
    model, or it holds none.
    """
    stem = next(archive.name.removesuffix(end) for end in ARCHIVES if archive.name.endswith(end))
    root = folder / (stem or "model")  # google-research's names say the casing
    root.mkdir()  # an archive without a member makes no folder
    try:
        with (
            gzip.open(archive) as stored,
            tarfile.open(fileobj=cast(BinaryIO, _Bounded(stored)), mode="r:") as file,
        ):
            _write_members(file, root)
            # Reading to the end checks gzip's checksum.
            if len(stored.read(_MOST_HEADER)) == _MOST_HEADER:
                raise tarfile.ReadError("other data follows the archive's end")
    except InputError as error:
        raise InputError(f"{archive}: refused, {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise refusal(error, f"{archive}: cannot be unpacked, perhaps cut: {error}") from error
    inside = [path for path in root.iterdir() if not path.name.startswith(".")]
    for place in (root, *inside):
        if any((place / name).is_file() for name in MARKERS):
            return place
    raise InputError(f"{archive}: must hold one of {', '.join(MARKERS)}, holds none of them")


@contextmanager
def local_folder(source: str) -> Iterator[Path]:
    """Yields the local folder of a model; an unpacked archive is removed at the end."""
    if source.startswith(HUB_HANDLES):
        place = resolve_handle(source)
    elif source.startswith(SCHEME):
        place = fetch(list_model(source))
    else:
        place = Path(absolute(source))
    if not (place.is_file() and place.name.endswith(ARCHIVES)):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="model-") as temporary:
        yield unpack(place, Path(temporary))


def resolve_handle(handle: str) -> Path:
    """Returns tensorflow_hub's folder for a handle, which is fetched if it is not there."""
    with requires(handle, "tensorflow", "tensorflow-hub"):
        import tensorflow as tf

        with _version_parser():
            import tensorflow_hub as hub
    try:
        return Path(hub.resolve(handle))
    except (OSError, ValueError, tf.errors.OpError, tarfile.TarError) as error:
        message = (
            f"{handle}: could not be fetched ({reason(error)}): check the connection to the hub, "
            "set TFHUB_CACHE_DIR to a cache that has it, or set model to the downloaded .tar.gz"
        )
        cause = getattr(error, "reason", error)  # of what urllib raises
        if passes(getattr(error, "code", None)) or is_lost(cause) or is_passing(error):
            raise StorageError(message) from error
        raise InputError(message, "model") from error


@contextmanager
def _version_parser() -> Iterator[None]:
    """Gives tensorflow_hub what it imports of pkg_resources, which setuptools 82 dropped."""
    if find_spec("pkg_resources"):
        yield
        return
    stand_in = ModuleType("pkg_resources")
    vars(stand_in)["parse_version"] = parse
    sys.modules["pkg_resources"] = stand_in
    try:
        yield
    finally:
        del sys.modules["pkg_resources"]


def hub_snapshot(source: str) -> Snapshot | None:
    """Returns the files of a model of the hub; None if the source is no name of one."""
    if source.startswith(HUB_SCHEME):
        return fetched_snapshot(required(hub_name(source), "name of a model"), source)
    return None if Path(source).exists() else cached_snapshot(source)
