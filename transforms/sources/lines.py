"""Lines: a BlockSpec in, the whole lines that belong to each of its parts out."""

import bz2
import functools
import gzip
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import zstandard

from transforms.block_spec import BlockSpec, InputFile, Slice
from transforms.files import open_raw, stat
from transforms.sources.encoding import check_encoding
from transforms.sources.parts import (
    ReadPart,
    parts_in_order,
    parts_read_through,
)

_PIECE = 1 << 16  # bytes read at a time when a line goes on behind its block
BOM = b"\xef\xbb\xbf"
# A longer line is no document: it is rejected without being held, so that a small compressed file
# of one endless line costs no more memory than any other. A text of this size is some ten million
# tokens; as bytes, text and tokens it takes all the memory that a small worker has.
MOST_RECORD_BYTES = 64 << 20
# zstd may make 128 KiB of 4 bytes, and all of what it is given comes out at once.
_ZSTD_PIECE = 1 << 11


@dataclass(frozen=True)
class Lines:
    """Some whole lines of one file.

    Attributes:
        file: The file's number in the listing.
        path: The file.
        offset: Where the first line begins, in decompressed bytes.
        data: The lines with their ends; only the last line of a file may lack one.
        number: Number of the first line in its file, from 0; None where it is not known.
        too_large: Bytes of the one line that this is, where it is over `MOST_RECORD_BYTES` and not
            held (`data` is empty); else 0.
    """

    file: int
    path: str
    offset: int
    data: bytes
    number: int | None = None
    too_large: int = 0

    @property
    def size(self) -> int:
        """How many bytes of the file they take up."""
        return self.too_large or len(self.data)

    @functools.cached_property
    def count(self) -> int:
        """How many lines."""
        if self.too_large:
            return 1
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and self.data != b"")

    def cut(self, most: int) -> tuple["Lines", "Lines | None"]:
        """The first `most` lines, and the rest if there is any."""
        return cut_lines(self, most)

    @property
    def text(self) -> bytes:
        """The data without a byte order mark."""
        return self.data.removeprefix(BOM) if self.offset == 0 else self.data


def read_parts(spec: BlockSpec, part_docs: int, block_bytes: int) -> Iterator[ReadPart[Lines]]:
    """Reads a block, closing a part at `part_docs` lines.

    A line belongs to the block in which it begins. A block of byte ranges gives its parts from 0
    on, the last of them marked. A reader of a file read through closes a part also at
    `block_bytes` of text and gives those of its stripe, then an empty part that marks its end of
    the file.

    Raises:
        ValueError: A file is not the one that was listed, its compressed data is damaged, or it is
            no UTF-8 by its byte order mark.
    """
    for piece in spec.slices:
        check_unchanged(piece)
    if spec.read_through:
        stream = _stream(spec.slices[0], spec.compression, block_bytes, spec.records)
        yield from parts_read_through(spec, stream, part_docs)
        return
    ranges = itertools.chain.from_iterable(_range_lines(piece) for piece in spec.slices)
    lines = itertools.chain.from_iterable(map(without_large, ranges))
    yield from parts_in_order(lines, part_docs)


def check_unchanged(piece: Slice) -> None:
    """Refuses a file whose size or time is no longer the listing's."""
    try:
        now = stat(piece.info.path)
    except FileNotFoundError as error:
        raise ValueError(f"{piece.info.path} was removed after the job started") from error
    if now != piece.info:
        raise ValueError(
            f"{piece.info.path} changed after the job started: listed with {piece.info.size} "
            f"bytes, now {now.size}; run the job again with --overwrite"
        )


def _range_lines(piece: Slice) -> Iterator[Lines]:
    if piece.stop <= piece.start:
        return
    before = min(piece.start, 1)  # the byte before tells whether a line begins at `start`
    with open_raw(piece.info.path) as file:
        file.seek(piece.start - before)
        data = file.read(piece.stop - piece.start + before)
        if before:
            # A line that begins in the range has its predecessor's end in front of the last byte.
            found = data.find(b"\n", 0, piece.stop - piece.start)
            if found < 0:
                return
            data = data[found + 1 :]
        else:
            check_encoding(piece.info.path, data)
        first = Lines(piece.file, piece.info.path, piece.stop - len(data), data)
        first = replace(first, number=None if before else 0)
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
    yield replace(
        first, offset=first.offset + last, data=b"", too_large=len(data) - last + size, number=None
    )


def _rest_of_line(file: BinaryIO, size: int) -> tuple[bytes | None, int]:
    """A line's end behind its first `size` bytes, None if it is too large; and its bytes."""
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
    """The same lines; one that is too large apart, and not held."""
    if len(lines.data) <= MOST_RECORD_BYTES:
        yield lines
        return
    kept = start = 0
    count = 0
    while start < len(lines.data):
        end = lines.data.find(b"\n", start) + 1 or len(lines.data)
        if end - start > MOST_RECORD_BYTES:
            before = _piece_of(lines, kept, start, count)
            if before.data:
                yield before
            count += before.count
            large = _piece_of(lines, start, end, count)
            yield replace(large, data=b"", too_large=end - start)
            count += 1
            kept = end
        start = end
    if kept < start:
        yield _piece_of(lines, kept, start, count)


def _piece_of(lines: Lines, start: int, stop: int, before: int) -> Lines:
    number = None if lines.number is None else lines.number + before
    return replace(lines, offset=lines.offset + start, data=lines.data[start:stop], number=number)


def cut_lines(lines: Lines, most: int) -> tuple[Lines, Lines | None]:
    """The first `most` lines, and the rest if there is any."""
    if lines.count <= most:
        return lines, None
    end = -1
    for _ in range(most):
        end = lines.data.index(b"\n", end + 1)
    first = replace(lines, data=lines.data[: end + 1])
    number = None if lines.number is None else lines.number + most
    rest = lines.data[end + 1 :]
    return first, replace(lines, offset=lines.offset + end + 1, data=rest, number=number)


def _stream(
    piece: Slice, compression: str | None, block_bytes: int, records: int | None
) -> Iterator[Lines]:
    """Whole lines from a file's start on, some `block_bytes` at a time, `records` at most."""
    number, left = 0, records
    for each in _whole_lines(piece, compression, block_bytes):
        for lines in without_large(each):
            numbered = replace(lines, number=number)
            if left is not None:
                numbered = cut_lines(numbered, left)[0]
                left -= numbered.count
            number += numbered.count
            yield numbered
            if left == 0:
                return


def _whole_lines(piece: Slice, compression: str | None, block_bytes: int) -> Iterator[Lines]:
    """Whole lines from a file's start on; one that came in many pieces and is too large apart."""
    offset = size = 0
    carried: list[bytes] = []  # a long line comes in many pieces; `size` is their sum
    for data in stored_pieces(piece, compression, block_bytes):
        if offset == size == 0:
            check_encoding(piece.info.path, data)
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
    """The bytes of a slice from the file's start, or of a whole compressed file."""
    with open_raw(piece.info.path) as raw:
        if compression is None:
            left = piece.stop
            while data := raw.read(min(size, left)):
                yield data
                left -= len(data)
            return
        try:
            if compression == "zstd":
                yield from _zstd_pieces(raw, size)
                return
            with gzip.open(raw) if compression == "gzip" else bz2.open(raw) as file:
                while data := file.read(size):
                    yield data
        except (EOFError, OSError, zstandard.ZstdError, ValueError) as error:
            raise ValueError(f"{piece.info.path} is damaged {compression} data: {error}") from error


def _zstd_pieces(raw: BinaryIO, size: int) -> Iterator[bytes]:
    """Frames one after the other; zstandard's own reader takes a cut file for a complete one."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    held: list[bytes] = []
    rest = b""
    while data := rest or raw.read(_ZSTD_PIECE):
        if decompressor.eof:
            decompressor = zstandard.ZstdDecompressor().decompressobj()
        held.append(decompressor.decompress(data))
        rest = decompressor.unused_data if decompressor.eof else b""
        if sum(map(len, held)) >= size:
            yield b"".join(held)
            held = []
    if not decompressor.eof and raw.tell():
        raise EOFError("it ends in the middle of a frame")
    yield b"".join(held)


def first_lines(file: InputFile, size: int = 1 << 16) -> Lines:
    """Whole lines from the start of a file, some `size` bytes of them, none too large."""
    empty = Lines(0, file.info.path, 0, b"")
    if file.compression is None:
        found = next(_range_lines(Slice(0, file.info, 0, min(size, file.stop))), empty)
        if not found.too_large:
            return found
    stream = _stream(Slice(0, file.info, 0, file.stop), file.compression, size, file.records)
    return next((lines for lines in stream if not lines.too_large), empty)


def limit_lines(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """A file cut to its first `limit` lines, and how many it then has."""
    piece = Slice(0, file.info, 0, file.stop)
    if file.compression is None:
        found, stop = _first_lines(piece, limit)
        return replace(file, stop=stop), found
    found = sum(lines.count for lines in _stream(piece, file.compression, 1 << 20, limit))
    return replace(file, records=found), found


def _first_lines(piece: Slice, most: int) -> tuple[int, int]:
    """How many of the first `most` lines the file has, and where they end."""
    found = stop = 0
    unfinished = False
    with open_raw(piece.info.path) as file:
        while found < most and (data := file.read(1 << 20)):
            ends = data.count(b"\n")
            if found + ends >= most:
                taken, _ = cut_lines(Lines(0, "", 0, data), most - found)
                return most, stop + len(taken.data)
            found += ends
            stop += len(data)
            unfinished = not data.endswith(b"\n")
    return found + unfinished, stop
