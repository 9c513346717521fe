"""Decompresses files, checking that every byte belongs to a stream, and lays out their lines."""

import bz2
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
import zstandard
from isal import igzip, isal_zlib

from bert_embed.storage.errors import InputError

# zstd may expand 4 bytes to 128 KiB, and decompresses all of its input at once.
_ZSTD_PIECE = 1 << 11
_BZIP2_PIECE = 1 << 16
# What a stream may look back, all of it held in memory: as much as `zstd -d` allows by itself.
_ZSTD_WINDOW = 1 << 27
BOM = b"\xef\xbb\xbf"
# How lines are laid out; alone, or after `+` behind the name of a compression.
CARRIAGE_RETURNS, JSON_VALUES = "cr", "json"
_EMPTY_SO_FAR = re.compile(rb"(?:\xef\xbb\xbf)?\s*+(?:\[\s*+)?\]?\s*+")  # of an array
_EMPTY = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[\s*+\]\s*+")
_CUT = "it ends in the middle of a stream"
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # isal's stub has an instance


def decompressed(raw: BinaryIO, compression: str, path: str, size: int) -> Iterator[bytes]:
    """Yields the contents of a file as lines, at least `size` bytes at a time except the last.

    `compression` may also be, or end in, the name of a layout, which changes bytes in their places.
    A file may hold several streams, as `pbzip2`, `pigz` or `cat` make them; after a stream must
    come another one. gzip's padding with zeros is ignored.
    """
    codec, _, layout = compression.rpartition("+")
    if layout in _PIECES:
        codec, layout = layout, ""
    pieces = _PIECES[codec](raw, size) if codec else iter(lambda: raw.read(size), b"")
    if layout:
        pieces = _LAYOUTS[layout](pieces)
    held: list[bytes] = []
    length = 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    except (
        igzip.BadGzipFile,
        _IsalError,
        zstandard.ZstdError,
        EOFError,
        _DamagedError,
    ) as error:
        if "too much memory" in str(error):
            raise InputError(
                f"{path} needs a zstd window of over {_ZSTD_WINDOW >> 20} MiB; repack it: "
                "zstd -dc --long=31 FILE | zstd -o NEW"
            ) from error
        raise InputError(f"{path} is damaged {codec} data: {error}") from error
    if length:
        yield b"".join(held)


def packing(compression: str | None) -> str | None:
    """How a file is compressed, without its layout; None: it is as large as its text."""
    codec = (compression or "").partition("+")[0]
    return codec if codec in _PIECES else None


class ObjectLines:
    """Lays out JSON, an array or objects one after the other, as lines of one object each.

    Bytes change in their places: every line feed becomes a carriage return, what stands around
    objects a space, and the byte before an object, except the first, a line feed.
    """

    def __init__(self) -> None:
        self.depth = 0  # of braces
        self.is_quoted = False
        self.count = 0  # objects that began
        self.joined = 0  # of them, with no byte between them and the one before
        self._pending = b""  # the last byte, before which another piece may begin with an object

    def feed(self, data: bytes) -> bytes:
        """Lays out a piece, which does not end in a backslash; the last byte comes later."""
        array = np.frombuffer(self._pending + data, np.uint8).copy()
        first = len(self._pending)  # the byte before it is laid out already
        quotes = unescaped(array, np.flatnonzero(array[first:] == ord('"')) + first, "\\")
        marks = np.flatnonzero(np.isin(array, np.frombuffer(b"{}[],", np.uint8)))
        marks = marks[marks >= first]
        marks = marks[(np.searchsorted(quotes, marks) + self.is_quoted) % 2 == 0]
        found = array[marks]
        steps = (found == ord("{")).astype(np.int64) - (found == ord("}"))
        sums = self.depth + np.cumsum(steps)
        after = sums - np.minimum(np.minimum.accumulate(sums), 0)  # a stray brace closes nothing
        before = np.append(self.depth, after[:-1])
        array[marks[(after == 0) & (found != ord("}"))]] = ord(" ")
        array[first:][array[first:] == ord("\n")] = ord("\r")
        opens = marks[(before == 0) & (found == ord("{"))]
        ends = opens[int(self.count == 0) :] - 1
        apart = np.isin(array[ends], np.frombuffer(b" \t\r", np.uint8))
        array[ends[apart]] = ord("\n")
        self.count += len(opens)
        self.joined += int((~apart).sum())
        self.is_quoted ^= bool(len(quotes) % 2)
        self.depth = int(after[-1]) if len(after) else self.depth
        laid_out = array.tobytes()
        self._pending = laid_out[-1:]
        return laid_out[:-1]

    def rest(self) -> bytes:
        """The last byte."""
        return self._pending


def unescaped(array: np.ndarray, marks: np.ndarray, escape: str) -> np.ndarray:
    """The places of marks that have an even number of escape characters before them."""
    slashes = array == ord(escape)
    if not slashes.any():
        return marks
    others = np.maximum.accumulate(np.where(slashes, -1, np.arange(len(array))))
    runs = marks - 1 - np.where(marks > 0, others[marks - 1], -1)
    return marks[runs % 2 == 0]


def _object_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    objects = ObjectLines()
    held = begin = b""
    laid_out: list[bytes] = []  # of a file that may hold an empty array, which has no line
    for piece in pieces:
        held += piece
        data = held[:-1].rstrip(b"\\")
        if data:
            held = held[len(data) :]
            laid_out.append(objects.feed(data))
            begin = begin + data if _EMPTY_SO_FAR.fullmatch(begin) else begin
            if not _EMPTY_SO_FAR.fullmatch(begin):
                yield b"".join(laid_out)
                laid_out = []
    if held:
        laid_out.append(objects.feed(held))
    if not _EMPTY.fullmatch(begin + held):
        yield b"".join([*laid_out, objects.rest()])


def _feed_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece.replace(b"\r", b"\n")


_LAYOUTS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    CARRIAGE_RETURNS: _feed_lines,
    JSON_VALUES: _object_lines,
}


class _DamagedError(Exception):
    """Damaged data, where the decoder raises the same exception as a failing disk."""


def _gzip_pieces(raw: BinaryIO, size: int) -> Iterator[bytes]:
    with igzip.open(raw) as file:
        while piece := file.read(size):
            yield piece


def _bzip2_pieces(raw: BinaryIO, size: int) -> Iterator[bytes]:
    """Reads stream by stream; Python's own reader drops what follows a damaged one."""
    stream = bz2.BZ2Decompressor()
    while data := raw.read(_BZIP2_PIECE):
        while True:
            if stream.eof:
                stream = bz2.BZ2Decompressor()
            try:
                yield stream.decompress(data, size)
            except OSError as error:
                raise _DamagedError(str(error).lower()) from error
            data = stream.unused_data
            if not data and (stream.eof or stream.needs_input):
                break
    if not stream.eof and raw.tell():
        raise EOFError(_CUT)


def _zstd_pieces(raw: BinaryIO, size: int) -> Iterator[bytes]:
    """Reads frame by frame; zstandard's own reader takes a truncated file for a complete one."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    stream = decompressor.decompressobj()
    while data := raw.read(_ZSTD_PIECE):
        while data:
            if stream.eof:
                stream = decompressor.decompressobj()
            yield stream.decompress(data)
            data = stream.unused_data if stream.eof else b""
    if not stream.eof and raw.tell():
        raise EOFError(_CUT)


_PIECES = {"gzip": _gzip_pieces, "bzip2": _bzip2_pieces, "zstd": _zstd_pieces}
