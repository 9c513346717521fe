"""Lists, reads and writes objects of Amazon S3, and of what speaks its protocol, through Beam."""

import glob
import io
from collections.abc import Iterator
from typing import BinaryIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.value_provider import RuntimeValueProvider

from bert_embed.storage.checksums import crc32c_of_bytes
from bert_embed.storage.errors import InputError, StorageError
from bert_embed.storage.file_info import FileInfo
from bert_embed.storage.globs import fixed_folder, glob_matcher, is_glob
from bert_embed.storage.packages import missing

_KIND = "application/octet-stream"

# Where no flag of Beam's was given, the environment has everything, but Beam wants options.
if RuntimeValueProvider.runtime_options is None:
    RuntimeValueProvider.set_runtime_options({})


def list_files(pattern: str) -> list[FileInfo]:
    """Files that an address, a folder or a glob names, sorted, as `gcs.list_files`."""
    folder = fixed_folder(pattern) if is_glob(pattern) else pattern.rstrip("/")
    matches = glob_matcher(pattern if is_glob(pattern) else folder + "/**")
    exact = [] if is_glob(pattern) or pattern.endswith("/") else [pattern]
    files = {
        file.path: file
        for file in _matching([*exact, f"{folder}/**"])
        if file.path == pattern or matches(file.path)
    }
    return [files[path] for path in sorted(files)]


def _matching(patterns: list[str], limits: list[int] | None = None) -> Iterator[FileInfo]:
    try:
        matches = FileSystems.match(patterns, limits)
    except BeamIOError as error:
        raise _failure(patterns[0], "listed", error) from error
    for match in matches:
        for metadata in match.metadata_list:
            yield FileInfo(
                metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds or 0.0
            )


def _failure(path: str, done: str, error: Exception) -> Exception:
    """What a store said, without the sentences that Beam puts around it."""
    while isinstance(error, BeamIOError) and error.exception_details:
        error = next(iter(error.exception_details.values()))
    if "boto3" in str(error):
        return InputError(missing("s3://", "boto3"))
    return StorageError(f"{path} cannot be {done}: {error}")


def stat(path: str) -> FileInfo:
    """Size and time of a file now; FileNotFoundError if it does not exist."""
    for file in list_files(path):
        if file.path == path:
            return file
    raise FileNotFoundError(path)


def open_object(path: str, info: FileInfo | None = None) -> BinaryIO:
    """Opens the stored bytes; FileNotFoundError if it is no longer the file that was listed."""
    if info is not None and stat(path) != info:
        raise FileNotFoundError(path)
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def read(path: str) -> bytes | None:
    """All bytes of a file, or None if it does not exist."""
    try:
        if not FileSystems.exists(path):
            return None
        with open_object(path) as file:
            return file.read()
    except BeamIOError as error:
        raise _failure(path, "read", error) from error


def checksum(path: str) -> str:
    """The CRC32C of a file's bytes, in base64; reads them, as Beam does not ask for it."""
    data = read(path)
    if data is None:
        raise FileNotFoundError(path)
    return crc32c_of_bytes(data)


def write(path: str, buffer: io.BytesIO) -> None:
    """Writes a file as a whole; StorageError if it cannot be written."""
    try:
        with FileSystems.create(path, _KIND, CompressionTypes.UNCOMPRESSED) as file:
            file.write(buffer.getbuffer())
    except Exception as error:  # boto3's own, which Beam does not wrap here
        raise _failure(path, "written", error) from error


def create(path: str, data: bytes) -> bool:
    """Creates a file if it does not exist; of two jobs that start together both may."""
    if read(path) is not None:
        return False
    write(path, io.BytesIO(data))
    return True


def list_folder(folder: str) -> list[FileInfo]:
    """Files directly in a folder."""
    return list(_matching([glob.escape(folder.rstrip("/")) + "/*"]))


def holds_files(folder: str) -> bool:
    """Whether a file is directly in a folder."""
    return any(_matching([glob.escape(folder.rstrip("/")) + "/*"], limits=[1]))


def delete(paths: list[str]) -> None:
    """Removes files."""
    FileSystems.delete(paths)
