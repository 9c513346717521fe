"""Reads the lines of a part, and parses them as plain text or as JSON."""

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.base.threads import in_parallel
from bert_embed.storage.files import is_remote, open_listed
from bert_embed.transforms.parts import (
    BLANK_LINE,
    AnyContent,
    BadRecordError,
    BlockSpec,
    InputFile,
    ReadPart,
    Rejected,
    Slice,
)
from bert_embed.transforms.read.columns import Columns, nested_value, partitions
from bert_embed.transforms.read.records import (
    BadRecord,
    Documents,
    ExtraValues,
    Record,
    documents_of,
    id_of,
    record_of,
)
from bert_embed.transforms.read.streams import BOM, check_lines, decompressed

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


def block_lines(spec: BlockSpec, block_bytes: int) -> Iterator[Lines]:
    """The lines that begin in a block; of a file that is read through so many bytes at a time."""
    if spec.read_through:
        return _stream(spec.slices[0], spec.compression, block_bytes, spec.records)
    ranges = itertools.chain.from_iterable(_slices_lines(spec.slices))
    return itertools.chain.from_iterable(map(without_large, ranges))


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
    [whole] = file.as_block().slices
    if file.compression is None:
        first = next(_range_lines(replace(whole, stop=min(size, file.stop))), empty)
        if not first.too_large:
            return first
    stream = _stream(whole, file.compression, size, file.records)
    return next((lines for lines in stream if not lines.too_large), empty)


def limit_lines(file: InputFile, most: int) -> tuple[InputFile, int]:
    """A file that is not compressed, cut behind its first lines; and how many these are."""
    count = stop = 0
    unfinished = False
    with open_listed(file.info) as raw:
        while count < most and (data := raw.read(1 << 20)):
            ends = data.count(b"\n")
            if count + ends >= most:
                taken, _ = Lines(0, "", 0, data).cut(most - count)
                return replace(file, stop=stop + len(taken.data)), most
            count += ends
            stop += len(data)
            unfinished = not data.endswith(b"\n")
    return replace(file, stop=stop), count + unfinished


INVALID_UTF8 = "invalid UTF-8"
TOO_LARGE = "record too large"
_MOST_BY_PYTHON = 32  # strings for which Python is faster than Arrow, as in many tiny files


def line_texts(lines: Lines) -> tuple[list[str | bytes], np.ndarray]:
    """The texts of lines, and int64 `[lines]`, where each begins in the file, in bytes.

    A line ends at a line feed; one carriage return before it is dropped, and a byte order mark at
    the start of the file. A line that is not UTF-8 stays bytes.
    """
    data = lines.text
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])[: lines.count]
    offsets = starts + (lines.offset + len(lines.data) - len(data))
    if len(offsets):
        offsets[0] = lines.offset  # the mark belongs to the first line
    try:
        texts: list[str | bytes] = [*data.decode("utf-8").split("\n")]
    except UnicodeDecodeError:
        texts = [_decoded(line) for line in data.split(b"\n")]
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


def _decoded(line: bytes) -> str | bytes:
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
    bad = [row for row in _suspects(lines, offsets, texts) if _is_bad(texts[row])]
    if not bad:
        return Documents(places, cast("list[str]", texts), places, [])
    rejected = [_rejected(places[row].as_py(), texts[row]) for row in bad]
    rows = np.delete(np.arange(len(texts)), bad)
    ids = places.take(pa.array(rows))
    good = cast("list[str]", [texts[row] for row in rows])
    return Documents(ids, good, ids, rejected)


def _suspects(lines: Lines, offsets: np.ndarray, texts: Sequence[str | bytes]) -> Iterable[int]:
    """Rows that may be blank or not UTF-8: a blank one begins with a space or non-ASCII."""
    if bytes in set(map(type, texts)):
        return range(len(texts))
    first = np.frombuffer(lines.data, np.uint8)[offsets - lines.offset]
    return np.flatnonzero((first <= ord(" ")) | (first >= 0x80)).tolist()


def _is_bad(text: str | bytes) -> bool:
    return not text or isinstance(text, bytes) or text.isspace()


def _rejected(place: str, line: str | bytes) -> Rejected:
    if isinstance(line, bytes):
        return Rejected(*(place, place, "read", INVALID_UTF8, line), detail=utf8_detail(line))
    return Rejected(place, place, "read", BLANK_LINE, line, blank=not line.strip())


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
SEVERAL = "several JSON objects in a line"
_DECODER = json.JSONDecoder()
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def parse_jsonl(lines: Lines, columns: Columns) -> Documents:
    """Parses lines; those that give no document are rejected."""
    texts, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    return documents_of(_records(texts, columns, lines.path), places, columns)[0]


def _records(
    texts: Iterable[str | bytes], columns: Columns, path: str
) -> Iterator[Record | BadRecord]:
    extra = ExtraValues(columns.extra, partitions(path)) if columns.extra else None
    for line in texts:
        try:
            yield parse_record(line, columns, extra)
        except BadRecordError as error:
            document = _id_if_any(line, columns) if columns.id else None
            yield BadRecord(str(error), line, document, error.detail)


def parse_record(line: str | bytes, columns: Columns, extra: ExtraValues | None) -> Record:
    """Parses one line; BadRecordError if it gives no document."""
    if isinstance(line, bytes):
        raise BadRecordError(INVALID_UTF8, utf8_detail(line))
    if not line or line.isspace():
        raise BadRecordError(BLANK_LINE)
    if _is_beyond_memory(line):
        raise BadRecordError(TOO_MANY_VALUES)
    try:
        record = _loads(line)
    except ValueError as error:
        raise BadRecordError(_several_or_malformed(line), error) from error
    if not isinstance(record, dict):
        raise BadRecordError("not a JSON object")
    for name in columns.nested:
        record[name] = nested_value(record, name)
    return record_of(record, columns, extra(record) if extra else ())


def _several_or_malformed(line: str) -> str:
    """Why a line is no record; several are one where files were joined without a line end."""
    with suppress(ValueError, RecursionError):
        first, end = _DECODER.raw_decode(line.lstrip())
        if isinstance(first, dict) and line.lstrip()[end:].lstrip().startswith("{"):
            return SEVERAL
    return "malformed JSON"


def _id_if_any(line: str | bytes, columns: Columns) -> str | None:
    with suppress(BadRecordError):
        return id_of(_object(line) or {}, columns.id or "")
    return None


def first_records(lines: Lines) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; they show which fields a file has."""
    records = map(_object, line_texts(lines)[0])
    return (record for record in records if record is not None)


def _is_beyond_memory(line: str | bytes) -> bool:
    """Whether a line, parsed, would have so many values that they take far more than its bytes."""
    if len(line) < _MOST_VALUES or _marks(line) < _MOST_VALUES:
        return False
    text = line if isinstance(line, str) else line.decode("utf-8", "replace")
    return _marks(_STRING.sub("", text)) >= _MOST_VALUES


def _marks(line: str | bytes) -> int:
    """How many values there are at most: one behind each of these marks, if not in a string."""
    if isinstance(line, bytes):
        return sum(map(line.count, (b",", b"[", b"{", b":")))
    return sum(map(line.count, ",[{:"))


def _object(line: str | bytes) -> dict[str, Any] | None:
    if _is_beyond_memory(line):
        return None
    with suppress(ValueError):
        record = _loads(line)
        return record if isinstance(record, dict) else None
    return None


def _loads(line: str | bytes) -> Any:
    """The value of a line; a comma after it, NaN and Infinity are allowed. ValueError: malformed.

    NaN is null, as pandas writes it for a missing value. Numbers beyond 1.8e308 are infinite, as in
    Python's json module.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        text = line if isinstance(line, str) else line.decode("utf-8")
        text = text.rstrip().removesuffix(",").removeprefix("\ufeff")  # where files were joined
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
