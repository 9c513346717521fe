"""Distributes the records of a block to numbered parts and marks the last one."""

from collections.abc import Iterable, Iterator

from bert_embed.transforms.records.read_part import AnyContent, ReadPart


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
    contents: Iterable[AnyContent], part_docs: int
) -> Iterator[ReadPart[AnyContent]]:
    """A file's parts, each of one content or `part_docs` records, then an empty one for its end."""
    number = records = 0
    for chunk in contents:
        for content in close_parts([chunk], part_docs):
            yield ReadPart(number, content, last=False)
            records += sum(piece.count for piece in content)
            number += 1
    yield ReadPart(number, (), last=True, end_of_file=records)


def close_parts(contents: Iterable[AnyContent], most: int) -> Iterator[tuple[AnyContent, ...]]:
    """Distributes records to parts of at most `most` each."""
    held: list[AnyContent] = []
    left = most
    for content in contents:
        rest: AnyContent | None = content
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
