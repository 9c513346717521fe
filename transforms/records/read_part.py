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
    """The records of one part, in the input's order.

    `end_of_file` is how many records a file read through has, in the part that marks its end;
    `seconds` were spent on the part before, where the file was cut.
    """

    number: int
    contents: tuple[_Records, ...]
    last: bool
    end_of_file: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class CutPart:
    """A part of a file that was cut; its records have no bytes, `size` is how many they had.

    These are in the `_state` of the output `folder`, compressed, with `crc32c`; None: in the file.
    """

    part: ReadPart[Any]
    size: int
    folder: str | None = None
    crc32c: str = ""
