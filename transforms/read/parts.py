"""Distributes the records of a block to numbered parts and marks the last one."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bert_embed.transforms.records.read_part import AnyContent, ReadPart

MOST_PART_BYTES = 32 << 20  # after which a part of records of any size is closed


def parts_in_order(
    contents: Iterable[AnyContent],
    part_docs: int,
    bytes_of: Callable[[AnyContent], np.ndarray] | None = None,
) -> Iterator[ReadPart[AnyContent]]:
    """All contents as parts of at most `part_docs` records; the last one is marked.

    `bytes_of` gives the bytes of each record, int64 `[records]`; a part is also closed after the
    record with which it has `MOST_PART_BYTES`.
    """
    parts = enumerate(close_parts(contents, part_docs, bytes_of))
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


def close_parts(
    contents: Iterable[AnyContent],
    most: int,
    bytes_of: Callable[[AnyContent], np.ndarray] | None = None,
) -> Iterator[tuple[AnyContent, ...]]:
    """Distributes records to parts of at most `most` each, and of about so many bytes."""
    held: list[AnyContent] = []
    left, room = most, MOST_PART_BYTES
    for content in contents:
        rest: AnyContent | None = content
        ends = None if bytes_of is None else np.cumsum(bytes_of(content))
        at = before = 0  # records of this content in parts, and their bytes
        while rest is not None and (rest.size or rest.count):
            if ends is None:
                taken, rest = rest.cut(left)
            else:  # up to the record, included, with which the part is full
                stop = int(np.searchsorted(ends, before + room)) + 1
                taken, rest = rest.cut(min(left, stop - at))
                at += taken.count
                room -= int(ends[at - 1]) - before
                before = int(ends[at - 1])
            held.append(taken)
            left -= taken.count
            if (left == 0 or room <= 0) and rest is not None:
                yield tuple(held)
                held, left, room = [], most, MOST_PART_BYTES
        if left == 0 or room <= 0:
            yield tuple(held)
            held, left, room = [], most, MOST_PART_BYTES
    if held:
        yield tuple(held)
