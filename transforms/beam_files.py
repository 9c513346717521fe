"""Beam's file systems (s3://, hdfs:// and the like), as far as a run needs them."""

import io
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from transforms.file_info import FileInfo, StorageError

_KIND = "application/octet-stream"


def list_files(pattern: str) -> list[FileInfo]:
    """Files that an address, a folder or a glob names, sorted."""
    below = pattern.rstrip("/") + "/**"
    patterns = [below] if pattern.endswith("/") else [pattern, below]
    found = {
        each.path: FileInfo(each.path, each.size_in_bytes, each.last_updated_in_seconds or 0.0)
        for match in FileSystems.match(patterns)
        for each in match.metadata_list
    }
    return [found[path] for path in sorted(found)]


def stat(path: str) -> FileInfo:
    """Size and time of a file now; FileNotFoundError if it is not there."""
    for each in list_files(path):
        if each.path == path:
            return each
    raise FileNotFoundError(path)


def open_object(path: str, info: FileInfo | None = None) -> BinaryIO:
    """Opens the stored bytes, never decompressed; with `info` only what was listed.

    Raises:
        FileNotFoundError: It is not what was listed any more.
    """
    if info is not None and stat(path) != info:
        raise FileNotFoundError(path)
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def read(path: str) -> bytes | None:
    """All bytes of a file, or None if there is none."""
    try:
        if not FileSystems.exists(path):
            return None
        with open_object(path) as file:
            return file.read()
    except BeamIOError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def write(path: str, made: io.BytesIO) -> None:
    """Writes a file as a whole, the bytes being at hand already."""
    with FileSystems.create(path, _KIND, CompressionTypes.UNCOMPRESSED) as file:
        file.write(made.getbuffer())


def create(path: str, data: bytes) -> bool:
    """Writes a file if there is none.

    An existence check stands before the write, Beam has no such call: of two jobs that start
    together both may go on, which does no harm to identical ones, they write equal files.
    """
    if read(path) is not None:
        return False
    write(path, io.BytesIO(data))
    return True


def list_folder(folder: str) -> list[FileInfo]:
    """Files directly in a folder."""
    matches = FileSystems.match([folder.rstrip("/") + "/*"])
    return [
        FileInfo(each.path, each.size_in_bytes, each.last_updated_in_seconds or 0.0)
        for match in matches
        for each in match.metadata_list
    ]


def delete(paths: list[str]) -> None:
    """Removes files."""
    FileSystems.delete(paths)
