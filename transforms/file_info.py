"""FileInfo: what a listing tells of a file; StorageError: a store that fails."""

from dataclasses import dataclass


class StorageError(OSError):
    """A store that does not answer, or answers with errors, however often it is asked; a full disk.

    One sentence is its only argument: Beam adds the step's name to that, and would make another
    kind of error of one whose first argument is a number.
    """


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing.

    Attributes:
        path: Absolute path, or URL.
        size: Bytes as stored (compressed bytes for a compressed file).
        modified: Time of the last change in seconds since 1970.
        generation: Of an object of Cloud Storage, another one each time it is written; else 0.
    """

    path: str
    size: int
    modified: float
    generation: int = 0
