"""Reads the lines of a part, and parses them as plain text or as JSON."""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Self, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.storage.files import for_each, open_listed
from bert_embed.transforms.parts import (
    BLANK_LINE,
    AnyContent,
    BadRecordError,
    BlockSpec,
    Content,
    InputFile,
    ReadPart,
    Rejected,
    Slice,
)
from bert_embed.transforms.read.columns import Columns, nested_value
from bert_embed.transforms.read.records import (
    Documents,
    ExtraReader,
    Record,
    documents_of,
    extra_reader,
    id_of,
    record_of,
)
from bert_embed.transforms.read.streams import BOM, check_lines, decompressed

MOST_PART_BYTES = 32 << 20  # after which a part of records of any size is closed


def parts_in_order(
    contents: Iterable[AnyContent], part_docs: int
) -> Iterator[ReadPart[AnyContent]]:
    """All contents as parts of at most `part_docs` records; the last one is marked."""
    parts = enumerate(_close_parts(contents, part_docs))
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
        for content in _close_parts([chunk], part_docs):
            yield ReadPart(number, content, last=False)
            records += sum(piece.count for piece in content)
            number += 1
    yield ReadPart(number, (), last=True, end_of_file=records)


def _close_parts(contents: Iterable[AnyContent], most: int) -> Iterator[tuple[AnyContent, ...]]:
    """Distributes records to parts of at most `most`, up to that which fills `MOST_PART_BYTES`."""
    held: list[AnyContent] = []
    left, room = most, MOST_PART_BYTES
    for content in contents:
        rest: AnyContent | None = content
        ends = None if (sizes := content.memory) is None else np.cumsum(sizes)
        while rest is not None and (rest.size or rest.count):
            if ends is None:
                taken, rest = rest.cut(left)
            else:  # up to the record, included, with which the part is full
                taken, rest = rest.cut(min(left, int(np.searchsorted(ends, room)) + 1))
                size = int(ends[taken.count - 1])
                room, ends = room - size, ends[taken.count :] - size
            held.append(taken)
            left -= taken.count
            if left == 0 or room <= 0:
                yield tuple(held)
                held, left, room = [], most, MOST_PART_BYTES
    if held:
        yield tuple(held)


_PIECE = 1 << 16  # bytes read at a time when a line continues after its block
# A longer line is rejected without being held in memory, so that a small compressed file of one
# endless line needs no more memory than any other. A text of this size has about ten million
# tokens; as bytes, text and tokens it fills the memory of a small worker.
MOST_RECORD_BYTES = 64 << 20


NO_STARTS, ONE_START = np.empty(0, np.int64), np.zeros(1, np.int64)


@dataclass(frozen=True)
class Lines(Content):
    """Some whole lines of one file, or other records of bytes."""

    offset: int  # where the first one begins, in decompressed bytes
    data: bytes  # with the line ends; only a file's last may lack one
    starts: np.ndarray  # int64 [records], where each begins in `data`
    too_large: int = 0  # bytes of a record over `MOST_RECORD_BYTES`, whose `data` is not held
    is_open: bool = False  # the last record is the file's last, which nothing ends
    before: int = 0  # bytes in front of the first record of the file that are none

    @property
    def size(self) -> int:
        """How many bytes of the file they are."""
        return self.before + (self.too_large or len(self.data))

    @property
    def count(self) -> int:
        """How many records."""
        return len(self.starts)

    def cut(self, most: int) -> tuple[Self, Self | None]:
        """The first `most` records, and the rest if there is any."""
        if self.count <= most:
            return self, None
        first = replace(self._piece(0, most), before=self.before, is_open=False)
        return first, self._piece(most, self.count)

    def _piece(self, first: int, stop: int) -> Self:
        start = int(self.starts[first])
        end = int(self.starts[stop]) if stop < self.count else len(self.data)
        starts, offset = self.starts[first:stop] - start, self.offset + start
        return replace(self, offset=offset, data=self.data[start:end], starts=starts, before=0)

    def with_data(self, data: bytes) -> Self:
        """The same records with their bytes, or with none while the bytes are stored elsewhere."""
        starts = np.append(0, self.ends(data))
        return (
            self if self.too_large else replace(self, data=data, starts=starts[starts < len(data)])
        )

    def ends(self, data: bytes) -> np.ndarray:
        """int64 `[ends]` of whole records in these bytes."""
        return line_ends(data)

    def without_large(self) -> Iterator[Self]:
        """The same records; one that is too large comes apart, without its bytes."""
        first = 0
        if len(self.data) > MOST_RECORD_BYTES:
            sizes = np.diff(self.starts, append=len(self.data))
            for row in np.flatnonzero(sizes > MOST_RECORD_BYTES).tolist():
                if row > first:
                    yield self._piece(first, row)
                alone = self._piece(row, row + 1)
                yield replace(alone, data=b"", too_large=len(alone.data))
                first = row + 1
        if first < self.count:
            yield self._piece(first, self.count) if first else self

    @property
    def text(self) -> bytes:
        """The data without a byte order mark."""
        return self.data.removeprefix(BOM) if self.offset == 0 else self.data


def line_ends(data: bytes) -> np.ndarray:
    """int64 `[lines]`: where each line ends, behind its line feed."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


def whole_records(
    piece: Slice, offset: int, pieces: Iterable[bytes], ends_of: Callable[[bytes], np.ndarray]
) -> Iterator[Lines]:
    """Whole records from the offset on; one that is too large comes apart, without its bytes.

    `ends_of` gives int64 `[ends]` of records in each of the pieces.
    """
    held: list[bytes] = []  # of an unfinished record, unless it is too large
    length = 0
    records = Lines(piece.file, piece.info.path, offset, b"", ONE_START)
    for data in pieces:
        ends = ends_of(data)
        if len(ends) and length > MOST_RECORD_BYTES:
            stop = int(ends[0])
            yield replace(records, too_large=length + stop)
            records = replace(records, offset=records.offset + length + stop)
            data, ends, length = data[stop:], ends[1:] - stop, 0
        if len(ends):
            stop = int(ends[-1])
            whole = b"".join([*held, data[:stop]])
            starts = np.append(0, ends[:-1] + length)
            yield from replace(records, data=whole, starts=starts).without_large()
            records = replace(records, offset=records.offset + len(whole))
            held, length, data = [], 0, data[stop:]
        length += len(data)
        held.append(data)
        if length > MOST_RECORD_BYTES:
            held.clear()
    if length:
        too_large = length if length > MOST_RECORD_BYTES else 0
        yield replace(records, data=b"".join(held), too_large=too_large, is_open=True)


def first_of(contents: Iterable[AnyContent], most: int | None) -> Iterator[AnyContent]:
    """The contents up to the first `most` records; None takes all."""
    left = most
    for content in contents:
        if left is not None:
            content, _ = content.cut(left)
            left -= content.count
        yield content
        if left == 0:
            return


def block_lines(spec: BlockSpec, block_bytes: int) -> Iterator[Lines]:
    """The lines that begin in a block; of a file that is read through so many bytes at a time."""
    if spec.read_through:
        return _stream(spec.slices[0], spec.compression, block_bytes, spec.records)
    read = for_each(spec.slices[0].info.path, lambda piece: [*_range_lines(piece)], spec.slices)
    return itertools.chain.from_iterable(read)


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
        offset = piece.stop - len(data)
        pieces = _with_rest(file, data) if piece.stop < piece.info.size else iter([data])
        if len(some := [*itertools.islice(pieces, 2)]) > 1:
            every = itertools.chain(some, pieces)
            yield from whole_records(piece, offset, every, line_ends)
        else:
            lines = Lines(piece.file, piece.info.path, offset, b"", NO_STARTS)
            yield from lines.with_data(some[0]).without_large()


def _with_rest(file: BinaryIO, data: bytes) -> Iterator[bytes]:
    """Some bytes with those of the file up to a line feed; in pieces where these are many."""
    held, size, last = [data], len(data), data
    while not last.endswith(b"\n") and (more := file.read(_PIECE)):
        last = more[: more.find(b"\n") + 1 or None]
        held.append(last)
        size += len(last)
        if size > MOST_RECORD_BYTES:
            yield from held
            held = []
    if held:
        yield b"".join(held)


def _stream(
    piece: Slice, compression: str | None, block_bytes: int, records: int | None
) -> Iterator[Lines]:
    """Whole lines from the start of a file, about `block_bytes` at a time, `records` at most."""
    pieces = stored_pieces(piece, compression, block_bytes)
    first = next(pieces, b"")
    check_lines(piece.info, first)
    every = whole_records(piece, 0, itertools.chain([first], pieces), line_ends)
    yield from first_of(every, records)


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
    [whole] = file.as_block().slices
    every = _stream(whole, file.compression, size, file.records)
    if file.compression is None:
        every = itertools.chain(_range_lines(replace(whole, stop=min(size, file.stop))), every)
    empty = Lines(0, file.info.path, 0, b"", NO_STARTS)
    return next((lines for lines in every if not lines.too_large), empty)


INVALID_UTF8 = "invalid UTF-8"
TOO_LARGE = "record too large"
_MOST_BY_PYTHON = 32  # strings for which Python is faster than Arrow, as in many tiny files


def line_texts(lines: Lines) -> tuple[list[str | bytes], np.ndarray]:
    """The texts of lines, and int64 `[lines]`, where each begins in the file, in bytes.

    A line ends at a line feed; one carriage return before it is dropped, and a byte order mark at
    the start of the file. A line that is not UTF-8 stays bytes.
    """
    data = lines.text
    offsets = lines.starts + lines.offset
    try:
        texts: list[str | bytes] = [*data.decode("utf-8").split("\n")]
    except UnicodeDecodeError:
        texts = [decoded(line) for line in data.split(b"\n")]
    del texts[lines.count :]
    if b"\r" in data:
        texts = [
            text.removesuffix("\r") if isinstance(text, str) else text.removesuffix(b"\r")
            for text in texts
        ]
    return texts, offsets


def utf8_detail(data: bytes) -> str | None:
    """Where bytes stop being UTF-8; None: they do not."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the record is {data[error.start]:#04x}"
    return None


def decoded(line: bytes) -> str | bytes:
    """Bytes as text, or as they are where they are not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line


def positions(path: str, offsets: np.ndarray) -> pa.StringArray:
    """`<file>:<byte offset>` of each offset."""
    if len(offsets) <= _MOST_BY_PYTHON:
        return pa.array([f"{path}:{offset}" for offset in offsets.tolist()], pa.string())
    places = pa.array(offsets, pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(path, places, ":")


def parse_text(lines: Lines, columns: Columns) -> Documents:
    """Parses lines; those that are blank or not UTF-8 are rejected."""
    texts, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    bad = [
        row
        for row, text in enumerate(texts)
        if isinstance(text, bytes) or not text or text.isspace()
    ]
    if not bad:
        return Documents(places, cast("list[str]", texts), places, [])
    rejected = [rejected_text(places[row].as_py(), texts[row]) for row in bad]
    rows = np.delete(np.arange(len(texts)), bad)
    ids = places.take(pa.array(rows))
    good = cast("list[str]", [texts[row] for row in rows])
    return Documents(ids, good, ids, rejected)


def rejected_text(place: str, text: str | bytes, document: str | None = None) -> Rejected:
    """A text that is not UTF-8, or blank, named by its place unless its id is another."""
    facts = document or place, place, "read"
    if isinstance(text, bytes):
        return Rejected(*facts, INVALID_UTF8, text, detail=utf8_detail(text))
    return Rejected(*facts, BLANK_LINE, text, blank=True)


def reject_large(path: str, offset: int, place_is_id: bool) -> Documents:
    """Rejects the one record of a content that is too large to be held in memory."""
    [place] = positions(path, np.array([offset])).to_pylist()
    rejected = Rejected(place if place_is_id else None, place, "read", TOO_LARGE)
    none = pa.array([], pa.string())
    return Documents(none, [], none, [rejected])


_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
# Values of one record, of fields that nobody asked for, too: each takes up to 100 bytes in memory,
# but as few as 3 in the file. A text of the largest size has half as many commas.
_MOST_VALUES = 1 << 21
TOO_MANY_VALUES = "record of too many values"
_LARGE = re.compile(r"-?[0-9]{300,}|[eE]\+?[0-9]{3,}")  # numbers that may be infinite
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def parse_jsonl(lines: Lines, columns: Columns) -> Documents:
    """Parses lines; those that give no document are rejected."""
    texts, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    return documents_of(_records(texts, columns, lines.path), places, columns)[0]


def _records(
    texts: Iterable[str | bytes], columns: Columns, path: str
) -> Iterator[Record | BadRecordError]:
    extra = extra_reader(columns, path)
    for line in texts:
        try:
            yield _record(line, columns, extra)
        except BadRecordError as error:
            document = None
            with suppress(BadRecordError):
                document = id_of(_object(line) or {}, columns.id) if columns.id else None
            yield error.of(line, document)


def _record(line: str | bytes, columns: Columns, extra: ExtraReader) -> Record:
    if isinstance(line, bytes):
        raise BadRecordError(INVALID_UTF8, utf8_detail(line))
    if not line or line.isspace():
        raise BadRecordError(BLANK_LINE)
    if _is_beyond_memory(line):
        raise BadRecordError(TOO_MANY_VALUES)
    try:
        record = _loads(line)
    except ValueError as error:
        raise BadRecordError("malformed JSON", error) from error
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    for name in columns.nested:
        record[name] = nested_value(record, name)
    return record_of(record, columns, extra(record))


def first_records(lines: Lines) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; they show which fields a file has."""
    records = map(_object, line_texts(lines)[0])
    return (record for record in records if record is not None)


def _is_beyond_memory(line: str) -> bool:
    """Whether a line, parsed, would have so many values that they take far more than its bytes."""
    if len(line) < _MOST_VALUES or _marks(line) < _MOST_VALUES:
        return False
    return _marks(_STRING.sub("", line)) >= _MOST_VALUES


def _marks(line: str) -> int:
    """How many values there are at most: one behind each of these marks, if not in a string."""
    return sum(map(line.count, ",[{:"))


def _object(line: str | bytes) -> dict[str, Any] | None:
    if isinstance(line, bytes) or _is_beyond_memory(line):
        return None
    with suppress(ValueError):
        record = _loads(line)
        return record if isinstance(record, dict) else None
    return None


def _loads(line: str) -> Any:
    """The value of a line; a comma after it, NaN and Infinity are allowed. ValueError: malformed.

    NaN is null, as pandas writes it for a missing value. Numbers beyond 1.8e308 are infinite, as in
    Python's json module.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        text = line.rstrip().removesuffix(",").removeprefix("\ufeff")  # where files were joined
        if not any(word in text for word in _CONSTANTS) and not _LARGE.search(text):
            return orjson.loads(text)
    try:
        value = json.loads(text, parse_constant=_CONSTANTS.get, parse_int=_integer)
        orjson.dumps(value)
    except (RecursionError, orjson.JSONEncodeError) as error:  # the latter: half a surrogate pair
        raise ValueError("nested too deeply, or no text") from error
    return value


def _integer(digits: str) -> Any:
    return float(digits) if _LARGE.fullmatch(digits) else orjson.loads(digits)
