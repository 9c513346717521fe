"""Decompresses files and checks that every byte belongs to a complete stream."""

import bz2
from collections.abc import Iterator
from typing import BinaryIO

import zstandard
from isal import igzip, isal_zlib

from bert_embed.storage.errors import InputError

# zstd may expand 4 bytes to 128 KiB, and decompresses all of its input at once.
_ZSTD_PIECE = 1 << 11
_BZIP2_PIECE = 1 << 16
# Of `zstd --long=31`, as large corpora are packed; a decompressor allows 1 << 27 by itself.
_ZSTD_WINDOW = 1 << 31
_CUT = "it ends in the middle of a stream"
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # isal's stub has an instance


def decompressed(raw: BinaryIO, compression: str, path: str, size: int) -> Iterator[bytes]:
    """Yields the contents of a compressed file, at least `size` bytes at a time except the last.

    A file may hold several streams, as `pbzip2`, `pigz` or `cat` make them; after a stream must
    come another one. gzip's padding with zeros is ignored.
    """
    held: list[bytes] = []
    length = 0
    try:
        for piece in _PIECES[compression](raw, size):
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
        raise InputError(f"{path} is damaged {compression} data: {error}") from error
    if length:
        yield b"".join(held)


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
