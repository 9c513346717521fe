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
    """The records of one part.

    Attributes:
        number: The part's number in its block.
        contents: In the input's order.
        last: Whether the block has no further part.
        end_of_file: In the part that marks the end of a file read through: records of the file.
        seconds: Spent on it before, where the file was cut.
    """

    number: int
    contents: tuple[_Records, ...]
    last: bool
    end_of_file: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class CutPart:
    """A part of a file that was cut, and where its bytes are.

    Attributes:
        part: The part; its records have no bytes.
        size: How many bytes they had.
        folder: The output whose `_state` holds them; None: they are read from the file.
        crc32c: Of what is stored there.
    """

    part: ReadPart[Any]
    size: int
    folder: str | None = None
    crc32c: str = ""
