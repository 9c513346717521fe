"""Defines ReadPart, a part before it is parsed, and FileCut, where the parts of a file are."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar


class Content(Protocol):
    """Some neighbouring records of one file, before they are parsed."""

    @property
    def file(self) -> int:
        """The file's number in the listing."""

    @property
    def count(self) -> int:
        """How many records."""

    @property
    def size(self) -> int:
        """How much of the file they are: bytes, or rows, as `stop` counts in the plan."""

    def cut(self, most: int) -> tuple[Self, Self | None]:
        """The first `most` records, and the rest if there is any."""


AnyContent = TypeVar("AnyContent", bound=Content)


@dataclass(frozen=True)
class ReadPart(Generic[AnyContent]):
    """The records of one part.

    Attributes:
        number: The part's number in its block.
        contents: In the input's order.
        last: Whether the reader has no further part.
        end_of_file: In the part that marks the end of a file read through: records of the file.
        seconds: Spent on it before, where the file was cut.
    """

    number: int
    contents: tuple[AnyContent, ...]
    last: bool
    end_of_file: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class CutPart:
    """A part of a file that was cut.

    Attributes:
        part: The part; its records have no bytes.
        size: How many bytes they had.
        crc32c: Of what is stored of them; "" if nothing is.
    """

    part: ReadPart[Any]
    size: int
    crc32c: str = ""


@dataclass(frozen=True)
class FileCut:
    """Where the parts of one reader of a file are.

    Attributes:
        parts: In the file's order, without those that were finished.
        mark: The empty part that marks the end of the file.
        folder: Of the run whose `_state` holds the texts; None: they are read from the file.
    """

    parts: tuple[CutPart, ...]
    mark: ReadPart[Any]
    folder: str | None
