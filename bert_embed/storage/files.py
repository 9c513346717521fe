"""Lists, reads and writes files: on this machine, in Cloud Storage (gs://) or in S3 (s3://)."""

import glob
import importlib
import io
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar

from bert_embed.base.errors import InputError, StorageError, is_passing, naming
from bert_embed.base.threads import in_parallel
from bert_embed.storage import local
from bert_embed.storage.local import (
    PUT_BACK,
    REPLACED,
    TEMPORARY,
    FileInfo,
    crc32c_of_bytes,
    fixed_folder,
    glob_matcher,
    is_glob,
    split_address,
    temporary_name,
)

_TEMPORARY_NAME = re.compile(r"\.tmp-.+-[0-9]+-[0-9a-f]{8}-.+")
_DAY = 24 * 3600.0
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_STORES = {"gs": "gcs", "s3": "s3"}  # the modules of the addresses that begin so


def is_remote(path: str) -> bool:
    """Whether a path is the address of something in a store, such as gs:// or s3://."""
    return "://" in path


def for_each(
    place: str, function: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[_Result]:
    """What a function gives for each item, in order; many at once where a place is in a store."""
    return in_parallel(function, items) if is_remote(place) else map(function, items)


def _store(path: str) -> Any:
    """The module that reads and writes such paths; imported late, local runs need no other."""
    return (
        importlib.import_module(f"bert_embed.storage.{_kind(path)}") if is_remote(path) else local
    )


def _kind(address: str) -> str:
    scheme = address.partition("://")[0]
    if scheme not in _STORES:
        known = " and ".join(f"{prefix}://" for prefix in _STORES)
        raise InputError(
            f"{address}: files are read and written on this machine, {known}; "
            f"mount {scheme}:// as a folder, or copy"
        )
    return _STORES[scheme]


def absolute(path: str) -> str:
    """A local path as absolute path, an address as it is; InputError if nothing can be there."""
    if not is_remote(path):
        return local.absolute(path)
    _kind(path)
    split_address(path)
    return path


def join(folder: str, name: str) -> str:
    """The path of a name in a folder."""
    return folder.rstrip("/") + "/" + name


def list_files(pattern: str) -> list[FileInfo]:
    """Files that a path, folder or glob names, sorted; hidden files of a folder are left out.

    A folder stands for every file below it, through links too. A path that exists is taken
    literally, even if it holds characters of a glob. InputError: a pipe, device or broken link.
    """
    if not is_remote(pattern):
        return local.list_files(pattern)
    store, name = _store(pattern), split_address(pattern)[1]
    files = {}
    if name and not name.endswith("/") and (info := store.find(pattern)) is not None:
        files[info.path] = info
    prefix = _prefix(name)
    matches = glob_matcher(f"{glob.escape(prefix)}**")
    if is_glob(name) and not files and not store.listed(pattern, prefix, bool, most=1):
        prefix, matches = _prefix(fixed_folder(name)), glob_matcher(name)

    files |= {info.path: info for info in store.listed(pattern, prefix, matches)}
    return [files[path] for path in sorted(files) if not path.endswith("/")]


def list_matching(folder: str, patterns: list[str]) -> list[FileInfo]:
    """Files that globs match which lie in a folder or below, sorted; a store is asked once."""
    if not is_remote(folder):
        found = {file for pattern in patterns for file in local.list_files(pattern)}
        return sorted(found, key=lambda file: file.path)
    matchers = [glob_matcher(split_address(pattern)[1]) for pattern in patterns]
    infos: list[FileInfo] = _store(folder).listed(
        *(folder, _prefix(split_address(folder)[1])),
        lambda name: any(matches(name) for matches in matchers),
    )
    return sorted(infos, key=lambda file: file.path)


def _prefix(folder: str) -> str:
    """What the names of the objects below a folder of a bucket begin with."""
    folder = folder.rstrip("/")
    return folder and f"{folder}/"


def stat(path: str) -> FileInfo:
    """Size and time of one file now; FileNotFoundError if it does not exist."""
    if not is_remote(path):
        return local.stat(path)
    info: FileInfo | None = _store(path).find(path)
    if info is None:
        raise FileNotFoundError(f"{path} does not exist")
    return info


def open_raw(path: str) -> BinaryIO:
    """Opens the stored bytes for reading, never decompressed, seekable."""
    return (
        _store(path).open_object(path, stat(path)) if is_remote(path) else local.open_object(path)
    )


@contextmanager
def open_listed(info: FileInfo) -> Iterator[BinaryIO]:
    """Opens a file that was listed, as `open_raw` does; InputError if it changed since.

    A local file is compared when it is opened and after it was read. Of an object the
    version that was listed is read, by its generation or ETag, which takes no further request.
    """
    try:
        with _store(info.path).open_object(info.path, info) as file:
            yield file
        if not is_remote(info.path):
            local.check_unchanged(info, stat(info.path))
    except FileNotFoundError as error:
        if is_remote(info.path):  # put back it would be another generation
            message = f"{info.path} was replaced or removed after the job started; {REPLACED}"
        else:
            message = f"{info.path} is gone since the job started; {PUT_BACK}"
        raise InputError(message) from error


def size_of(path: str) -> int | None:
    """Bytes of a file, None if it does not exist."""
    with suppress(FileNotFoundError):
        return stat(path).size
    return None


def read_bytes(path: str) -> bytes | None:
    """All bytes of a small file, or None if it does not exist."""
    return _store(path).read_version(path)[0] if is_remote(path) else local.read(path)


class Stored(NamedTuple):
    """What was written: the file's bytes, and its CRC32C in base64 as Cloud Storage reports it."""

    size: int
    crc32c: str


def write_whole(
    path: str,
    write: Callable[[BinaryIO], object],
    temporary_folder: str | None = None,
    mode: int = 0o666,
) -> Stored:
    """Writes a file that appears complete or not at all, also under two writers at once.

    A local file is written in `temporary_folder` on the same file system, else beside it, then
    renamed. An object's bytes are collected first, so that an error never begins an upload.
    After a power cut a local file is there whole, or not at all, until `sync_folder` of its folder.
    """
    if not is_remote(path):
        return Stored(*local.write_whole(path, write, temporary_folder, mode))
    buffer = io.BytesIO()
    write(buffer)
    _store(path).write(path, buffer)
    data = buffer.getvalue()
    return Stored(len(data), crc32c_of_bytes(data))


def write_bytes(path: str, data: bytes) -> None:
    """Writes a record as `write_whole` does, and waits until its name outlives a power cut."""
    write_whole(path, lambda file: file.write(data))
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Waits until what was written and removed in a folder outlives a power cut.

    This takes about as long as to sync a file, so whoever writes thousands asks once for all.
    """
    if not is_remote(folder):
        local.sync_folder(folder)


def write_unsynced(
    path: str, data: bytes, temporary_folder: str | None = None, mode: int = 0o666
) -> None:
    """Writes bytes as `write_whole`, but they need not outlive a crash of the machine."""
    if is_remote(path):
        _store(path).write(path, io.BytesIO(data))
    else:
        local.write_unsynced(path, data, temporary_folder, mode)


def sweep_temporary(folder: str) -> int:
    """Removes temporary files a day old or of ended processes here; returns how many.

    A store has none: each object is written as a whole.
    """
    listed = [] if is_remote(folder) else _in_folder(folder)
    abandoned = [file.path for file in listed if _is_abandoned(file)]
    remove(abandoned)
    return len(abandoned)


def _is_abandoned(file: FileInfo) -> bool:
    name = file.path.rpartition("/")[2]
    if not _TEMPORARY_NAME.fullmatch(name):
        return False
    if time.time() - file.modified > _DAY:
        return True
    ours = f"{TEMPORARY}{socket.gethostname()}.{local.pid_namespace()}-"
    if not name.startswith(ours):
        return False
    process = name.removeprefix(ours).split("-")[0]
    return process.isdigit() and not local.is_running(int(process))


def sizes_in(folder: str) -> dict[str, int]:
    """Names and bytes of the files, and of links themselves, directly in a folder."""
    return {file.path.rpartition("/")[2]: file.size for file in _in_folder(folder)}


def _in_folder(folder: str, most: int = 0) -> list[FileInfo]:
    """The files directly in a folder; of a store, if not 0, `most` of those in it or below."""
    if not is_remote(folder):
        return local.list_folder(folder)
    prefix = _prefix(split_address(folder)[1])
    # An object of that name is a console's placeholder, which may be the one that is asked for.
    wanted = bool if most else prefix.__ne__
    # A limited page of Cloud Storage counts folders, too, where those below them are left out.
    infos: list[FileInfo] = _store(folder).listed(
        folder, prefix, wanted, direct=not most, most=most
    )
    return infos


def names_in(folder: str) -> list[str]:
    """Names of the files directly in a folder, sorted."""
    return sorted(sizes_in(folder) if is_remote(folder) else local.names_in(folder))


def holds_files(folder: str) -> bool:
    """Whether a file is in a folder or below, or, locally, the folder is there; one request."""
    return bool(_in_folder(folder, most=1)) if is_remote(folder) else local.is_folder(folder)


def files_in(folder: str, wanted: Callable[[str], bool]) -> list[FileInfo]:
    """The files directly in a folder whose names are `wanted`, sorted by path."""
    if is_remote(folder):
        files = [file for file in _in_folder(folder) if wanted(file.path.rpartition("/")[2])]
        return sorted(files, key=lambda file: file.path)
    infos = []
    for name in sorted(filter(wanted, local.names_in(folder))):
        with suppress(FileNotFoundError):
            infos.append(stat(join(folder, name)))
    return infos


def checksum(path: str) -> str:
    """The CRC32C of a file, in base64; of an object as the store reports it, without reading it."""
    return _store(path).checksum(path)


def make_folder(folder: str) -> None:
    """Makes a local folder and its parents; objects of a store need none."""
    if not is_remote(folder):
        with naming(folder, "made"):
            os.makedirs(folder, exist_ok=True)


def make_below(folder: str, name: str) -> None:
    """Makes a local folder, and those between, below one that must still be there.

    To make that one anew would hide that it was moved away, with all that it holds.
    """
    if is_remote(folder):
        return
    made = folder
    try:
        if not local.is_folder(join(folder, name)):
            for part in name.split("/"):
                made = join(made, part)
                with suppress(FileExistsError):
                    os.mkdir(made)
    except FileNotFoundError as error:
        raise StorageError(
            f"{folder} was moved or removed while this job wrote into it: {PUT_BACK}"
        ) from error
    except OSError as error:
        raise StorageError(f"{made} cannot be made: {error.strerror or error}") from error


def remove_folder(folder: str) -> None:
    """Removes a local folder if it is there and empty."""
    if not is_remote(folder):
        with suppress(OSError):  # it holds something, or another process wrote there
            os.rmdir(folder)


def remove(paths: list[str]) -> None:
    """Removes files; one that does not exist is no error."""
    remote = [path for path in paths if is_remote(path)]
    for _ in in_parallel(lambda path: _store(path).delete(path), remote):
        pass
    for path in paths:
        if not is_remote(path):
            local.delete(path)


def create_exclusive(path: str, data: bytes) -> bool:
    """Creates a file unless it exists, then False; a server of S3 may not know how to."""
    return _store(path).create(path, data)


def change(
    path: str,
    changed: Callable[[bytes | None], bytes | None],
    temporary_folder: str | None = None,
    is_new: bool = False,
) -> None:
    """Changes a small file if it is still what was read, which is read again until it is.

    `changed` takes its bytes, None where there is no file, and gives those that it gets, None to
    leave it as it is. A store compares the generation or ETag, this machine has a lock for it. One
    that most likely `is_new` is not read before.
    """
    store = _store(path)
    if not is_remote(path):
        store.change(path, changed, temporary_folder)
        return
    if is_new and (new := changed(None)) is not None and store.create(path, new):
        return
    while True:
        data, version = store.read_version(path)
        if (new := changed(data)) is None or store.write_over(path, new, version):
            return


def copy_file(source: str, target: str) -> None:
    """Copies one file, local or remote, as a whole."""
    with open_raw(source) as file:
        write_whole(target, lambda out: shutil.copyfileobj(file, out, 8 << 20))


def check_writable(folder: str) -> None:
    """Writes a file into a folder that exists, and removes it; OSError says why it cannot."""
    probe = join(folder, temporary_name("probe"))
    try:
        write_unsynced(probe, b"probe")
    except StorageError as error:
        cause = error.__cause__
        if not is_remote(folder) and isinstance(cause, OSError) and not is_passing(cause):
            raise cause from None  # no permission, or no folder: so it stays
        raise
    with suppress(StorageError):  # it is written; what is left of it is swept
        remove([probe])
