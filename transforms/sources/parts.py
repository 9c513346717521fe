"""Parts: what a reader finds in, dealt out to numbered parts, the last of them marked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from transforms.block_spec import BlockSpec


class Content(Protocol):
    """Some neighbouring records of one file, not looked into yet."""

    @property
    def file(self) -> int:
        """The file's number in the listing."""

    @property
    def count(self) -> int:
        """How many records."""

    @property
    def size(self) -> int:
        """What they take up of the file's `stop` in the plan: bytes, or rows."""

    def cut(self, most: int) -> tuple[Self, Self | None]:
        """The first `most` records, and the rest if there is any."""


AnyContent = TypeVar("AnyContent", bound=Content)


@dataclass(frozen=True)
class ReadPart(Generic[AnyContent]):
    """What one part holds.

    Attributes:
        number: The part's number in its block.
        contents: In the input's order.
        last: Whether the reader has no further part.
        end_of_file: In the part that marks the end of a file read through: records of the file.
    """

    number: int
    contents: tuple[AnyContent, ...]
    last: bool
    end_of_file: int | None = None


def parts_in_order(
    contents: Iterable[AnyContent], part_docs: int
) -> Iterator[ReadPart[AnyContent]]:
    """All that a reader finds, as parts of at most `part_docs` records, the last one marked."""
    parts = enumerate(close_parts(contents, part_docs))
    number, held = next(parts, (0, ()))
    for following, content in parts:
        yield ReadPart(number, held, last=False)
        number, held = following, content
    yield ReadPart(number, held, last=True)


def parts_read_through(
    spec: BlockSpec, contents: Iterable[AnyContent], part_docs: int
) -> Iterator[ReadPart[AnyContent]]:
    """The parts of a reader's stripe, then an empty one that marks its end of the file.

    Args:
        spec: Of a file that each reader reads from start to end.
        contents: All of the file; each closes a part.
        part_docs: Most records of a part.
    """
    parts = records = 0
    for each in contents:
        for content in close_parts([each], part_docs):
            if parts % spec.stripes == spec.stripe:
                yield ReadPart(parts, content, last=False)
            records += sum(each.count for each in content)
            parts += 1
    mark = parts + (spec.stripe - parts) % spec.stripes  # the next number of this stripe
    yield ReadPart(mark, (), last=True, end_of_file=records)


def close_parts(contents: Iterable[AnyContent], most: int) -> Iterator[tuple[AnyContent, ...]]:
    """Deals records out into parts of at most `most` each."""
    held: list[AnyContent] = []
    room = most
    for each in contents:
        rest: AnyContent | None = each
        while rest is not None and rest.size:
            taken, rest = rest.cut(room)
            held.append(taken)
            room -= taken.count
            if room == 0 and rest is not None:
                yield tuple(held)
                held, room = [], most
        if room == 0:
            yield tuple(held)
            held, room = [], most
    if held:
        yield tuple(held)
