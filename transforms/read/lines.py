"""Reads the lines of each part of a block."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from bert_embed.storage.files import is_remote, open_listed
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.read.compressed import BOM, decompressed
from bert_embed.transforms.read.encoding import check_lines
from bert_embed.transforms.read.parts import parts_in_order, parts_read_through
from bert_embed.transforms.records.read_part import ReadPart
from bert_embed.transforms.records.spec import BlockSpec, InputFile, Slice

_PIECE = 1 << 16  # bytes read at a time when a line continues after its block
# A longer line is rejected without being held in memory, so that a small compressed file of one
# endless line needs no more memory than any other. A text of this size has about ten million
# tokens; as bytes, text and tokens it fills the memory of a small worker.
MOST_RECORD_BYTES = 64 << 20


@dataclass(frozen=True)
class Lines:
    """Some whole lines of one file."""

    file: int  # number in the listing
    path: str
    offset: int  # where the first line begins, in decompressed bytes
    data: bytes  # the lines with their ends; only a file's last may lack one
    too_large: int = 0  # bytes of a line over `MOST_RECORD_BYTES`, whose `data` is not held

    @property
    def size(self) -> int:
        """How many bytes of the file they are."""
        return self.too_large or len(self.data)

    @functools.cached_property
    def count(self) -> int:
        """How many lines."""
        if self.too_large:
            return 1
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and self.data != b"")

    def cut(self, most: int) -> tuple["Lines", "Lines | None"]:
        """The first `most` lines, and the rest if there is any."""
        if self.count <= most:
            return self, None
        end = -1
        for _ in range(most):
            end = self.data.index(b"\n", end + 1)
        return _piece_of(self, 0, end + 1), _piece_of(self, end + 1, len(self.data))

    def with_data(self, data: bytes) -> "Lines":
        """The same lines with their bytes, or with none while the bytes are stored elsewhere."""
        return replace(self, data=data)

    @property
    def text(self) -> bytes:
        """The data without a byte order mark."""
        return self.data.removeprefix(BOM) if self.offset == 0 else self.data


def read_parts(spec: BlockSpec, part_docs: int, block_bytes: int) -> Iterator[ReadPart[Lines]]:
    """Reads a block, which has the lines that begin in it, closing a part at `part_docs` lines.

    In a file that is read through, a part also closes at `block_bytes` of text, and an empty part
    marks its end.
    """
    if spec.read_through:
        stream = _stream(spec.slices[0], spec.compression, block_bytes, spec.records)
        yield from parts_read_through(stream, part_docs)
        return
    ranges = itertools.chain.from_iterable(_slices_lines(spec.slices))
    lines = itertools.chain.from_iterable(map(without_large, ranges))
    yield from parts_in_order(lines, part_docs)


def _slices_lines(slices: Sequence[Slice]) -> Iterator[Iterable[Lines]]:
    """The lines of each slice; many threads fetch many small objects."""
    if len(slices) > 1 and is_remote(slices[0].info.path):
        return in_parallel(lambda piece: list(_range_lines(piece)), slices)
    return map(_range_lines, slices)


def _range_lines(piece: Slice) -> Iterator[Lines]:
    if piece.stop <= piece.start:
        return
    before = min(piece.start, 1)  # the byte before shows whether a line begins at `start`
    with open_listed(piece.info) as file:
        file.seek(piece.start - before)
        data = file.read(piece.stop - piece.start + before)
        if before:
            # A line begins in the range if the line before ends in front of the range's last byte.
            line_feed = data.find(b"\n", 0, piece.stop - piece.start)
            if line_feed < 0:
                return
            data = data[line_feed + 1 :]
        else:
            check_lines(piece.info, data)
        first = Lines(piece.file, piece.info.path, piece.stop - len(data), data)
        if data.endswith(b"\n") or piece.stop >= piece.info.size:
            yield first
            return
        last = data.rfind(b"\n") + 1
        held, size = _rest_of_line(file, len(data) - last)
    if held is not None:
        yield replace(first, data=data + held)
        return
    if last:
        yield replace(first, data=data[:last])
    yield replace(first, offset=first.offset + last, data=b"", too_large=len(data) - last + size)


def _rest_of_line(file: BinaryIO, size: int) -> tuple[bytes | None, int]:
    """The rest of a line after its first `size` bytes, None if it is too large; and its length."""
    pieces: list[bytes] = []
    rest = 0
    while piece := file.read(_PIECE):
        end = piece.find(b"\n") + 1
        rest += end or len(piece)
        if size + rest <= MOST_RECORD_BYTES:
            pieces.append(piece[:end] if end else piece)
        if end:
            break
    return (b"".join(pieces) if size + rest <= MOST_RECORD_BYTES else None), rest


def without_large(lines: Lines) -> Iterator[Lines]:
    """The same lines; one that is too large comes apart, without its bytes."""
    if len(lines.data) <= MOST_RECORD_BYTES:
        yield lines
        return
    first = start = 0
    while start < len(lines.data):
        end = lines.data.find(b"\n", start) + 1 or len(lines.data)
        if end - start > MOST_RECORD_BYTES:
            if first < start:
                yield _piece_of(lines, first, start)
            yield replace(lines, offset=lines.offset + start, data=b"", too_large=end - start)
            first = end
        start = end
    if first < start:
        yield _piece_of(lines, first, start)


def _piece_of(lines: Lines, start: int, stop: int) -> Lines:
    return replace(lines, offset=lines.offset + start, data=lines.data[start:stop])


def _stream(
    piece: Slice, compression: str | None, block_bytes: int, records: int | None
) -> Iterator[Lines]:
    """Whole lines from the start of a file, about `block_bytes` at a time, `records` at most."""
    left = records
    for whole in _whole_lines(piece, compression, block_bytes):
        for lines in without_large(whole):
            if left is not None:
                lines = lines.cut(left)[0]
                left -= lines.count
            yield lines
            if left == 0:
                return


def _whole_lines(piece: Slice, compression: str | None, block_bytes: int) -> Iterator[Lines]:
    """Whole lines from the start of a file; a line too large that came in pieces comes apart."""
    offset = size = 0
    carried: list[bytes] = []  # a long line comes in many pieces; `size` is their sum
    for data in stored_pieces(piece, compression, block_bytes):
        if offset == size == 0:
            check_lines(piece.info, data)
        end = data.find(b"\n") + 1 if size > MOST_RECORD_BYTES else data.rfind(b"\n") + 1
        if size > MOST_RECORD_BYTES and end:
            yield Lines(piece.file, piece.info.path, offset, b"", too_large=size + end)
            offset, size, data = offset + size + end, 0, data[end:]
            end = data.rfind(b"\n") + 1
        if end:
            whole = b"".join([*carried, data[:end]])
            yield Lines(piece.file, piece.info.path, offset, whole)
            offset, size, carried, data = offset + len(whole), 0, [], data[end:]
        size += len(data)
        if size <= MOST_RECORD_BYTES:
            carried.append(data)
        else:
            carried = []
    if size > MOST_RECORD_BYTES:
        yield Lines(piece.file, piece.info.path, offset, b"", too_large=size)
    elif size:
        yield Lines(piece.file, piece.info.path, offset, b"".join(carried))


def stored_pieces(piece: Slice, compression: str | None, size: int) -> Iterator[bytes]:
    """The bytes of a slice that begins with its file, or of a whole compressed file."""
    with open_listed(piece.info) as raw:
        if compression is None:
            left = piece.stop
            while data := raw.read(min(size, left)):
                yield data
                left -= len(data)
            return
        yield from decompressed(raw, compression, piece.info.path, size)


def first_lines(file: InputFile, size: int = 1 << 16) -> Lines:
    """Whole lines from the start of a file, about `size` bytes, none too large."""
    empty = Lines(0, file.info.path, 0, b"")
    if file.compression is None:
        first = next(_range_lines(Slice(0, file.info, 0, min(size, file.stop))), empty)
        if not first.too_large:
            return first
    stream = _stream(Slice(0, file.info, 0, file.stop), file.compression, size, file.records)
    return next((lines for lines in stream if not lines.too_large), empty)


def limit_lines(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """Limits a file to its first `limit` lines; returns it and how many it then has."""
    piece = Slice(0, file.info, 0, file.stop)
    if file.compression is None:
        count, stop = _first_lines(piece, limit)
        return replace(file, stop=stop), count
    count = sum(lines.count for lines in _stream(piece, file.compression, 1 << 20, limit))
    return replace(file, records=count), count


def _first_lines(piece: Slice, most: int) -> tuple[int, int]:
    """How many of `most` lines the file has, and where the last of them ends."""
    count = stop = 0
    unfinished = False
    with open_listed(piece.info) as file:
        while count < most and (data := file.read(1 << 20)):
            ends = data.count(b"\n")
            if count + ends >= most:
                taken, _ = Lines(0, "", 0, data).cut(most - count)
                return most, stop + len(taken.data)
            count += ends
            stop += len(data)
            unfinished = not data.endswith(b"\n")
    return count + unfinished, stop
