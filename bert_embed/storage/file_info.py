"""Opens files of this machine; says what is the same of all stores: facts, checksums, globs."""

import base64
import errno
import fnmatch
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import google_crc32c

from bert_embed.base.errors import InputError, naming


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


def crc32c_of(path: str | os.PathLike[str]) -> str:
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
