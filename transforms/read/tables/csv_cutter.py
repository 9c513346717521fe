"""Finds where the records of a CSV file end."""

import re

import numpy as np

_QUOTE, _LINE_FEED = ord('"'), ord("\n")
_TAB_SEPARATED = re.compile(r"\.tsv(\.[a-z0-9]+)?$", re.IGNORECASE)


class RecordCutter:
    """Finds the ends of records, line feeds outside quotes, in a file that is read in pieces.

    A quote opens a field only where a field begins, as in Python's csv module; within quotes, two
    quotes mean one.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._before = _LINE_FEED
        self.is_open = False

    def ends(self, data: bytes) -> np.ndarray:
        """int64 `[ends]` of records in a piece, which ends in a quote only if the file does."""
        if not data:
            return np.empty(0, np.int64)
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)
        line_feeds = np.flatnonzero(array == _LINE_FEED)
        borders = self._borders(array, quotes)
        within = (np.searchsorted(borders, line_feeds) + self.is_open) % 2
        self.is_open ^= bool(len(borders) % 2)
        self._before = data[-1]
        return line_feeds[within == 0] + 1

    def _borders(self, array: np.ndarray, quotes: np.ndarray) -> np.ndarray:
        """Quotes where quoted text begins or ends; of a pair within it, both or none."""
        openers = quotes[1::2] if self.is_open else quotes[::2]
        previous = array[openers - 1]
        if len(openers) and openers[0] == 0:
            previous[0] = self._before
        begins = (previous == self._delimiter) | (previous == _LINE_FEED) | (previous == _QUOTE)
        return quotes if begins.all() else self._borders_one_by_one(array, quotes.tolist())

    def _borders_one_by_one(self, array: np.ndarray, quotes: list[int]) -> np.ndarray:
        """The same if quotes occur within fields that are not quoted."""
        borders = []
        is_open, paired = self.is_open, -1
        for place, following in zip(quotes, [*quotes[1:], -1], strict=True):
            if not is_open:
                previous = array[place - 1] if place else self._before
                is_open = previous in (self._delimiter, _LINE_FEED)
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


def delimiter_of(path: str) -> str:
    """A tab for `.tsv`, also compressed; a comma for any other file."""
    return "\t" if _TAB_SEPARATED.search(path) else ","
