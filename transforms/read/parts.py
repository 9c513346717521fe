"""Distributes the records of a block to numbered parts and marks the last one."""

from collections.abc import Iterable, Iterator
from typing import Any

from bert_embed.transforms.records.read_part import AnyContent, ReadPart
from bert_embed.transforms.records.spec import BlockSpec


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
