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

    A folder stands for every file below it, through links too. A path that exists is taken
    literally, even if it holds characters of a glob.

    Raises:
        ValueError: A pipe or device, a broken link, or a name that is no UTF-8.
    """
    if is_remote(pattern):
        return _list_remote(pattern)
    path = absolute(pattern)
    if os.path.isdir(path):
        found = list(_walk(path))
    elif os.path.exists(path):
        found = [path]
    else:
        found = [each for each in glob.glob(path, recursive=True) if not os.path.isdir(each)]
    return [_checked(each) for each in sorted(set(found))]


def _walk(folder: str) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.join(parent, name)


def _checked(path: str) -> FileInfo:
    """The file, if a job can read it again and again under its name."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"--input {path!r} has a name that is not UTF-8, rename it") from error
    if not os.path.exists(path):
        raise ValueError(f"--input {path} is a broken link")
    if not os.path.isfile(path):
        raise ValueError(f"--input {path} is no regular file; write what it gives to a file first")
    return stat(path)


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


def size_of(path: str) -> int | None:
    """Bytes of a file, None if there is no such file."""
    try:
        return stat(path).size
    except FileNotFoundError:
        return None


def read_bytes(path: str) -> bytes | None:
    """All bytes of a small file, or None if there is no such file."""
    if not is_remote(path):
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    try:
        if not FileSystems.exists(path):
            return None
        with open_raw(path) as file:
            return file.read()
    except BeamIOError as error:
        raise OSError(f"{path} cannot be read: {error}") from error


def write_whole(path: str, write: Callable[[BinaryIO], object]) -> int:
    """Writes a file that appears complete or not at all, also under two writers at once.

    Locally under a name of this process, then renamed. On gs:// an object exists only once its
    upload ended; the bytes are made first, so that what fails there never begins one.

    Args:
        path: The file.
        write: Writes the bytes into the file it is given.

    Returns:
        How many bytes the file has.
    """
    if is_remote(path):
        return _upload_whole(path, write)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    try:
        with open(temporary, "wb") as local:
            write(local)
            local.flush()
            os.fsync(local.fileno())
            size = os.fstat(local.fileno()).st_size
        os.replace(temporary, path)
        return size
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def _upload_whole(path: str, write: Callable[[BinaryIO], object]) -> int:
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    made = io.BytesIO()
    write(made)
    kind = "application/octet-stream"
    with FileSystems.create(path, kind, CompressionTypes.UNCOMPRESSED) as file:
        file.write(made.getvalue())
    return len(made.getvalue())


def write_bytes(path: str, data: bytes) -> int:
    """`write_whole` for bytes that are there already."""
    return write_whole(path, lambda file: file.write(data))


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
        file = not entry.is_dir(follow_symlinks=False)
        if entry.name.startswith(_TEMPORARY) and file and _is_abandoned(entry):
            os.remove(entry.path)
            swept += 1
    return swept


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY:
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


def sizes_in(folder: str) -> dict[str, int]:
    """Names and bytes of the files directly in a folder; none where there is no such folder.

    A local link counts as itself, wherever it leads.
    """
    if is_remote(folder):
        from apache_beam.io.filesystems import FileSystems

        matches = FileSystems.match([join(folder, "*")])
        found = [each for match in matches for each in match.metadata_list]
        return {each.path.rsplit("/", 1)[1]: each.size_in_bytes for each in found}
    if not os.path.isdir(folder):
        return {}
    found = [each for each in os.scandir(folder) if each.is_symlink() or each.is_file()]
    return {each.name: each.stat(follow_symlinks=False).st_size for each in found}


def names_in(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted."""
    return sorted(sizes_in(folder))


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
        if os.path.lexists(path):  # of a link the link itself, wherever it leads
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
