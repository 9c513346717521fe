"""Files, local and gs:// alike: list them, read a range, write one whole or not at all."""

import glob
import importlib
import io
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from transforms.file_info import FileInfo, StorageError

_TEMPORARY = ".tmp-"  # followed by host and process, so that no other process picks the same name
_DAY = 24 * 3600.0


def is_remote(path: str) -> bool:
    """Whether Beam's file systems must open it: gs://, s3:// and the like.

    >>> is_remote("gs://bucket/a.txt"), is_remote("/tmp/a.txt")
    (True, False)
    """
    return "://" in path


def _remote(path: str) -> Any:
    """The module that knows such addresses; imported late, help and local runs need none."""
    gcs = path.startswith("gs://")
    return importlib.import_module(f"transforms.{'cloud_storage' if gcs else 'beam_files'}")


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
        return _remote(pattern).list_files(pattern)
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


def stat(path: str) -> FileInfo:
    """Size and time of one file now.

    Raises:
        FileNotFoundError: It is not there.
    """
    if is_remote(path):
        return _remote(path).stat(path)
    return _local_info(path, os.stat(path))


def _local_info(path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(path, found.st_size, found.st_mtime)


def open_raw(path: str) -> BinaryIO:
    """Opens the stored bytes for reading, never decompressed, seekable."""
    return _remote(path).open_object(path) if is_remote(path) else open(path, "rb")


@contextmanager
def open_listed(info: FileInfo) -> Iterator[BinaryIO]:
    """Opens a file that was listed, as `open_raw` does, and sees that it stays what it was.

    A local file is compared when it is opened and when it was read. Of an object of Cloud Storage
    the listed generation is read, which takes no request but the reads themselves.

    Raises:
        ValueError: It was removed, replaced or changed since; the file is named.
    """
    try:
        if is_remote(info.path):
            with _remote(info.path).open_object(info.path, info) as remote:
                yield remote
            return
        with open(info.path, "rb") as local:
            _check_unchanged(info, _local_info(info.path, os.fstat(local.fileno())))
            yield local
        _check_unchanged(info, stat(info.path))
    except FileNotFoundError as error:
        what = "replaced or removed" if is_remote(info.path) else "removed"
        raise ValueError(
            f"{info.path} was {what} after the job started; run the job again with --overwrite"
        ) from error


def _check_unchanged(listed: FileInfo, now: FileInfo) -> None:
    if now != listed:
        raise ValueError(
            f"{listed.path} changed after the job started: listed with {listed.size} bytes, now "
            f"{now.size}; run the job again with --overwrite"
        )


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
    return _remote(path).read(path)


def write_whole(path: str, write: Callable[[BinaryIO], object]) -> int:
    """Writes a file that appears complete or not at all, also under two writers at once.

    Locally under a name of this process, then renamed. On gs:// an object exists only once its
    upload ended; the bytes are made first, so that what fails there never begins one.

    Args:
        path: The file.
        write: Writes the bytes into the file it is given.

    Returns:
        How many bytes the file has.

    Raises:
        OSError: It cannot be written, such as StorageError where no space is left.
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
    except BaseException as error:
        if os.path.exists(temporary):
            os.remove(temporary)
        if isinstance(error, OSError) and error.strerror:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from error
        raise


def _upload_whole(path: str, write: Callable[[BinaryIO], object]) -> int:
    made = io.BytesIO()
    write(made)
    _remote(path).write(path, made)
    return made.getbuffer().nbytes


def write_bytes(path: str, data: bytes) -> int:
    """`write_whole` for bytes that are there already."""
    return write_whole(path, lambda file: file.write(data))


def temporary_name(name: str) -> str:
    """A name beside `name` that no other process or thread chooses."""
    return f"{_TEMPORARY}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}-{name}"


def sweep_temporary(folder: str) -> int:
    """Removes temporary files that nobody will finish: returns how many.

    Those are files over a day old, and local ones of processes of this host that are gone.
    """
    if is_remote(folder):
        old = [
            each.path
            for each in _remote(folder).list_folder(join(folder, ""))
            if each.path.rsplit("/", 1)[1].startswith(_TEMPORARY)
            and time.time() - each.modified > _DAY
        ]
        remove(old)
        return len(old)
    if not os.path.isdir(folder):
        return 0
    abandoned = [
        entry.path
        for entry in os.scandir(folder)
        if entry.name.startswith(_TEMPORARY)
        and not entry.is_dir(follow_symlinks=False)
        and _is_abandoned(entry)
    ]
    remove(abandoned)
    return len(abandoned)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY:
        return True
    ours = f"{_TEMPORARY}{socket.gethostname()}-"
    process = entry.name.removeprefix(ours).split("-")[0]
    return entry.name.startswith(ours) and process.isdigit() and not is_running(int(process))


def is_running(process: int) -> bool:
    """Whether a process of this host is there."""
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
        found = _remote(folder).list_folder(folder)
        return {each.path.rsplit("/", 1)[1]: each.size for each in found}
    if not os.path.isdir(folder):
        return {}
    found = [each for each in os.scandir(folder) if each.is_symlink() or each.is_file()]
    return {each.name: each.stat(follow_symlinks=False).st_size for each in found}


def names_in(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted."""
    if is_remote(folder):
        return sorted(sizes_in(folder))
    if not os.path.isdir(folder):
        return []
    return sorted(e.name for e in os.scandir(folder) if e.is_symlink() or e.is_file())


def make_folder(folder: str) -> None:
    """Makes a local folder and its parents; objects on gs:// need none."""
    if not is_remote(folder):
        os.makedirs(folder, exist_ok=True)


def remove(paths: list[str]) -> None:
    """Removes files; one that is gone already is no error."""
    if paths and is_remote(paths[0]):
        _remote(paths[0]).delete(paths)
        return
    for path in paths:
        if os.path.lexists(path):  # of a link the link itself, wherever it leads
            os.remove(path)


def create_exclusive(path: str, data: bytes) -> bool:
    """Creates a file only if there is none; False if another was first.

    Locally the kernel decides (a hard link to a complete file either appears or fails), on gs://
    the server (generation 0 is asked for). Other stores of Beam have no such call, there an
    existence check stands before the write.
    """
    if is_remote(path):
        return _remote(path).create(path, data)
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


def copy_file(source: str, target: str) -> None:
    """Copies one file, local or remote, as a whole."""
    with open_raw(source) as file:
        write_whole(target, lambda out: shutil.copyfileobj(file, out, 8 << 20))


def check_writable(folder: str) -> None:
    """Writes a file into a folder that is there, and removes it; OSError says why it cannot."""
    probe = join(folder, temporary_name("probe"))
    create_exclusive(probe, b"probe")
    remove([probe])
