"""Opens files as text: finds their encoding, decompresses them, checks every byte."""

import bz2
import codecs
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

import orjson
import zstandard
from isal import igzip, isal_zlib

from bert_embed.base.errors import InputError, required
from bert_embed.results.tf_example import is_framed
from bert_embed.storage.files import is_remote, open_listed, open_raw
from bert_embed.storage.local import FileInfo, refuse_pointer
from bert_embed.transforms.parts import TFRECORD

# zstd may expand 4 bytes to 128 KiB, and decompresses all of its input at once.
_ZSTD_PIECE = 1 << 11
_BZIP2_PIECE = 1 << 16
# What a stream may look back, all of it held in memory: as much as `zstd -d` allows by itself.
_ZSTD_WINDOW = 1 << 27
BOM = b"\xef\xbb\xbf"
_MARK = BOM.decode("latin-1")
JSON_VALUES = "json"  # how lines are laid out; alone, or after `+` behind that of a compression
_GAPS = " \t\r\n,\x1e]"  # between values of JSON
_GAP = re.compile(f"[{re.escape(_GAPS)}]*")
_BETWEEN = str.maketrans("\n,[]\x1e", "\r    ")
_MOST_VALUE = 1 << 27  # bytes of a value, which is in memory: of a larger one nobody sees the end
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
STRINGS = "jq -c '.. | strings | {text: .}'"  # makes records of them
_JOINED = "has JSON objects with nothing between them; write one a line: jq -c . FILE"
_UNFINISHED = (
    "is cut: its JSON {} has no end, or a brace, comma or quote too many or too few in line {:,} "
    "or before; fetch or write it again"
)
_MOST_TOKEN = 8  # characters of a token that may be cut, such as false or an escape
_CUT = "it ends in the middle of a stream"
_IsalError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # isal's stub has an instance


def decompressed(raw: BinaryIO, compression: str, path: str, size: int) -> Iterator[bytes]:
    """Yields the contents of a file as lines, at least `size` bytes at a time except the last.

    `compression` may also be, or end in, the name of a layout, which changes bytes in their places.
    A file may hold several streams, as `pbzip2`, `pigz` or `cat` make them; after a stream must
    come another one. gzip's padding with zeros is ignored.
    """
    codec = packing(compression)
    pieces = _PIECES[codec](raw, size) if codec else iter(lambda: raw.read(size), b"")
    if is_laid_out(compression):
        pieces = ObjectLines().lines(pieces)
    held: list[bytes] = []
    length = 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    except _LayoutError as error:
        raise InputError(f"{path} {of_packed(str(error), compression)}") from error
    except (igzip.BadGzipFile, _IsalError, zstandard.ZstdError, EOFError, _DamagedError) as error:
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


def is_laid_out(compression: str | None) -> bool:
    """Whether a file is JSON whose values may be no lines."""
    return (compression or "").endswith(JSON_VALUES)


def of_packed(command: str, compression: str | None) -> str:
    """A command whose last FILE is the file that it reads, as it reads one that is compressed.

    >>> of_packed("jq -c .FILE FILE > NEW.jsonl", "gzip"), of_packed("jq . FILE", None)
    ('jq -c .FILE <(gzip -dc FILE) > NEW.jsonl', 'jq . FILE')
    """
    before, file, behind = command.rpartition("FILE")
    codec = packing(compression)
    return f"{before}<({codec} -dc {file}){behind}" if codec and file else command


class ObjectLines:
    """Lays out JSON, an array or values one after the other, as lines of one value each.

    Bytes change in their places: within a value a line feed becomes a carriage return; what stands
    between values becomes a space, and the byte before a value, except the first, a line feed.

    Of a value that is not JSON nobody knows how many it costs: the file is refused.
    """

    def __init__(self) -> None:
        self._held = ""  # not laid out yet, as Latin-1: a letter a byte
        self._least = 0  # bytes below which the value there has no end
        self._arrays = self._opened = 0  # that are open around values; of the file
        self._values = self.objects = self._lines = 0

    def lines(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Lays out all of a file."""
        yield from map(self.feed, pieces)
        yield self.rest()

    def feed(self, data: bytes, last: bool = False) -> bytes:
        """Lays out a piece; what may be changed by the next one comes later."""
        text = self._held + data.decode("latin-1")
        at, laid_out = 0, []
        while last or len(text) - at >= self._least:
            begin, arrays, opened = self._begin(text, at)
            end = None if begin == len(text) else self._end(text, begin, arrays, last)
            if end is None:
                break
            if self._values and begin == at:
                raise _LayoutError(_JOINED)
            between = text[at:begin].translate(_BETWEEN)
            if self._values:
                between = between[:-1] + "\n"
            laid_out += [between, text[begin:end].replace("\n", "\r")]
            self._values, self.objects = self._values + 1, self.objects + (text[begin] == "{")
            self._arrays, self._opened, self._least, at = arrays, opened, 0, end
        self._held = text[at:]
        self._lines += text.count("\n", 0, at)
        return "".join(laid_out).encode("latin-1")

    def rest(self) -> bytes:
        """The end of the file; _LayoutError if it is cut, or holds no object."""
        laid_out = self.feed(b"", last=True)
        _, arrays, opened = self._begin(self._held, 0)
        if arrays:
            raise self._unfinished("array", self._held)
        if self._values and not self.objects:
            raise _LayoutError(
                "does not begin with JSON lines: each line, or each element of an array, must be "
                f"one object (of strings, {STRINGS} FILE > NEW.jsonl)"
            )
        if not self._values and opened == 1:
            return b""  # an empty array, which has no line
        return laid_out + self._held.translate(_BETWEEN).encode("latin-1")

    def _begin(self, text: str, at: int) -> tuple[int, int, int]:
        """Where the next value begins, and the arrays that are open, and were opened, there."""
        arrays, opened = self._arrays, self._opened
        if not self._values and text.startswith(_MARK):
            at = max(at, len(_MARK))
        while True:
            begin = required(_GAP.match(text, at), "match of nothing").end()
            arrays = max(arrays - text.count("]", at, begin), 0)
            if arrays or not text.startswith("[", begin):
                return begin, arrays, opened
            at, arrays, opened = begin + 1, 1, opened + 1

    def _unfinished(self, what: str, read: str) -> "_LayoutError":
        """What is wrong with a file of which this was read behind the last value."""
        return _LayoutError(_UNFINISHED.format(what, self._lines + read.count("\n") + 1))

    def _end(self, text: str, begin: int, arrays: int, last: bool) -> int | None:
        """The end of a value; None if the next piece decides."""
        stopped = len(text)
        try:
            _, end = _VALUES.raw_decode(text, begin)
            if last or text[begin] in '{["' or (end < len(text) and text[end] in _GAPS):
                return end  # else it is a number that may go on
            is_cut = True
        except RecursionError:
            is_cut = False
        except json.JSONDecodeError as error:
            stopped = error.pos
            is_cut = error.msg.startswith("Unterminated") or error.pos >= len(text) - _MOST_TOKEN
        if last or not is_cut or len(text) - begin > _MOST_VALUE:
            raise self._unfinished("array" if arrays else "object", text[:stopped])
        self._least = 2 * (len(text) - begin)
        return None


class _LayoutError(Exception):
    """JSON that cannot be laid out as lines; the message says what the file is."""


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


# Byte order marks; one of UTF-32 begins with one of UTF-16, so UTF-32 comes first.
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_CONTROLS = bytes(code for code in range(32) if chr(code) not in "\t\n\r\f\x1b")
_SEVERAL = 8  # bytes from which on shares of them say something
_MANY_CONTROLS, _SOME_HIGH = 0.1, 0.05
# The first bytes of what a suffix should have named.
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",  # as pzstd writes it
}
_SUFFIXES = {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"}
_OTHERS = {
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "PDF",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"SQLite format 3\x00": "SQLite",
    b"PARE": "encrypted Parquet",
    b"ARROW1\x00": "Arrow",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "data of compress",
    b"7z\xbc\xaf": "a 7z archive",
}
_PARQUET = b"PAR1"
_JSON = json.JSONDecoder()
_OBJECT_BEGINS = re.compile(r'(?:\[\s*)?\{\s*"')
_BEHIND_VALUE = re.compile(r"[ \t\r,]*(?:[\n{\x1e]|$)")
_START, _LONG_START = 1 << 12, 1 << 20  # bytes looked at; of a file without a line feed in them


def check_encoding(path: str, start: bytes) -> None:
    """Raises InputError if a file's first bytes are no UTF-8 text, as far as these can say it."""
    refuse_pointer(path, start)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise InputError(f"{path} is {name}, convert it to UTF-8: iconv -f {name} -t UTF-8")
    start = start[:_START]
    start = start.rstrip(b"\0") or start  # a file may have been allocated beyond its text
    for mark, name in (_PACKED | _OTHERS).items():
        if start.startswith(mark) and not _is_text(start):
            what = f"{name}, not text; unpack or convert it"
            if name in _SUFFIXES:
                what = f"{name} data, perhaps twice: unpack it, or name it *{_SUFFIXES[name]}"
            raise InputError(f"{path} is {what}")
    if len(start) < _SEVERAL or b"\0" not in start:
        return
    controls = len(start) - len(start.translate(None, _CONTROLS))
    high = sum(byte >= 0x80 for byte in start)
    if controls > _MANY_CONTROLS * len(start) or (
        high > _SOME_HIGH * len(start) and not _is_text(start)
    ):
        raise InputError(
            f"{path} is binary data, or text in another encoding than UTF-8: convert it, such as "
            "UTF-16 without a byte order mark by iconv -f UTF-16LE -t UTF-8"
        )


def check_lines(info: FileInfo, start: bytes) -> None:
    """As `check_encoding`; InputError also if a store's file, not looked into before, has no LF."""
    check_encoding(info.path, start)
    if is_remote(info.path) and len(start) >= min(info.size, _START):
        _check_line_feeds(info.path, start)


def _check_line_feeds(path: str, start: bytes) -> None:
    if b"\r" in start and b"\n" not in start:
        raise InputError(
            f"{path} has lines that end in carriage returns alone; write line feeds: tr '\\r' '\\n'"
        )


def _holds_examples(start: bytes) -> bool:
    """Whether a file is one of TFRecord: its first number, of eight bytes, has zeros; no text."""
    return b"\0" in start[:8] and is_framed(start)


def _is_text(start: bytes) -> bool:
    """Whether bytes, of which the last may be part of a character, are UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def look_inside(
    info: FileInfo, kind: str, packed: str | None, forced: bool
) -> tuple[str, str | None]:
    """Format and compression of a file: as named, or as its first bytes show.

    A compressed file is recognized without its suffix, and a plain one with it; so are JSON in
    which an object is not a line, and JSON and Parquet named as text. A format that is `forced`
    stays. InputError: it is no text, or has no line feeds.
    """
    path, is_text = info.path, kind == "text" and not forced
    with open_listed(info) if is_remote(path) else open_raw(path) as file:
        start = file.read(_START)
        start += b"" if b"\n" in start else file.read(_LONG_START)
        if start.startswith(_PARQUET) and not _is_text(start) and not forced:
            return "parquet", None
        if kind == TFRECORD:
            return kind, None if is_framed(start) else packed_as(start, packed)
        compression = packed_as(start, packed)
        if compression is None:
            if not (is_text and _holds_examples(start)):
                check_encoding(path, start)
        else:
            file.seek(0)
            start = b""
            with suppress(InputError):  # said when the file is read
                for piece in decompressed(file, compression, path, _START):
                    start += piece
                    if b"\n" in start or len(start) >= _LONG_START:
                        break
    if is_text and _holds_examples(start):
        return TFRECORD, compression
    if is_text and _begins_with_record(start):
        kind = "jsonl"
    layout = None
    if kind == "jsonl" and _has_values(path, start, compression):
        layout = JSON_VALUES
    elif kind in ("jsonl", "text", "csv"):
        _check_line_feeds(path, start)
    return kind, "+".join(filter(None, (compression, layout))) or None


def packed_as(start: bytes, named: str | None = None) -> str | None:
    """How a file is compressed, by its first bytes; damaged ones stay what the suffix says."""
    for mark, name in _PACKED.items():
        if start.startswith(mark) and not _is_text(start[:_START]):
            return name
        if name == named and start[: len(mark)] == mark[: len(start)]:
            return name
    plain = bool(start) and _is_text(start) and start.translate(None, _CONTROLS) == start
    return None if plain else named


def _begins_with_record(start: bytes) -> bool:
    """Whether a file begins with a JSON object, or an array of them, or with as much of one."""
    text = start.removeprefix(BOM).decode("utf-8", "ignore").lstrip()
    if not text.startswith(("{", "[")):
        return False
    try:
        value, end = _JSON.raw_decode(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        # Of what goes on behind these bytes all but the end is JSON, which may be within a string.
        goes_on = error.msg.startswith("Unterminated") or error.pos >= len(text) - _MOST_TOKEN
        return goes_on and _OBJECT_BEGINS.match(text) is not None
    first = value[0] if value and isinstance(value, list) else value
    return isinstance(first, dict) and _BEHIND_VALUE.match(text, end) is not None


def _has_values(path: str, start: bytes, compression: str | None) -> bool:
    """Whether JSON is an array, or has objects over several lines, or several in a line."""
    text = start.removeprefix(BOM).lstrip()
    if text.startswith((b"[", b"\x1e")):  # the latter is before each text of a sequence (RFC 7464)
        return True
    first, ended, rest = text.partition(b"\n")
    with suppress(orjson.JSONDecodeError):
        orjson.loads(first)
        return False
    if not first.startswith(b"{"):
        return False
    line = first.decode("latin-1")
    try:
        end = _VALUES.raw_decode(line)[1]
    except (json.JSONDecodeError, RecursionError) as error:
        # Of a malformed first line the second line begins with another object.
        goes_on = isinstance(error, json.JSONDecodeError) and error.pos >= len(line) - _MOST_TOKEN
        return goes_on and bool(ended) and rest.lstrip()[:1] not in (b"{", b"")
    if line.startswith("{", end):
        raise InputError(f"{path} {of_packed(_JOINED, compression)}")
    return line[end:].lstrip(" \t\r,").startswith("{")
