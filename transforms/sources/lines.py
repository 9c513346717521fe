"""Lines: a BlockSpec in, the whole lines that belong to each of its parts out."""

import bz2
import functools
import gzip
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import zstandard

from transforms.block_spec import BlockSpec, InputFile, Slice
from transforms.files import open_raw, stat
from transforms.sources.encoding import check_encoding

_PIECE = 1 << 16  # bytes read at a time when a line goes on behind its block
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Lines:
    """Some whole lines of one file.

    Attributes:
        file: The file's number in the listing.
        path: The file.
        offset: Where the first line begins, in decompressed bytes.
        data: The lines with their ends; only the last line of a file may lack one.
        number: Number of the first line in its file, from 0; None where it is not known.
    """

    file: int
    path: str
    offset: int
    data: bytes
    number: int | None = None

    @functools.cached_property
    def count(self) -> int:
        """How many lines."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and self.data != b"")

    @property
    def text(self) -> bytes:
        """The data without a byte order mark."""
        return self.data.removeprefix(_BOM) if self.offset == 0 else self.data


@dataclass(frozen=True)
class PartLines:
    """The lines of one part.

    Attributes:
        number: The part's number in its block.
        lines: In the input's order.
        last: Whether the reader has no further part.
        end_of_file: In the part that marks the end of a file read through: records of the file.
    """

    number: int
    lines: tuple[Lines, ...]
    last: bool
    end_of_file: int | None = None


def read_parts(spec: BlockSpec, part_docs: int, block_bytes: int) -> Iterator[PartLines]:
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
        yield from _read_through(spec, part_docs, block_bytes)
        return
    lines = itertools.chain.from_iterable(_range_lines(piece) for piece in spec.slices)
    parts = enumerate(close_parts(lines, part_docs))
    number, held = next(parts, (0, ()))
    for following, content in parts:
        yield PartLines(number, held, last=False)
        number, held = following, content
    yield PartLines(number, held, last=True)


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
        offset = piece.stop - len(data)
        if not data.endswith(b"\n") and piece.stop < piece.info.size:
            data += _rest_of_line(file)
    yield Lines(piece.file, piece.info.path, offset, data, None if before else 0)


def _rest_of_line(file: BinaryIO) -> bytes:
    pieces = []
    while piece := file.read(_PIECE):
        end = piece.find(b"\n")
        if end >= 0:
            pieces.append(piece[: end + 1])
            break
        pieces.append(piece)
    return b"".join(pieces)


def close_parts(lines: Iterable[Lines], most: int) -> Iterator[tuple[Lines, ...]]:
    """Deals lines out into parts of at most `most` lines each."""
    held: list[Lines] = []
    room = most
    for each in lines:
        rest: Lines | None = each
        while rest is not None and rest.data:
            taken, rest = cut_lines(rest, room)
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


def _read_through(spec: BlockSpec, part_docs: int, block_bytes: int) -> Iterator[PartLines]:
    piece = spec.slices[0]
    parts = records = 0
    for lines in _stream(piece, spec.compression, block_bytes, spec.records):
        for content in close_parts([lines], part_docs):
            if parts % spec.stripes == spec.stripe:
                yield PartLines(parts, content, last=False)
            records += sum(each.count for each in content)
            parts += 1
    mark = parts + (spec.stripe - parts) % spec.stripes  # the next number of this stripe
    yield PartLines(mark, (), last=True, end_of_file=records)


def _stream(
    piece: Slice, compression: str | None, block_bytes: int, records: int | None
) -> Iterator[Lines]:
    """Whole lines from a file's start on, some `block_bytes` at a time, `records` at most."""
    offset = number = 0
    carried: list[bytes] = []  # a long line comes in many pieces
    left = records
    for data in stored_pieces(piece, compression, block_bytes):
        if offset == 0 and not carried:
            check_encoding(piece.info.path, data)
        end = data.rfind(b"\n") + 1
        if end == 0:
            carried.append(data)
            continue
        whole = b"".join([*carried, data[:end]])
        lines = Lines(piece.file, piece.info.path, offset, whole, number)
        offset, carried = offset + len(whole), [data[end:]]
        if left is not None:
            lines = cut_lines(lines, left)[0] if left else replace(lines, data=b"")
            left -= lines.count
        number += lines.count
        yield lines
        if left == 0:
            return
    if any(carried):
        yield Lines(piece.file, piece.info.path, offset, b"".join(carried), number)


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
    while data := rest or raw.read(_PIECE):
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
    """Whole lines from the start of a file, some `size` bytes of them."""
    piece = Slice(0, file.info, 0, min(size, file.stop))
    if file.compression is None:
        return next(_range_lines(piece), Lines(0, file.info.path, 0, b""))
    stream = _stream(piece, file.compression, size, file.records)
    return next(stream, Lines(0, file.info.path, 0, b""))


def limit_files(files: Sequence[InputFile], limit: int) -> list[InputFile]:
    """The files cut to their first `limit` records, in the listing's order."""
    from transforms.sources.tfrecord import limit_records  # which reads files as this module does

    kept = []
    left = limit
    for file in files:
        if left <= 0:
            break
        piece = Slice(0, file.info, 0, file.stop)
        if file.format == "tfrecord":
            cut, found = limit_records(file, left)
            kept.append(cut)
        elif file.compression is not None:
            found = 0
            for lines in _stream(piece, file.compression, 1 << 20, left):
                found += lines.count
            kept.append(replace(file, records=min(left, found)))
        else:
            found, stop = _first_lines(piece, left)
            kept.append(replace(file, stop=stop))
        left -= found
    return kept


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
