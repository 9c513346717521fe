"""Files, local and gs:// alike: list them, read a range, write one whole or not at all."""

import glob
import io
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

_TEMPORARY = ".tmp-"  # followed by host and process, so that no other process picks the same name
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class FileInfo:
    """A file of a listing.

    Attributes:
        path: Absolute path, or URL.
        size: Bytes as stored (compressed bytes for a compressed file).
        modified: Time of the last change in seconds since 1970.
    """

    path: str
    size: int
    modified: float


def is_remote(path: str) -> bool:
    """Whether Beam's file systems must open it: gs://, s3:// and the like.

    >>> is_remote("gs://bucket/a.txt"), is_remote("/tmp/a.txt")
    (True, False)
    """
    return "://" in path


def absolute(path: str) -> str:
    """A local path as absolute path, `~` resolved; a URL as it is."""
    return path if is_remote(path) else os.path.abspath(os.path.expanduser(path))


def join(folder: str, name: str) -> str:
    return folder.rstrip("/") + "/" + name


def list_files(pattern: str) -> list[FileInfo]:
    """Files that a path, folder or glob names, sorted; hidden files of a folder are left out.

    A folder stands for every file below it. A path that exists is taken literally, even if it
    holds characters of a glob.
    """
    if is_remote(pattern):
        return _list_remote(pattern)
    path = absolute(pattern)
    if os.path.isdir(path):
        found = list(_walk(path))
    elif os.path.exists(path):
        found = [path]
    else:
        found = [each for each in glob.glob(path, recursive=True) if os.path.isfile(each)]
    return [stat(each) for each in sorted(set(found))]


def _walk(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.join(parent, name)


def _list_remote(pattern: str) -> list[FileInfo]:
    from apache_beam.io.filesystems import FileSystems

    patterns = [join(pattern, "**")] if pattern.endswith("/") else [pattern, join(pattern, "**")]
    found = {
        each.path: FileInfo(each.path, each.size_in_bytes, each.last_updated_in_seconds or 0.0)
        for match in FileSystems.match(patterns)
        for each in match.metadata_list
    }
    return [found[path] for path in sorted(found)]


def stat(path: str) -> FileInfo:
    """Size and time of one file now.

    Raises:
        FileNotFoundError: It is not there.
    """
    if is_remote(path):
        for each in _list_remote(path):
            if each.path == path:
                return each
        raise FileNotFoundError(path)
    found = os.stat(path)
    return FileInfo(path, found.st_size, found.st_mtime)


def open_raw(path: str) -> BinaryIO:
    """Opens the stored bytes for reading, never decompressed, seekable."""
    if not is_remote(path):
        return open(path, "rb")
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def exists(path: str) -> bool:
    """Whether there is such a file."""
    if not is_remote(path):
        return os.path.exists(path)
    from apache_beam.io.filesystems import FileSystems

    return FileSystems.exists(path)


def read_bytes(path: str) -> bytes | None:
    """All bytes of a small file, or None if there is no such file."""
    if not is_remote(path):
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
    from apache_beam.io.filesystem import BeamIOError

    try:
        if not exists(path):
            return None
        with open_raw(path) as file:
            return file.read()
    except BeamIOError as error:
        raise OSError(f"{path} cannot be read: {error}") from error


def write_whole(path: str, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file that appears complete or not at all, also under two writers at once.

    Locally under a name of this process, then renamed. On gs:// an object exists only once its
    upload ended; the bytes are made first, so that what fails there never begins one.

    Args:
        path: The file.
        write: Writes the bytes into the file it is given.
    """
    if is_remote(path):
        _upload_whole(path, write)
        return
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    try:
        with open(temporary, "wb") as local:
            write(local)
            local.flush()
            os.fsync(local.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def _upload_whole(path: str, write: Callable[[BinaryIO], object]) -> None:
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    made = io.BytesIO()
    write(made)
    kind = "application/octet-stream"
    with FileSystems.create(path, kind, CompressionTypes.UNCOMPRESSED) as file:
        file.write(made.getvalue())


def write_bytes(path: str, data: bytes) -> None:
    """`write_whole` for bytes that are there already."""
    write_whole(path, lambda file: file.write(data))


def temporary_name(name: str) -> str:
    """A name beside `name` that no other process or thread chooses."""
    return f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}-{name}"


def sweep_temporary(folder: str) -> int:
    """Removes local temporary files that nobody will finish: returns how many.

    Those are files over a day old, and files of processes of this host that are gone.
    """
    swept = 0
    if is_remote(folder) or not os.path.isdir(folder):
        return swept
    for entry in list(os.scandir(folder)):
        if entry.name.startswith(_TEMPORARY) and _is_abandoned(entry):
            os.remove(entry.path)
            swept += 1
    return swept


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    if time.time() - entry.stat().st_mtime > _DAY:
        return True
    ours = f"{_TEMPORARY}{socket.gethostname()}-"
    process = entry.name.removeprefix(ours).split("-")[0]
    return entry.name.startswith(ours) and process.isdigit() and not _is_running(int(process))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def names_in(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted; none where there is no such folder."""
    if is_remote(folder):
        from apache_beam.io.filesystems import FileSystems

        matches = FileSystems.match([join(folder, "*")])
        return sorted(each.path.rsplit("/", 1)[1] for m in matches for each in m.metadata_list)
    if not os.path.isdir(folder):
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())


def make_folder(folder: str) -> None:
    """Makes a local folder and its parents; objects on gs:// need none."""
    if not is_remote(folder):
        os.makedirs(folder, exist_ok=True)


def remove(paths: list[str]) -> None:
    """Removes files; one that is gone already is no error."""
    if paths and is_remote(paths[0]):
        from apache_beam.io.filesystems import FileSystems

        FileSystems.delete(paths)
        return
    for path in paths:
        if os.path.exists(path):
            os.remove(path)


def create_exclusive(path: str, data: bytes) -> bool:
    """Creates a file only if there is none; False if another was first.

    Locally the kernel decides (a hard link to a complete file either appears or fails). Object
    stores reached through Beam have no such call, there an existence check stands before the
    write; two identical jobs may then both go on, which does no harm: they write equal files.
    """
    if is_remote(path):
        if read_bytes(path) is not None:
            return False
        write_bytes(path, data)
        return True
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    with open(temporary, "wb") as file:
        file.write(data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.remove(temporary)
    return True
