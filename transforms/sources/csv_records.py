"""CSV: files in, their whole records cut by quotes, and the documents of those records out."""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from transforms.block_spec import BlockSpec, InputFile, Slice
from transforms.dead_letter import BLANK_LINE, BadRecordError
from transforms.sources.columns import Columns
from transforms.sources.csv_cutter import RecordCutter, delimiter_of
from transforms.sources.documents import Documents
from transforms.sources.encoding import check_encoding
from transforms.sources.extra import ExtraValues
from transforms.sources.lines import BOM, check_unchanged, stored_pieces
from transforms.sources.parts import ReadPart, parts_in_order, parts_read_through
from transforms.sources.records import Record, Refused, documents_of, record_of
from transforms.sources.text import INVALID_UTF8, positions

_MOST_RECORD_BYTES = 64 << 20  # a quote left open would take the rest of a file into memory
_INTEGER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class CsvRecords:
    """Some whole records of one file.

    Attributes:
        file: The file's number in the listing.
        path: The file.
        header: Names of its columns.
        offset: Where the first record begins, in decompressed bytes.
        data: The records with their ends.
        starts: int64 `[records]`, where each begins in `data`.
        number: Number of the first record in its file, from 0.
        before: Bytes of byte order mark and header before the first record of the file.
        is_open: Whether the last record is the file's last and ends within quotes.
    """

    file: int
    path: str
    header: tuple[str, ...]
    offset: int
    data: bytes
    starts: np.ndarray
    number: int
    before: int = 0
    is_open: bool = False

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        return self.before + len(self.data)

    def cut(self, most: int) -> tuple["CsvRecords", "CsvRecords | None"]:
        if self.count <= most:
            return self, None
        end = int(self.starts[most])
        first = replace(self, data=self.data[:end], starts=self.starts[:most], is_open=False)
        rest = replace(
            self,
            offset=self.offset + end,
            data=self.data[end:],
            starts=self.starts[most:] - end,
            number=self.number + most,
            before=0,
        )
        return first, rest


def read_csv_parts(
    spec: BlockSpec, part_docs: int, block_bytes: int
) -> Iterator[ReadPart[CsvRecords]]:
    """Reads a block of CSV files; otherwise as `lines.read_parts`."""
    for piece in spec.slices:
        check_unchanged(piece)
    if spec.read_through:
        stream = read_records(spec.slices[0], spec.compression, block_bytes, spec.records)
        yield from parts_read_through(spec, stream, part_docs)
        return
    every = (read_records(piece, None, block_bytes) for piece in spec.slices)
    yield from parts_in_order(chain.from_iterable(every), part_docs)


def read_records(
    piece: Slice, compression: str | None, size: int, limit: int | None = None
) -> Iterator[CsvRecords]:
    """Whole records from a file's start on, those of some `size` bytes at a time.

    Args:
        piece: A whole file.
        compression: How it is stored.
        size: About how many bytes to give at once.
        limit: Most records to give; None for all.

    Raises:
        ValueError: The header is none, or a record is far too long.
    """
    path = piece.info.path
    header: tuple[str, ...] | None = None
    offset = number = 0
    for data, ends, is_open in _whole_records(path, stored_pieces(piece, compression, size)):
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        before = 0
        if header is None:
            before = int(ends[0])
            header = _header(path, data[:before], is_open and len(ends) == 1)
            data, starts = data[before:], starts[1:] - before
        found = CsvRecords(
            piece.file, path, header, offset + before, data, starts, number, before, is_open
        )
        offset, number = offset + found.size, number + found.count
        if limit is not None and number >= limit:
            yield found.cut(limit - found.number)[0]
            return
        yield found


def _whole_records(path: str, pieces: Iterable[bytes]) -> Iterator[tuple[bytes, np.ndarray, bool]]:
    """Bytes of whole records, where these end, and whether the file ends within the last."""
    cutter = RecordCutter(delimiter_of(path))
    held: list[bytes] = []  # of a record whose end is still to come
    length = mark = 0
    for number, data in enumerate(_without_split_quotes(pieces)):
        if number == 0:
            check_encoding(path, data)
            mark = len(BOM) if data.startswith(BOM) else 0
        ends = cutter.ends(data[mark:]) + mark
        mark = 0
        end = int(ends[-1]) if len(ends) else 0
        if end:
            yield b"".join([*held, data[:end]]), ends + length, False
            held, length = [], 0
        held.append(data[end:])
        length += len(held[-1])
        if length > _MOST_RECORD_BYTES:
            raise ValueError(
                f"{path} has a record of over {_MOST_RECORD_BYTES >> 20} MiB: is a quote left open?"
            )
    if length:
        yield b"".join(held), np.array([length]), cutter.is_open


def _without_split_quotes(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes in pieces that end in no quote, as it may be half a pair, and hold a whole mark."""
    held = b""
    for piece in pieces:
        held += piece
        data = held.rstrip(b'"')
        if len(data) > len(BOM):
            yield data
            held = held[len(data) :]
    if held:
        yield held


def _header(path: str, data: bytes, is_open: bool) -> tuple[str, ...]:
    try:
        text = data.decode("utf-8-sig")
        names = next(csv.reader([text], delimiter=delimiter_of(path), strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} has a header that is not UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"{path} has a malformed header: {error}") from error
    if is_open or not any(names):
        raise ValueError(f"{path} does not begin with a header, the names of its columns")
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise ValueError(f"{path} has two columns of the name {doubled[0]}")
    return tuple(names)


def csv_header(file: InputFile) -> tuple[str, ...] | None:
    """Names of a file's columns; None of an empty file.

    Raises:
        ValueError: It has no header.
    """
    piece = Slice(0, file.info, 0, file.info.size)
    first = next(read_records(piece, file.compression, 1 << 16), None)
    return None if first is None else first.header


def check_names(path: str, names: Iterable[str], columns: Columns) -> None:
    """Sees that a file has every column that was asked for.

    Raises:
        ValueError: It lacks one; the flag is named.
    """
    held = list(names)
    for flag, name in columns.asked:
        if name not in held:
            found = ", ".join(held)
            raise ValueError(f"--{flag} {name} is no column of {path}, which has {found}")


def limit_records(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """A file cut to its first `limit` records, and how many it then has."""
    piece = Slice(0, file.info, 0, file.stop)
    found = sum(each.count for each in read_records(piece, file.compression, 1 << 20, limit))
    return replace(file, records=found), found


def parse_csv(records: CsvRecords, columns: Columns) -> Documents:
    """Records to documents, and the records refused.

    Raises:
        ValueError: The file has no such column.
    """
    check_names(records.path, records.header, columns)
    places = positions(records.path, records.starts + records.offset)
    return documents_of(_documents(records, columns), places, records.number, columns)


def _documents(records: CsvRecords, columns: Columns) -> Iterator[Record | Refused]:
    csv.field_size_limit(2 * _MOST_RECORD_BYTES)
    waiting: list[str] = []  # the one record that the reader takes next
    rows = csv.reader(iter(waiting.pop, None), delimiter=delimiter_of(records.path), strict=True)
    extra = ExtraValues(columns.extra, as_text=True) if columns.extra else None
    index = {name: records.header.index(name) for _, name in columns.asked}
    stops = [*records.starts[1:].tolist(), len(records.data)][: records.count]
    for number, (start, stop) in enumerate(zip(records.starts.tolist(), stops, strict=True)):
        data = records.data[start:stop]
        known = None
        try:
            if records.is_open and number == records.count - 1:
                raise BadRecordError("unterminated quote")
            waiting.append(_text(data))
            fields = next(rows)
            if len(fields) != len(records.header):
                raise BadRecordError("another number of fields than the header")
            named = {name: fields[at] for name, at in index.items()}
            known = (columns.id and named[columns.id]) or None
            values = extra(named) if extra else ()
            yield record_of(_typed(named, columns), columns, values)
        except csv.Error:
            yield Refused("malformed CSV", _shown(data))
        except BadRecordError as error:
            yield Refused(str(error), _shown(data), known)


def _text(data: bytes) -> str:
    if not data.rstrip(b"\r\n"):
        raise BadRecordError(BLANK_LINE)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecordError(INVALID_UTF8) from error


def _typed(fields: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """The fields with what CSV has no notation for: an id or spans that are missing, integers."""
    if columns.id and not fields[columns.id]:
        del fields[columns.id]
    for name in columns.spans or ():
        value = fields[name]
        fields[name] = int(value) if _INTEGER.fullmatch(value) else value or None
    return fields


def _shown(data: bytes) -> str | bytes:
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        return data
