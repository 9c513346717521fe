"""Opens files as text: finds their encoding, decompresses them, checks every byte."""

import bz2
import codecs
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import orjson
import zstandard
from isal import igzip, isal_zlib

from bert_embed.base.errors import InputError
from bert_embed.results.tf_example import is_framed
from bert_embed.storage.file_info import FileInfo, refuse_pointer
from bert_embed.storage.files import is_remote, open_raw
from bert_embed.transforms.parts import TFRECORD

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
_BLANKS = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
_JOINED = "has JSON objects with nothing between them; write one a line: jq -c . FILE"
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
    except _LayoutError as error:
        raise InputError(f"{path} {error}") from error
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
    objects a space, and the byte before an object, except the first, a line feed; so does the comma
    before an element of an array that is none, which is thus a line and malformed.

    JSON has no line feed within a string: a line that ends in one has a quote too many or too few.
    What it seemed to open or close does not count, so that such a record costs no other; but in a
    file with several records in a line nobody knows how many it costs.
    """

    def __init__(self) -> None:
        self.depth = 0  # of braces
        self.arrays = 0  # that were opened outside of objects, and not closed
        self._counted = 0  # objects that began in lines that count
        self.joined = 0  # of them, with no blank between them and the one before
        self._line = np.zeros((1, 4), np.int64)  # all four, where the line began
        self.is_quoted = False
        self._line_feeds = self._lost = 0  # of lines; of those that do not count
        self._several = False  # objects began in a line
        self._hidden = False  # a brace, in a string that begins where none can
        self.count = 0  # objects that began
        # The last byte, before which another piece may begin with an object; and all from a comma
        # that no element is behind yet.
        self._pending = b""
        self._begins_with_comma = False

    def feed(self, data: bytes) -> bytes:
        """Lays out a piece, which does not end in a backslash; its last bytes come later."""
        array = np.frombuffer(data, np.uint8)
        quotes = unescaped(array, np.flatnonzero(array == ord('"')), "\\")
        line_feeds = np.flatnonzero(array == ord("\n"))
        before = np.searchsorted(quotes, line_feeds)
        is_open = np.diff(before, prepend=-int(self.is_quoted)) % 2 == 1
        stops = [*(line_feeds[is_open] + 1).tolist(), len(data)]
        laid_out = []
        for start, stop in pairwise([0, *stops]):
            if start < stop:
                places = (_between(places, start, stop) for places in (quotes, line_feeds))
                laid_out.append(self._feed(data[start:stop], *places))
        return b"".join(laid_out)

    def _feed(self, data: bytes, quotes: np.ndarray, line_feeds: np.ndarray) -> bytes:
        """Lays out a piece in which no line, but perhaps the last, ends within a string."""
        array = np.frombuffer(self._pending + data, np.uint8).copy()
        first = len(self._pending)  # the byte before it is laid out already
        quotes, line_feeds = quotes + first, line_feeds + first
        self._hidden |= _hides_braces(array, quotes, int(self.is_quoted), first)
        marks = np.flatnonzero(np.isin(array, np.frombuffer(b"{}[],\x1e", np.uint8)))
        marks = marks[marks >= first]
        marks = marks[(np.searchsorted(quotes, marks) + self.is_quoted) % 2 == 0]
        brackets = array[marks]
        steps = (brackets == ord("{")).astype(np.int64) - (brackets == ord("}"))
        sums = self.depth + np.cumsum(steps)
        after = sums - np.minimum(np.minimum.accumulate(sums), 0)  # a stray brace closes nothing
        before = np.append(self.depth, after[:-1])
        outside = (after == 0) & (brackets != ord("}"))
        array[marks[outside]] = ord(" ")
        arrays = (brackets == ord("[")).astype(np.int64) - (brackets == ord("]"))
        levels = np.stack([after, self.arrays + np.cumsum(arrays * outside)], axis=1)
        array[line_feeds] = ord("\r")
        opens = marks[(before == 0) & (brackets == ord("{"))]
        commas = marks[outside & (brackets == ord(",")) & (levels[:, 1] <= 1)]
        held = self._split(array, opens, commas)
        ends = opens[int(self.count == 0) :] - 1
        apart = np.isin(array[ends], np.frombuffer(b" \t\r", np.uint8))
        array[ends[apart]] = ord("\n")
        self.count += len(opens)
        self.is_quoted ^= bool(len(quotes) % 2)
        bounds = np.append(line_feeds, len(array))
        levels = np.concatenate([[[self.depth, self.arrays]], levels])
        began = self._counted + np.searchsorted(opens, bounds)
        joined = self.joined + np.searchsorted(ends[~apart], bounds)
        rows = np.column_stack([levels[np.searchsorted(marks, bounds)], began, joined])
        lines, now = np.concatenate([self._line, rows[:-1]]), rows[-1]
        if self.is_quoted and data.endswith(b"\n"):
            self.is_quoted, self._lost = False, self._lost + 1
            lines, now = lines[:-1], lines[-2]  # nothing of that line counts
        self.depth, self.arrays, self._counted, self.joined = now.tolist()
        self._several |= bool((np.diff(lines[:, 2]) > 1).any())
        self._line = lines[-1:]
        self._line_feeds += len(line_feeds)
        laid_out = array.tobytes()
        self._pending = laid_out[held:]
        return laid_out[:held]

    def _split(self, array: np.ndarray, opens: np.ndarray, commas: np.ndarray) -> int:
        """Begins lines at commas, behind an object, of elements that are none.

        Returns from where on the bytes come later, as the next piece may decide on a comma there.
        """
        if self._begins_with_comma:
            commas = np.append(0, commas)
        elif self.count == 0:
            commas = commas[commas > (opens[0] if len(opens) else len(array))]
        bounds = np.union1d(opens, np.append(commas, len(array)))
        nexts = bounds[np.searchsorted(bounds, commas, side="right")]
        filled = np.append(0, np.cumsum(~np.isin(array, np.frombuffer(b" \t\r\n", np.uint8))))
        are_lines = filled[nexts] > filled[commas]
        array[commas[are_lines]] = ord("\n")
        self._begins_with_comma = bool(
            len(commas) and nexts[-1] == len(array) and not are_lines[-1]
        )
        return int(commas[-1]) if self._begins_with_comma else len(array) - 1

    def rest(self) -> bytes:
        """The last bytes."""
        return self._pending

    @property
    def unfinished(self) -> str:
        """What has no end in a file that ends here: all behind its beginning is lost with it.

        If a string has none, its line alone does not count, but that may be the only one, or there
        are several objects in a line.
        """
        if self.arrays > 0:
            return "array"
        several = self._several or self._counted - self._line[0, 2] > 1
        if several and (self._lost or self.is_quoted or self._hidden):
            return "object"
        depth = self._line[0, 0] if self.is_quoted else self.depth
        only = self._line_feeds == 0 if self.is_quoted else self._lost == self._line_feeds == 1
        only = only or (self._hidden and self._line_feeds <= 1)
        return "object" if depth > 0 or only else ""


def _hides_braces(array: np.ndarray, quotes: np.ndarray, opener: int, first: int) -> bool:
    """Whether a string that a quote too many before it began has a brace of an object.

    Strings begin at the quotes from number `opener` on, at every second one; a string of JSON only
    behind one of `{[,:` and blanks, as far as the bytes from `first` on can tell.
    """
    openers = quotes[opener::2]
    before = openers - 1
    while (are_blank := (before >= first) & _BLANKS[array[before]]).any():
        before[are_blank] -= 1
    wrong = (before >= first) & ~np.isin(array[before], np.frombuffer(b"{[,:", np.uint8))
    if not wrong.any():
        return False
    braces = np.flatnonzero(np.isin(array, np.frombuffer(b"{}", np.uint8)))
    within = np.searchsorted(braces, np.append(quotes, len(array)))
    return bool((np.diff(within)[opener::2] > 0)[wrong].any())


def _between(places: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Those of some places in order that are in a piece, counted from its start."""
    return places[slice(*np.searchsorted(places, [start, stop]))] - start


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
    filled = False
    laid_out: list[bytes] = []  # of a file that may hold an empty array, which has no line
    for piece in pieces:
        held += piece
        data = held[:-1].rstrip(b"\\")
        if data:
            held = held[len(data) :]
            laid_out.append(objects.feed(data))
            begin = begin + data if _EMPTY_SO_FAR.fullmatch(begin) else begin
            if not _EMPTY_SO_FAR.fullmatch(begin):
                lines, laid_out = b"".join(laid_out), []
                filled = filled or bool(lines.strip())
                yield lines
    if held:
        laid_out.append(objects.feed(held))
    if objects.unfinished:
        raise _LayoutError(
            f"is cut: its JSON {objects.unfinished} has no end, or has a brace or quote too many "
            "or too few; fetch or write it again"
        )
    if objects.joined:
        raise _LayoutError(_JOINED)
    if not _EMPTY.fullmatch(begin + held):
        rest = b"".join([*laid_out, objects.rest()])
        if objects.count == 0 and (filled or rest.strip()):
            raise _LayoutError(
                "does not begin with JSON lines: each line, or each element of an array, must be "
                "one object"
            )
        yield rest


def _feed_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece.replace(b"\r", b"\n")


_LAYOUTS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    CARRIAGE_RETURNS: _feed_lines,
    JSON_VALUES: _object_lines,
}


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
_WIDE = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
_CONTROLS = bytes(code for code in range(32) if chr(code) not in "\t\n\r\f\x1b")
_SEVERAL = 8  # bytes from which on shares of them say something
_MANY_CONTROLS, _SOME_HIGH, _MOST_STRANGE = 0.1, 0.05, 0.05
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
_MOST_TOKEN = 8  # characters of a token that may be cut, such as false or an escape
LOOKED_INTO = (".json", "")  # suffixes in a store
_START, _LONG_START = 1 << 12, 1 << 20  # bytes looked at; of a file without a line feed in them


@dataclass(frozen=True)
class Inside:
    """What a file is, by its suffix, and then by its first bytes."""

    format: str
    compression: str | None


def check_encoding(path: str, start: bytes) -> None:
    """Raises InputError if a file's first bytes are no UTF-8 text, as far as these can say it."""
    refuse_pointer(path, start)
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise InputError(f"{path} is {name}, convert it to UTF-8: iconv -f {name} -t UTF-8")
    start = start[:_START]
    start = start.rstrip(b"\0") or start  # a file may have been allocated beyond its text
    for mark, name in _PACKED.items():
        if start.startswith(mark) and not _is_text(start):
            raise InputError(
                f"{path} is {name} data, perhaps twice: unpack it, or name it *{_SUFFIXES[name]}"
            )
    for mark, name in _OTHERS.items():
        if start.startswith(mark) and not _is_text(start):
            raise InputError(f"{path} is {name}, not text; unpack or convert it")
    if len(start) < _SEVERAL or b"\0" not in start:
        return
    controls = len(start) - len(start.translate(None, _CONTROLS))
    high = sum(byte >= 0x80 for byte in start)
    if controls > _MANY_CONTROLS * len(start) or (
        high > _SOME_HIGH * len(start) and not _is_text(start)
    ):
        for name in _WIDE:
            if _reads_as(name, start):
                raise InputError(
                    f"{path} is {name[:6]} without a byte order mark, convert it to UTF-8: "
                    f"iconv -f {name} -t UTF-8"
                )
    if start.count(0) > _MANY_CONTROLS * len(start):
        raise InputError(f"{path} is binary data: of its first bytes many are zero")


def check_lines(info: FileInfo, start: bytes) -> None:
    """As `check_encoding`; InputError also if a store's file, not looked into before, has no LF."""
    check_encoding(info.path, start)
    enough = len(start) >= min(info.size, _START)
    if is_remote(info.path) and enough and b"\r" in start and b"\n" not in start:
        raise InputError(
            f"{info.path} has lines that end in carriage returns alone; write line feeds: "
            "tr '\\r' '\\n'"
        )


def _is_text(start: bytes) -> bool:
    """Whether bytes, of which the last may be part of a character, are UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def _reads_as(name: str, start: bytes) -> bool:
    """Whether bytes are text in an encoding of several bytes a character."""
    try:
        text = codecs.getincrementaldecoder(name)().decode(start)
    except UnicodeDecodeError:
        return False
    strange = sum(
        unicodedata.category(letter) in ("Cc", "Cn", "Co", "Cs") and letter not in "\t\n\r\f"
        for letter in text
    )
    return bool(text) and strange <= _MOST_STRANGE * len(text)


def look_inside(path: str, named: Inside, suffix: str, forced: bool) -> Inside:
    """What a file is: as `named`, or as its first bytes show; InputError if it is no text.

    A compressed file is recognized without its suffix, and a plain one with it; so are line ends
    of carriage returns alone, JSON in which an object is not a line, and JSON and Parquet named as
    text. Files of a store are read later, except those without a suffix, and of `.json`, of which
    no line may be an object. A format that is `forced` stays.
    """
    if is_remote(path) and (suffix not in LOOKED_INTO or (suffix and named.compression)):
        return named
    with open_raw(path) as file:
        start = _first_bytes(file)
        compression = _packing(start, named.compression)
        if compression is None:
            if start.startswith(_PARQUET) and not _is_text(start) and not forced:
                return Inside("parquet", None)
            if not (named.format == "text" and not forced and is_framed(start)):
                check_encoding(path, start)
        else:
            file.seek(0)
            start = b""
            with suppress(InputError):  # said when the file is read
                for piece in decompressed(file, compression, path, _START):
                    start += piece
                    if b"\n" in start or len(start) >= _LONG_START:
                        break
    if named.format == "text" and not forced:
        if is_framed(start):
            return Inside(TFRECORD, compression)
        if _begins_with_record(start):
            named = replace(named, format="jsonl")
    inside = replace(named, compression=compression)
    if named.format == "jsonl" and _has_values(path, start):
        return _laid_out(inside, JSON_VALUES)
    if named.format in ("jsonl", "text", "csv") and b"\r" in start and b"\n" not in start:
        return _laid_out(inside, CARRIAGE_RETURNS)
    return inside


def _laid_out(inside: Inside, layout: str) -> Inside:
    packed = inside.compression
    return replace(inside, compression=layout if packed is None else f"{packed}+{layout}")


def _first_bytes(file: BinaryIO) -> bytes:
    start = file.read(_START)
    return start if b"\n" in start else start + file.read(_LONG_START)


def _packing(start: bytes, named: str | None) -> str | None:
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


def _has_values(path: str, start: bytes) -> bool:
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
    objects = ObjectLines()
    objects.feed(first)
    if objects.joined:
        raise InputError(f"{path} {_JOINED}")
    # Of a malformed first line the second line begins with another object.
    goes_on = objects.depth > 0 and not objects.is_quoted and rest.lstrip()[:1] not in (b"{", b"")
    return objects.count > 1 or (bool(ended) and goes_on)
