"""Finds what separates the columns of a CSV file, and where its records end."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bert_embed.transforms.read.compressed import unescaped
from bert_embed.transforms.read.lines import BOM

_QUOTE, _LINE_FEED, _SPACE = ord('"'), ord("\n"), ord(" ")
_TAB_SEPARATED = re.compile(r"\.tsv(\.[a-z0-9]+)?$", re.IGNORECASE)
_DELIMITERS = ",;\t|"  # of equally frequent ones the first
_HEADER_BYTES = 1 << 16  # at the start of a file, in which its header is looked for
# The first record, whichever the delimiter is: quotes open a field only where one begins.
_QUOTED = rb'(?:(?<=[,;\t|])|^)"(?:[^"]|"")*+(?:"|$)'
_FIRST_RECORD = re.compile(rb"(?>" + _QUOTED + rb"|[^\n])*+")


@dataclass(frozen=True)
class Quoting:
    """What quotes and an escape character mean in a CSV file."""

    has_quotes: bool = True
    escape: str | None = None  # makes the next character one like others
    skips_spaces: bool = False  # before a field, as in `1, "a, b"`


QUOTED = Quoting()


class RecordCutter:
    """Finds the ends of records, line feeds outside quotes, in a file that is read in pieces.

    A quote opens a field only where a field begins, as in Python's csv module; within quotes, two
    quotes mean one. Lines are counted from 1.
    """

    def __init__(self, delimiter: str, quoting: Quoting = QUOTED) -> None:
        self._delimiter = ord(delimiter)
        self.quoting = quoting
        self._before = _LINE_FEED
        # Whether the last byte was a quote that ended quoted text, unless one more follows it.
        self._just_closed = False
        self.is_open = False
        self.open_line = 0  # of the quote that opened last
        self.line = 1

    def ends(self, data: bytes) -> np.ndarray:
        """int64 `[ends]` of records in a piece, which does not end between escape and escaped."""
        if not data:
            return np.empty(0, np.int64)
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)[: None if self.quoting.has_quotes else 0]
        line_feeds = np.flatnonzero(array == _LINE_FEED)
        if self.quoting.escape is not None:
            quotes = unescaped(array, quotes, self.quoting.escape)
            line_feeds = unescaped(array, line_feeds, self.quoting.escape)
        borders = self._borders(array, quotes)
        within = (np.searchsorted(borders, line_feeds) + self.is_open) % 2
        self.is_open ^= bool(len(borders) % 2)
        if self.is_open and len(borders):
            self.open_line = self.line + int(np.searchsorted(line_feeds, borders[-1]))
        self.line += len(line_feeds)
        self._just_closed = not self.is_open and len(borders) > 0 and borders[-1] == len(data) - 1
        if not self.quoting.skips_spaces:
            self._before = data[-1]
        elif before := data.rstrip(b" "):
            self._before = before[-1]
        return line_feeds[within == 0] + 1

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
        for at in np.flatnonzero(previous == _SPACE) if self.quoting.skips_spaces else ():
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
    path: str, pieces: Iterable[bytes], quoting: Quoting = QUOTED
) -> tuple[str, Quoting, Iterator[bytes]]:
    """What separates a file's columns, its quoting, and its pieces, which begin with the header.

    A tab in `.tsv`, also compressed; else the most frequent delimiter outside quotes in the header.
    Where a space follows each of them in the header, spaces before all fields are skipped. Whatever
    the sizes of the pieces, the same bytes of a file decide.
    """
    rest = iter(pieces)
    if _TAB_SEPARATED.search(path):
        return "\t", quoting, rest
    head: list[bytes] = []
    while sum(map(len, head)) < _HEADER_BYTES and (piece := next(rest, b"")):
        head.append(piece)
    begin = b"".join(head)[:_HEADER_BYTES].removeprefix(BOM)
    header = begin.partition(b"\n")[0]
    if quoting.has_quotes:
        first = _FIRST_RECORD.match(begin)
        header = re.sub(_QUOTED, b"", first[0] if first else b"")
    counts = {mark: header.count(mark.encode()) for mark in _DELIMITERS}
    delimiter = max(counts, key=lambda mark: counts[mark])
    spaced = header.count(f"{delimiter} ".encode())
    if quoting.has_quotes and spaced == counts[delimiter] > 0:
        quoting = replace(quoting, skips_spaces=True)
    return delimiter, quoting, chain(head, rest)
