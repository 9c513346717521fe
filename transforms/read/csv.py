"""Reads CSV files: what separates columns, where records end, the documents in them."""

import csv
import functools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from bert_embed.base.errors import InputError, required
from bert_embed.base.threads import SharedSetting
from bert_embed.transforms.parts import (
    AS_UTF8,
    BACKSLASHES,
    BLANK_LINE,
    NO_QUOTES,
    BadRecordError,
    BlockSpec,
    InputFile,
    Slice,
)
from bert_embed.transforms.read import lines
from bert_embed.transforms.read.columns import SOME_LACK, Columns, check_is_there
from bert_embed.transforms.read.lines import (
    BOM,
    INVALID_UTF8,
    NO_STARTS,
    Lines,
    decoded,
    first_of,
    positions,
    stored_pieces,
    utf8_detail,
    whole_records,
)
from bert_embed.transforms.read.records import (
    END_OF_COPY,
    Documents,
    Record,
    documents_of,
    extra_reader,
    record_of,
)
from bert_embed.transforms.read.streams import check_encoding

_QUOTE, _LINE_FEED, _SPACE = ord('"'), ord("\n"), ord(" ")
_TAB_SEPARATED = re.compile(
    r"\.(?:tsv|tab)(?:-\d+-of-\d+)?(?:\.[a-z0-9]+(?:-\d+-of-\d+)?)?$", re.IGNORECASE
)
_DELIMITERS = ",;\t|\x01"  # of equally frequent ones the first
_HEADER_BYTES = 1 << 16  # at the start of a file, in which its header is looked for
# The first record, whichever the delimiter is: quotes open a field only where one begins.
_QUOTED = rb'(?:(?<=[,;\t|\x01])|^)"(?:[^"]|"")*+(?:"|$)'
_SEPARATOR_LINE = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([\x01\t !#-~])"?\r?\n')  # of Excel
_FIRST_RECORD = re.compile(rb"(?>" + _QUOTED + rb"|[^\n])*+")


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written: quotes, an escape character, what separates fields, names."""

    has_quotes: bool = True
    escape: str | None = None  # makes the next character one like others
    skips_spaces: bool = False  # before a field, as in `1, "a, b"`
    separator: str | None = None  # of fields; None: by suffix and header
    header: tuple[str, ...] | None = None  # names of the columns; None: the first record
    before: int = 0  # bytes of a line before the header that names the separator


QUOTED = Dialect()


class RecordCutter:
    """Finds the ends of records, line feeds outside quotes, in a file that is read in pieces.

    A quote opens a field only where a field begins, as in Python's csv module; within quotes, two
    quotes mean one. Lines are counted from 1.
    """

    def __init__(self, quoting: Dialect) -> None:
        self._delimiter = ord(required(quoting.separator, "separator"))
        self._quoting = quoting
        escape = re.escape((quoting.escape or "").encode())
        # Where there are quotes, others are within these, or letters
        escaped = rb'[\\"]' if quoting.has_quotes else rb"[\s\S]"
        self._escaped = re.compile(escape + escaped) if escape else None
        self._before = _LINE_FEED
        # Whether the last byte was a quote that ended quoted text, unless one more follows it.
        self._just_closed = False
        self.is_open = False
        self.open_line = 0  # of the quote that opened last
        self.line = 1
        self.length = 0  # bytes of the record that is not ended

    def ends(self, data: bytes) -> np.ndarray:
        """int64 `[ends]` of records in a piece, which does not end between escape and escaped."""
        if not data:
            return np.empty(0, np.int64)
        # Escaped characters are letters.
        text = data if self._escaped is None else self._escaped.sub(b"\0\0", data)
        array = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)[: None if self._quoting.has_quotes else 0]
        line_feeds = np.flatnonzero(array == _LINE_FEED)
        borders = self._borders(array, quotes)
        within = (np.searchsorted(borders, line_feeds) + self.is_open) % 2
        # Of what opens, the second of a pair goes on.
        openers = borders[self.is_open :: 2]
        previous = np.append(-1 if self._just_closed else -2, borders)[self.is_open :: 2]
        if len(opened := openers[openers - previous[: len(openers)] > 1]):
            self.open_line = self.line + data.count(b"\n", 0, opened[-1])
        self.is_open ^= bool(len(borders) % 2)
        self.line += data.count(b"\n")
        self._just_closed = not self.is_open and len(borders) > 0 and borders[-1] == len(data) - 1
        if not self._quoting.skips_spaces:
            self._before = text[-1]
        elif before := text.rstrip(b" "):
            self._before = before[-1]
        ends = line_feeds[within == 0] + 1
        self.length = len(data) - int(ends[-1]) if len(ends) else self.length + len(data)
        return ends

    def _borders(self, array: np.ndarray, quotes: np.ndarray) -> np.ndarray:
        """Quotes where quoted text begins or ends; of a pair within it, both or none."""
        openers = quotes[1::2] if self.is_open else quotes[::2]
        previous = self._previous(array, openers)
        if len(openers) and openers[0] == 0:
            # A quote before it that ended nothing is a letter of a field without quotes.
            ended = self._before != _QUOTE or self._just_closed
            previous[0] = self._before if ended else 0
        begins = (previous == self._delimiter) | (previous == _LINE_FEED) | (previous == _QUOTE)
        return quotes if begins.all() else self._borders_one_by_one(array, quotes.tolist())

    def _previous(self, array: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The byte before each place; that before spaces, if these are skipped there."""
        previous = array[places - 1]
        for at in np.flatnonzero(previous == _SPACE) if self._quoting.skips_spaces else ():
            before = array[: places[at]].tobytes().rstrip(b" ")[-1:]
            last = before[0] if before else self._before
            if last in (self._delimiter, _LINE_FEED):
                previous[at] = last
        return previous

    def _borders_one_by_one(self, array: np.ndarray, quotes: list[int]) -> np.ndarray:
        """The same if quotes occur within fields that are not quoted."""
        borders = []
        is_open, paired = self.is_open, -1
        for place, following in zip(quotes, [*quotes[1:], -1], strict=True):
            if not is_open:
                previous = int(self._previous(array, np.array([place]))[0])
                previous = previous if place else self._before
                is_open = previous in (self._delimiter, _LINE_FEED) or (
                    place == 0 and self._just_closed
                )
                if is_open:
                    borders.append(place)
            elif place == paired:
                continue
            elif following == place + 1:
                paired = following
            else:
                is_open = False
                borders.append(place)
        return np.array(borders, np.int64)


def dialect_of(
    path: str, pieces: Iterable[bytes], quoting: Dialect = QUOTED
) -> tuple[Dialect, Iterator[bytes]]:
    """A file's dialect, with what separates its columns, and its pieces from its header on.

    What a first line `sep=;` says; a tab in `.tsv` and `.tab`, also compressed; else the most
    frequent delimiter outside quotes in the header. Where a space follows each of them in the
    header, spaces before all fields are skipped. Whatever the sizes of the pieces, the same bytes
    of a file decide.
    """
    rest = iter(pieces)
    head: list[bytes] = []
    while sum(map(len, head)) < _HEADER_BYTES and (piece := next(rest, b"")):
        head.append(piece)
    begin = b"".join(head)[:_HEADER_BYTES]
    check_encoding(path, begin)
    separator, before = quoting.separator, len(BOM) * begin.startswith(BOM)
    line = _SEPARATOR_LINE.match(begin)
    if line is not None and separator in (None, line[1].decode()):
        separator, before, head = line[1].decode(), line.end(), [b"".join(head)]
    begin = begin[before:]
    header = begin.partition(b"\n")[0]
    if quoting.has_quotes:
        first = _FIRST_RECORD.match(begin)
        header = re.sub(_QUOTED, b"", first[0] if first else b"")
    by_name = "\t" if _TAB_SEPARATED.search(path) else None
    likely = max(_DELIMITERS, key=lambda mark: header.count(mark.encode()))
    separator = separator or by_name or likely
    spaced = header.count(f"{separator} ".encode())
    if quoting.has_quotes and spaced == header.count(separator.encode()) > 0:
        quoting = replace(quoting, skips_spaces=True)
    quoting = replace(quoting, separator=separator, before=before)
    return quoting, _behind(chain(head, rest), before)


def _behind(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The pieces without their first bytes."""
    for piece in pieces:
        if piece[count:]:
            yield piece[count:]
        count = max(0, count - len(piece))


# A field, with whatever delimiter, that is quoted as SQL quotes text.
_SINGLE_QUOTED = re.compile(r"(?:^|[,;\t|\x01])'(?:[^'\n]|'')*'(?=[,;\t|\x01\r]|$)")
# In a quoted field the first quote that is one like others: doubled, or behind a backslash.
_INNER_QUOTE = re.compile(r'(?:^|[,;\t|\x01])"[^"\n]*?(""|\\")(?=[^",;\t|\x01\r\n])', re.MULTILINE)
_DOUBLE_QUOTES = (
    "write double ones, python3 -c 'import csv, sys; csv.writer(sys.stdout).writerows(csv.reader("
    'sys.stdin, quotechar=chr(39)))\' < FILE > NEW (delimiter=";" if that separates fields)'
)
_NO_COMMENTS = "lines that begin with # are read as all others: grep -v '^#' FILE > NEW"
_LOG = logging.getLogger(__name__)
_NULL = "\0N"  # stands for a field that is `\N`, which an escape would turn into N
# Without quotes, PostgreSQL, ClickHouse and `mysql --batch` write letters for these characters.
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_LETTERS = re.compile(r"\\(.)", re.DOTALL)
_NOT_IN_TEXTS = ("\t", "|", "\x01")  # separators that texts of several lines hardly have in each
_FEW_LINES = 10  # of a malformed record: one with more is logged
# Python's csv module has one limit of fields for the process: here it is that of a record.
_large_fields = SharedSetting(
    lambda: csv.field_size_limit(lines.MOST_RECORD_BYTES), csv.field_size_limit
)


@dataclass(frozen=True)
class CsvRecords(Lines):
    """Some whole records of one file; `is_open` where the last one ends within quotes."""

    header: tuple[str, ...] = ()  # names of its columns
    quoting: Dialect = QUOTED

    def ends(self, data: bytes) -> np.ndarray:
        return RecordCutter(self.quoting).ends(data)


def block_records(spec: BlockSpec, block_bytes: int, quoting: Dialect) -> Iterator[CsvRecords]:
    """The records of a block of CSV files, as `block_lines` gives lines."""
    every = (file_records(one, spec.compression, block_bytes, quoting) for one in spec.slices)
    return chain.from_iterable(first_of(records, spec.records) for records in every)


def file_records(
    piece: Slice, compression: str | None, size: int, quoting: Dialect = QUOTED, first: bool = False
) -> Iterator[CsvRecords]:
    """Whole records from a file's start, some `size` bytes at a time.

    A quote that the largest record does not close is logged; where only the `first` records are
    asked for, it is an InputError.
    """
    path = piece.info.path
    quoting, pieces = dialect_of(path, stored_pieces(piece, compression, size), quoting)
    if quoting.escape is not None:
        pieces = _without_split_escapes(pieces, quoting.escape.encode())
    cutter, header = RecordCutter(quoting), quoting.header
    limit = f"{lines.MOST_RECORD_BYTES >> 20} MiB"

    def ends(data: bytes) -> np.ndarray:
        before, found = cutter.length, cutter.ends(data)
        if before <= lines.MOST_RECORD_BYTES < cutter.length and cutter.is_open:
            problem = (
                f"{path}: the quote in line {cutter.open_line} is not closed within {limit}, is it "
                f"left open? ({NO_QUOTES})"
            )
            if first:
                raise InputError(problem, "csv_quoting")
            _LOG.warning("%s", problem)
        return found

    every = whole_records(piece, quoting.before, pieces, ends)
    nothing = Lines(piece.file, path, quoting.before, b"", NO_STARTS)  # but perhaps a mark
    for found in chain([*islice(every, 1)] or [nothing], every):
        is_open = found.is_open and cutter.is_open
        if is_open and found.too_large:
            raise InputError(
                f"{path} ends within a record of over {limit}: is a quote left open in line "
                f"{cutter.open_line}? ({NO_QUOTES})",
                "csv_quoting",
            )
        if is_open and cutter.line > cutter.open_line + 1:
            _warn_once(
                f"{path}: the quote in line {cutter.open_line} is never closed, the rest of the "
                f"file is one rejected record; {NO_QUOTES}"
            )
        records = CsvRecords(**vars(found), quoting=quoting)
        if header is None and found.count:
            names, rest = records.cut(1)
            header = _header(path, names.data, is_open and rest is None, quoting)
            end = names.offset + len(names.data)
            empty = replace(names, offset=end, data=b"", starts=names.starts[:0])
            records = replace(rest or empty, before=end)
        elif found.offset == quoting.before:
            records = replace(records, before=quoting.before)
        yield replace(records, header=header or (), is_open=is_open)


@functools.lru_cache
def _warn_once(message: str) -> None:
    """Logs it once a process: the plan, the job and the report each read the file."""
    _LOG.warning("%s", message)


def _without_split_escapes(pieces: Iterable[bytes], escape: bytes) -> Iterator[bytes]:
    """The same bytes, cut so that no escape is divided."""
    held = b""
    for piece in pieces:
        held += piece
        whole = len(held) - (len(held) - len(held.rstrip(escape))) % 2
        yield held[:whole]
        held = held[whole:]
    yield held


def _header(path: str, data: bytes, is_open: bool, quoting: Dialect) -> tuple[str, ...]:
    try:
        names = next(_reader(iter([data.decode()]), quoting))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} has a header that is not UTF-8: {AS_UTF8}") from error
    except csv.Error as error:
        raise InputError(f"{path} has a malformed header: {_said(error)}") from error
    if is_open or not any(names):
        raise InputError(f"{path} does not begin with a header, the names of its columns")
    return tuple(names)


def _said(error: csv.Error) -> str:
    """What is wrong, without the advice that Python has for programmers."""
    if "new-line character" in str(error):
        return (
            "a carriage return outside quotes, but lines end in line feeds: write these for all, "
            "tr '\\r' '\\n'"
        )
    return str(error)


def _reader(records: Iterator[str], quoting: Dialect) -> Iterator[list[str]]:
    return csv.reader(
        records,
        delimiter=required(quoting.separator, "separator"),
        quoting=csv.QUOTE_MINIMAL if quoting.has_quotes else csv.QUOTE_NONE,
        escapechar=quoting.escape,
        skipinitialspace=quoting.skips_spaces,
        strict=True,
    )


def csv_header(file: InputFile, quoting: Dialect) -> tuple[str, ...] | None:
    """Names of a file's columns; None of an empty file.

    InputError: it has no header, or its first records have single quotes, or escaped ones.
    """
    [piece] = file.as_block().slices
    every = file_records(piece, file.compression, 1 << 16, quoting, first=True)
    first = next(every, None)
    if first is None or not first.header:
        return None
    first = first if first.count else next(every, first)
    header, mark = ",".join(first.header), required(first.quoting.separator, "separator")
    start = first.data[:_HEADER_BYTES].decode(errors="replace")
    if quoting.has_quotes and not quoting.escape and '\\"' in start:
        inner = _INNER_QUOTE.findall(start)
        if 2 * inner.count('\\"') > len(inner):
            raise InputError(
                f"{first.path} has quotes behind backslashes: {BACKSLASHES}", "csv_quoting"
            )
    records = start.splitlines()
    quoted = [*filter(_SINGLE_QUOTED.search, [header, *records])]
    for line in quoted:
        fields = next(csv.reader([line], delimiter=mark, quotechar="'"))
        are_most = line is header or 2 * len(quoted) >= len(records)
        if are_most or len(fields) == len(first.header) <= line.count(mark):
            raise InputError(f"{first.path} has single quotes around fields: {_DOUBLE_QUOTES}")
    return first.header


def check_names(path: str, names: Iterable[str], columns: Columns) -> None:
    """Raises InputError if a file lacks a requested column, or has two; names the setting."""
    existing = list(names)
    for flag, name in columns.requested:
        cure = "csv_header names the columns of a file without a header"
        if existing[0].startswith("#"):
            cure = _NO_COMMENTS
        elif flag == "extra_columns":
            cure = SOME_LACK
        elif len(existing) == 1 or re.search("[;\t|]", "".join(existing)):
            cure = "csv_separator says what separates fields"
        check_is_there(flag, name, path, len(_places(existing, name)), existing, cure)


def _places(header: Sequence[str], name: str) -> list[int]:
    """Where a header has a column, if nowhere exactly then but for spaces around its name."""
    exact = [at for at, column in enumerate(header) if column == name]
    return exact or [at for at, column in enumerate(header) if column.strip() == name]


def parse_csv(records: CsvRecords, columns: Columns) -> Documents:
    """Parses records; those that give no document are rejected."""
    if records.header:  # which an empty file lacks
        check_names(records.path, records.header, columns)
    places = positions(records.path, records.starts + records.offset)
    with _large_fields:
        return documents_of(_documents(records, columns), places, columns)[0]


def _documents(records: CsvRecords, columns: Columns) -> Iterator[Record | BadRecordError]:
    waiting: list[str] = []  # the one record that the reader takes next
    taken = iter(functools.partial(_taken, waiting), None)
    rows = _reader(taken, records.quoting)
    extra = extra_reader(columns, records.path)
    found = {name: _places(records.header, name) for name in columns.names}
    places = {name: at[0] for name, at in found.items() if at}
    width, quoting = len(records.header), records.quoting
    is_plain = quoting.has_quotes and quoting.escape is None and not quoting.skips_spaces
    separator = required(quoting.separator, "separator")
    is_separated = is_plain and separator in _NOT_IN_TEXTS
    stops = [*records.starts[1:].tolist(), len(records.data)][: records.count]
    for number, (start, stop) in enumerate(zip(records.starts.tolist(), stops, strict=True)):
        data = records.data[start:stop]
        document = None
        try:
            if records.is_open and number == records.count - 1:
                raise BadRecordError("unterminated quote")
            text = _text(data, records)
            # With an escaped line feed the reader does not see the end of a file's last record.
            waiting.append(text if quoting.escape is None else f"{text}\n")
            fields = next(rows)
            if not any(fields):
                raise BadRecordError(BLANK_LINE)
            if is_plain and ' "' in text:
                _check_quotes_behind_spaces(fields, text)
            if is_separated and text.count("\n") > 1:
                _check_lines_within_quotes(text, separator, width)
            if fields[0].removeprefix("\ufeff") == records.header[0] and (
                tuple(field.removeprefix("\ufeff") for field in fields) == records.header
            ):
                raise BadRecordError("a header again")  # where files were joined
            if any(fields[width:]):
                raise BadRecordError(
                    "more fields than the header", f"{len(fields)} fields, {width} in the header"
                )
            # As in pandas, the fields at the end of a short record are missing.
            named = {name: _field(fields, at) for name, at in places.items()}
            for name, at in places.items():
                header = records.header[at]
                if header != name and (value := named[name]) is not None:
                    # After a comma, and before the next one, as in the header
                    named[name] = value.strip(" ") if header.endswith(" ") else value.lstrip(" ")
            document = (columns.id and named[columns.id]) or None
            yield record_of(named, columns, extra(named))
        except csv.Error as error:
            count = len(data.splitlines())
            if count > _FEW_LINES:
                _warn_once(
                    f"{records.path}: the malformed record at byte {records.offset + start} has "
                    f"{count} lines, a quote left open in its first line rejects them all; "
                    f"{NO_QUOTES}"
                )
            detail = _said(error) + (f"; the record has {count} lines" if count > 1 else "")
            yield BadRecordError("malformed CSV", detail).of(_shown(data), None)
        except BadRecordError as error:
            yield error.of(_shown(data), document)


def _taken(waiting: list[str]) -> str:
    """The waiting record; csv.Error if the one before, which ends in an escape, needs another."""
    if not waiting:
        raise csv.Error("unexpected end of data")
    return waiting.pop()


def _check_quotes_behind_spaces(fields: Sequence[str], text: str) -> None:
    """Rejects what RFC 4180 forbids: such a quote opens nothing, so the field was cut in two."""
    at = 0  # where a field begins in the text
    for number, field in enumerate(fields, 1):
        quotes, is_quoted = field.count('"'), text.startswith('"', at)
        is_behind = field.startswith(" ") and field.lstrip(" ")[:1] == '"'
        if is_behind and quotes % 2 and not is_quoted:
            raise BadRecordError(
                "malformed CSV",
                f"field {number} begins with a space and a quote, which opens no quoted text; "
                "remove the space, or put one behind each separator of the header, too",
            )
        at += len(field) + is_quoted * (quotes + 2) + 1


def _check_lines_within_quotes(text: str, separator: str, width: int) -> None:
    """csv.Error if each line is a record: of a file without quotes, where one began a text."""
    lines = text.removesuffix("\n").split("\n")
    is_code = any(line.startswith(separator) for line in lines)  # which may be indented
    if width > 1 and not is_code and all(line.count(separator) == width - 1 for line in lines):
        raise csv.Error("within quotes each line has as many fields as the header")


def _field(fields: Sequence[str], at: int) -> str | None:
    return fields[at] if at < len(fields) and fields[at] != _NULL else None


def _text(data: bytes, records: CsvRecords) -> str:
    if data.rstrip(b"\r\n") in (b"", END_OF_COPY.encode()):
        raise BadRecordError(BLANK_LINE)
    text = decoded(data)
    if isinstance(text, bytes):
        raise BadRecordError(INVALID_UTF8, utf8_detail(data))
    quoting = records.quoting
    if quoting.escape and text.count("\\") > text.count('\\"'):
        mark = re.escape(quoting.separator or "")
        if r"\N" in text:
            text = re.sub(rf"(?<![^{mark}\n])\\N(?=[{mark}\r\n]|$)", _NULL, text)
        if quoting.has_quotes:  # without which Spark leaves backslashes as they are
            quoted = rf'(?:^|(?<={mark})) *"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+'
            letters = re.compile(rf'{quoted}|\\["\\]|(\\)')
            return letters.sub(lambda found: found[0] + (found[1] or ""), text)
        text = _LETTERS.sub(lambda pair: "\\" + _CONTROLS.get(pair[1], pair[1]), text)
    return text


def _shown(data: bytes) -> str | bytes:
    text = decoded(data)
    return text.rstrip("\r\n") if isinstance(text, str) else text
