"""Defines FileInfo, the facts of a file in a listing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing."""

    path: str  # absolute, or URL
    size: int  # bytes as stored (compressed bytes for a compressed file)
    modified: float  # seconds since 1970
    generation: int = 0  # of an object of Cloud Storage, new with each write; else 0
    etag: str = ""  # of an object of S3, another one for another content; else empty
