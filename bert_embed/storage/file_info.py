"""Defines FileInfo, the facts of a file in a listing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing.

    Attributes:
        path: Absolute path, or URL.
        size: Bytes as stored (compressed bytes for a compressed file).
        modified: Time of the last change in seconds since 1970.
        generation: Of an object of Cloud Storage, a new number each time it is written; else 0.
    """

    path: str
    size: int
    modified: float
    generation: int = 0
