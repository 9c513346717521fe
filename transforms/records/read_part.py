"""Defines ReadPart, the records of a part before they are parsed, and CutPart, where they lie."""

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
_Records = TypeVar("_Records")


@dataclass(frozen=True)
class ReadPart(Generic[_Records]):
    """The records of one part, in the input's order."""

    number: int
    contents: tuple[_Records, ...]
    last: bool
    end_of_file: int | None = None  # records of a file read through, in the part that marks its end
    seconds: float = 0.0  # spent on the part before, where the file was cut


@dataclass(frozen=True)
class CutPart:
    """A part of a file that was cut; its records have no bytes."""

    part: ReadPart[Any]
    size: int  # bytes that the records had
    folder: str | None = None  # output whose `_state` has them, compressed; None: in the file
    crc32c: str = ""  # of the file in `_state`
