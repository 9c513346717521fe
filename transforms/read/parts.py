"""Distributes the records of a block to numbered parts and marks the last one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from bert_embed.transforms.records.spec import BlockSpec


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


def parts_in_order(
    contents: Iterable[AnyContent], part_docs: int
) -> Iterator[ReadPart[AnyContent]]:
    """All contents as parts of at most `part_docs` records; the last one is marked."""
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

    Each of the contents, which are all of the file, ends a part, and so do `part_docs` records.
    """
    parts = records = 0
    for each in contents:
        for content in close_parts([each], part_docs):
            if parts % spec.stripes == spec.stripe:
                yield ReadPart(parts, content, last=False)
            records += sum(each.count for each in content)
            parts += 1
    yield end_mark(spec, parts, records)


def end_mark(spec: BlockSpec, parts: int, records: int) -> ReadPart[Any]:
    """The empty part with which a reader ends, after `parts` of all readers."""
    number = parts + (spec.stripe - parts) % spec.stripes  # the next one of its stripe
    return ReadPart(number, (), last=True, end_of_file=records)


def close_parts(contents: Iterable[AnyContent], most: int) -> Iterator[tuple[AnyContent, ...]]:
    """Distributes records to parts of at most `most` each."""
    held: list[AnyContent] = []
    left = most
    for each in contents:
        rest: AnyContent | None = each
        while rest is not None and (rest.size or rest.count):
            taken, rest = rest.cut(left)
            held.append(taken)
            left -= taken.count
            if left == 0 and rest is not None:
                yield tuple(held)
                held, left = [], most
        if left == 0:
            yield tuple(held)
            held, left = [], most
    if held:
        yield tuple(held)
