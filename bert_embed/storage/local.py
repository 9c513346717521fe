"""Lists, reads and writes files of this machine; the same functions as `gcs` has for gs://.

Also what is the same of all stores: what a listing says of a file, checksums, globs.
"""

import base64
import errno
import fcntl
import fnmatch
import functools
import io
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, BinaryIO

import google_crc32c

from bert_embed.base.errors import InputError, StorageError, is_passing, naming, raise_passing

TEMPORARY = ".tmp-"  # followed by host and process, so that no other process picks the same name
REPLACED = "it is another file now"
PUT_BACK = "put it back as it was"  # what is gone, and nothing else is wrong


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing."""

    path: str  # absolute, or URL
    size: int  # bytes as stored (compressed bytes for a compressed file)
    modified: float  # seconds since 1970
    generation: int = 0  # of an object of Cloud Storage, new with each write; else 0
    etag: str = ""  # of an object, another one for other bytes: S3's, Google's CRC32C; else empty
    packed: bool = False  # an object with Content-Encoding gzip whose name does not end in .gz

    def has_bytes_of(self, other: "FileInfo") -> bool:
        """Whether it is known to hold the same bytes, though it may have been written again."""
        if self.size != other.size:
            return False
        is_same = (self.modified, self.generation) == (other.modified, other.generation)
        return is_same or bool(self.etag and self.etag == other.etag)


_BUCKET = re.compile(r"[a-z0-9]([\w.-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)


def split_address(path: str) -> tuple[str, str]:
    """The bucket and the name of an address in a store; InputError if no bucket is named so.

    >>> split_address("gs://bucket/a/b.txt")
    ('bucket', 'a/b.txt')
    """
    scheme, _, place = path.partition("://")
    bucket, _, name = place.partition("/")
    if not bucket:
        raise InputError(f"{path} must be {scheme}://BUCKET/NAME")
    if not _BUCKET.fullmatch(bucket):
        raise InputError(f"{path} names no bucket: {bucket} cannot be the name of one")
    return bucket, name


def refuse_pointer(path: str, start: bytes) -> None:
    """InputError for what a clone without Git LFS has in place of a large file, by its `start`."""
    if start.startswith(b"version https://git-lfs"):
        raise InputError(f"{path} is a pointer of Git LFS, get the file with git lfs pull")


def opened(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a file for reading; StorageError, with its name, from errors that may pass."""
    with naming(path):
        return io.BufferedReader(NamedFile(path))


class NamedFile(io.FileIO):
    """A file whose errors of reading name it, as those of opening do."""

    def readinto(self, buffer: Any) -> int:
        with naming(self.name):
            if (count := super().readinto(buffer)) is None:  # what Python makes of EAGAIN
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count

    def readall(self) -> bytes:
        """All that is left; Python's own takes EAGAIN for the end of a file."""
        with naming(self.name):
            size = os.fstat(self.fileno()).st_size  # 0 of a pipe, which has no place to tell
        pieces, piece = [], bytearray(max(4096, size))
        while count := self.readinto(piece):
            pieces.append(bytes(memoryview(piece)[:count]))
        return b"".join(pieces)


_CHUNK = 1 << 18  # a MiB or more would take fresh memory each, which costs more than the checksum


def checksum(path: str | os.PathLike[str]) -> str:
    """The CRC32C of a local file, in base64 as Cloud Storage reports it."""
    with opened(path) as file:
        return crc32c_of_file(file)


def crc32c_of_file(file: BinaryIO) -> str:
    """The CRC32C of what is left of an open file, likewise."""
    checksum = google_crc32c.Checksum()
    while chunk := file.read(_CHUNK):
        checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()


def crc32c_of_bytes(data: bytes) -> str:
    """The CRC32C of bytes in memory, likewise."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


_PIECES = re.compile(
    r"(?P<folders>(?<![^/])\*\*/)|(?P<rest>\*\*+)|\*|\?|\[!?\]?[^\]/]*\]|[^*?\[]+|\["
)
_MAGIC = re.compile(r"[*?\[]")
_VISIBLE = r"(?!\.)"  # before a name that begins with a wildcard


def is_glob(pattern: str) -> bool:
    """Whether a name holds characters of a glob."""
    return _MAGIC.search(pattern) is not None


def fixed_folder(pattern: str) -> str:
    """The folders of a pattern before its first wildcard, without the last slash."""
    wildcard = _MAGIC.search(pattern)
    return pattern[: wildcard.start() if wildcard else len(pattern)].rpartition("/")[0]


def glob_matcher(pattern: str) -> Callable[[str], object]:
    r"""Returns a function that says whether a name matches.

    `*`, `?` and `[…]` match within a name, `**` matches folders too. A wildcard matches no name and
    no folder that begins with a dot. A backslash is a character like any other.

    >>> [name for name in ("a.txt", ".b.txt", "c\\d.txt", "e/f.txt") if glob_matcher("*.txt")(name)]
    ['a.txt', 'c\\d.txt']
    >>> [name for name in ("a.txt", "e/f.txt", ".g/h.txt") if glob_matcher("**/*.txt")(name)]
    ['a.txt', 'e/f.txt']
    """
    parts, begins = [], True
    for piece in _PIECES.finditer(pattern):
        text = piece[0]
        if piece["folders"]:
            parts.append(rf"(?:{_VISIBLE}[^/]*/)*")
            continue
        wild = text[0] in "*?[" and text != "["
        parts.append(_VISIBLE if begins and wild else "")
        if piece["rest"]:
            parts.append(rf"[^/]*(?:/{_VISIBLE}[^/]*)*")
        elif text == "*":
            parts.append("[^/]*")
        elif wild:
            parts.append(rf"(?!/){fnmatch.translate(text)[4:-3]}")
        else:
            parts.append(re.escape(text))
        begins = text.endswith("/")
    return re.compile("".join(parts), re.DOTALL).fullmatch


def absolute(path: str) -> str:
    """The absolute path, with `~` resolved."""
    try:
        path = os.path.abspath(os.path.expanduser(path))
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: the current folder was removed; change to one that is there"
        ) from error
    return "/" + path.lstrip("/")  # POSIX lets `//` begin another name, for the same file here


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether something is there, links followed; StorageError if the system cannot say now."""
    return _status(path) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is there, likewise."""
    status = _status(path)
    return status is not None and S_ISDIR(status.st_mode)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is there, likewise."""
    status = _status(path)
    return status is not None and S_ISREG(status.st_mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    """Whether a link is there, which may lead nowhere; StorageError likewise."""
    return S_ISLNK(_own_mode(path))


def _own_mode(path: str | os.PathLike[str]) -> int:
    """The mode of what is there, links not followed, 0 of nothing; OSError if it is not known."""
    with suppress(FileNotFoundError, NotADirectoryError), naming(path):
        return os.lstat(path).st_mode
    return 0


def _status(path: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return os.stat(path)
    except ValueError:  # a name that no file can have
        return None
    except OSError as error:
        raise_passing(error, path)
        return None


def list_files(pattern: str) -> list[FileInfo]:
    """Files that a path, folder or glob names, as `bert_embed.storage.files.list_files`."""
    path = absolute(pattern)
    if is_folder(path):
        paths = list(_walk(path))
    elif exists(path):
        paths = [path]
    elif "**" in path:  # a link that leads back is followed once
        folder, matches = fixed_folder(path) or "/", glob_matcher(path)
        hidden = "/." in path.removeprefix(folder)
        paths = [file for file in _walk(folder, hidden) if matches(file)]
    else:
        paths = [file for file in matching(path) if not is_folder(file)]
    return [_checked(file) for file in sorted(set(paths))]


def matching(pattern: str) -> list[str]:
    """Files, folders and links that a glob without `**` names, or a path.

    InputError for a folder on the way that may not be looked into.
    """
    places = ["/"]
    for part in absolute(pattern).split("/")[1:]:
        matches, above, places = glob_matcher(part), places, []
        for folder in above:
            try:
                if is_glob(part):
                    names = (entry.name for entry in _scanned(folder))
                    places += [os.path.join(folder, name) for name in names if matches(name)]
                elif _own_mode(place := os.path.join(folder, part)):
                    places.append(place)
            except OSError as error:
                _refuse(error, folder)
    return places


def _walk(folder: str, hidden: bool = False, seen: set[str] | None = None) -> Iterator[str]:
    """Files in a folder and below, each folder once; `hidden` ones on request."""
    seen = set() if seen is None else seen
    folders = []
    try:
        with naming(folder):
            real = os.path.realpath(folder, strict=True)
        if real in seen:  # a link that leads back
            return
        seen.add(real)
        for entry in _scanned(folder):
            if hidden or not entry.name.startswith("."):
                if entry.is_dir(follow_symlinks=False) or (
                    entry.is_symlink() and is_folder(entry.path)
                ):
                    folders.append(entry.path)
                else:
                    yield entry.path
    except OSError as error:
        _refuse(error, folder)
    # In order: of two links to the same folder the first one counts.
    for below in sorted(folders):
        yield from _walk(below, hidden, seen)


def names_by_file(paths: Iterable[str]) -> dict[str, list[str]]:
    """Paths by the file that they name, which a link on their way may name again."""
    real_folder = functools.cache(functools.partial(os.path.realpath, strict=True))
    names: dict[str, list[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        with naming(path):
            file = real_folder(path) if is_link(path) else os.path.join(real_folder(folder), name)
        names.setdefault(file, []).append(path)
    return names


def _refuse(error: OSError, folder: str) -> None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):  # removed meanwhile
        return
    raise_passing(error, folder, "listed")
    raise InputError(f"{folder} cannot be listed ({error.strerror}): make it readable") from error


def _checked(path: str) -> FileInfo:
    """The file, if a job can read it repeatedly under its name."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{path!r} has a name that is not UTF-8, rename it") from error
    try:
        status = os.stat(path)
    except OSError as error:
        raise_passing(error, path)
        if os.path.islink(path):
            raise InputError(f"{path} is a broken link") from error
        raise
    if not S_ISREG(status.st_mode):
        raise InputError(f"{path} is not a regular file; write its content to a file first")
    return _info(path, status)


def stat(path: str) -> FileInfo:
    """Size and time of a file now; FileNotFoundError if it does not exist."""
    with naming(path):
        return _info(path, os.stat(path))


def _info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime)


def open_object(path: str, info: FileInfo | None = None) -> BinaryIO:
    """Opens a file for reading; InputError if it is no longer the one that was listed."""
    if info is not None:
        check_unchanged(info, stat(path))
    return opened(path)


def check_unchanged(listed: FileInfo, now: FileInfo) -> None:
    """Raises InputError if a file is not what it was when it was listed."""
    if now != listed:
        size = "as many, but written anew" if now.size == listed.size else now.size
        raise InputError(
            f"{listed.path} changed after the job started: listed with {listed.size} bytes, now "
            f"{size}; {REPLACED}"
        )


def read(path: str) -> bytes | None:
    """All bytes of a file, or None if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError), opened(path) as file:
        return file.read()
    return None


def temporary_name(name: str) -> str:
    """A name beside `name` that no other process or thread chooses."""
    unique = uuid.uuid4().hex[:8]
    return f"{TEMPORARY}{socket.gethostname()}.{pid_namespace()}-{os.getpid()}-{unique}-{name}"


@functools.cache
def pid_namespace() -> str:
    """Tells the numbers of processes apart in containers that share a host name."""
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:  # not Linux, or /proc is not mounted
        return ""


def write_whole(
    path: str, write: Callable[[BinaryIO], object], temporary_folder: str | None, mode: int
) -> tuple[int, str]:
    """Writes a file under a temporary name and renames it; returns its size and CRC32C.

    Its content outlives a power cut, and its name once its folder is synced, by `sync_folder`.
    """
    with _renamed(path, temporary_folder) as temporary:
        with _created(temporary, mode) as file:
            write(file)
            _sync_file(file)
            size = os.fstat(file.fileno()).st_size
        return size, checksum(temporary)


def write_unsynced(path: str, data: bytes, temporary_folder: str | None, mode: int) -> None:
    """Writes a file as `write_whole`, but waits for no disk; StorageError likewise."""
    with _renamed(path, temporary_folder) as temporary, _created(temporary, mode) as file:
        file.write(data)


def _created(path: str, mode: int) -> BinaryIO:
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode))


@contextmanager
def _renamed(path: str, temporary_folder: str | None) -> Iterator[str]:
    """A temporary name for a file that gets its own one when it is complete, or is removed."""
    folder, name = os.path.split(path)
    temporary = os.path.join(temporary_folder or folder, temporary_name(name))
    with _written(path):
        try:
            yield temporary
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.remove(temporary)
            raise


@contextmanager
def _written(path: str) -> Iterator[None]:
    """Raises StorageError with the name of a file that the system does not let us write."""
    try:
        yield
    except OSError as error:
        if not error.strerror:
            raise
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def sync_folder(folder: str) -> None:
    """Waits until the names of the files in a folder are on its disk, where it can be asked to.

    Until then a power cut may take back files that were created, renamed or removed there.
    """
    with _written(folder):
        try:
            _sync(folder)
        except OSError as error:  # some file systems sync no folders, and some folders are closed
            if is_passing(error):
                raise


def _sync(path: str) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def place_folder(made: str, path: str, replaces: bool = False) -> None:
    """Gives a complete folder its own name, of which a power cut leaves all or nothing.

    It `replaces` what has that name, of which others may have files open and read on; else
    FileExistsError if something is there.
    """
    for folder, _, names in os.walk(made):
        for name in names:
            with _written(os.path.join(folder, name)):
                _sync(os.path.join(folder, name))
        sync_folder(folder)
    above, name = os.path.split(path)
    prefix = f".{name}.old."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=above, ignore_cleanup_errors=True) as old:
        if replaces:
            with suppress(FileNotFoundError):
                os.rename(path, os.path.join(old, name))
        try:
            os.rename(made, path)
        except OSError as error:
            if not os.path.lexists(path):
                raise
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
    sync_folder(above)


def create(path: str, data: bytes) -> bool:
    """Creates a file, by hard link or exclusively; False if another process was first.

    A power cut later leaves the whole file.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            _sync_file(file)
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here, or a reason that the open below meets, too
        with _written(path):
            if not _open_exclusive(path, data):
                return False
    finally:
        with suppress(OSError):  # what stays there is swept
            os.remove(temporary)
    sync_folder(folder)
    return True


def change(
    path: str, changed: Callable[[bytes | None], bytes | None], temporary_folder: str | None
) -> None:
    """Changes a file as `bert_embed.storage.files.change`, alone where there are locks."""
    with _alone(path):
        if (data := changed(read(path))) is not None:
            write_whole(path, lambda file: file.write(data), temporary_folder, 0o666)
            if temporary_folder is None:  # else it is one of many, whose folder is synced later
                sync_folder(os.path.dirname(path))


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Keeps other changes of a file away: by a lock of it, or of its folder until it is there."""
    while (opened := _opened(path)) is not None:
        place, number = opened
        try:
            try:
                fcntl.flock(number, fcntl.LOCK_EX)
            except OSError as error:
                raise_passing(error, path, "locked")  # else this file system has no locks
            # Who had the lock may have replaced the file, or created it.
            if is_at(place, number) and (place == path or not exists(path)):
                yield
                return
        finally:
            with suppress(OSError):  # a process that was forked meanwhile has the lock, too
                fcntl.flock(number, fcntl.LOCK_UN)
            os.close(number)
    yield  # why nothing can be opened is said when the file is written


def _opened(path: str) -> tuple[str, int] | None:
    for place, mode in (
        (path, os.O_RDWR),  # as locks of NFS need it
        (path, os.O_RDONLY),
        (os.path.dirname(path), os.O_RDONLY),
    ):
        try:
            return place, os.open(place, mode)
        except OSError as error:
            raise_passing(error, place)
    return None


def _sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _open_exclusive(path: str, data: bytes) -> bool:
    opened = False
    try:
        with open(path, "xb") as file:
            opened = True
            file.write(data)
            _sync_file(file)
    except FileExistsError:
        return False
    except BaseException:
        if opened:
            os.remove(path)
        raise
    return True


def list_folder(folder: str) -> list[FileInfo]:
    """Files directly in a folder, none if it does not exist; a link counts as itself."""
    files = []
    for entry in _entries(folder):
        # Another process may have renamed or removed it.
        with suppress(FileNotFoundError), naming(entry.path):
            files.append(_info(entry.path, entry.stat(follow_symlinks=False)))
    return files


def names_in(folder: str) -> list[str]:
    """Names of the files directly in a folder; asks for nothing else, so it is quick."""
    return [entry.name for entry in _entries(folder)]


def _entries(folder: str) -> list[os.DirEntry[str]]:
    # os.path.isdir is false, too, where a folder may not be entered
    with suppress(FileNotFoundError, NotADirectoryError), naming(folder, "listed"):
        return [one for one in _scanned(folder) if one.is_symlink() or one.is_file()]
    return []


def _scanned(folder: str) -> list[os.DirEntry[str]]:
    with naming(folder, "listed"):
        return list(os.scandir(folder))


def delete(path: str) -> None:
    """Removes a file, of a link the link itself; one that does not exist is no error."""
    with suppress(FileNotFoundError, NotADirectoryError), naming(path, "removed"):
        os.remove(path)


def is_at(path: str | os.PathLike[str], descriptor: int) -> bool:
    """Whether an open file is still the one at this path."""
    with suppress(FileNotFoundError), naming(path):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def is_running(process: int) -> bool:
    """Whether a process of this host and its namespace is running."""
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # of another user
    return True
