"""Splits words into WordPieces, greedily by longest match, each distinct word once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bert.tokenization.normalizer import Words
from bert.tokenization.word_table import WordTable, word_keys

_MAX_ENTRIES = 1 << 19  # words and pieces together, about 30 MB; then the tables are emptied
_COUNT_BITS = 32  # an entry is one integer: where the pieces start, and their number
_NO_PIECES = 1  # row 0, one piece
_ONLY_BEGINS = -1  # instead of an id: no entry, but the beginning of some
_WHOLE_WORD = -1  # instead of the end of a piece: the end of the word
# Bytes of words that are looked up without a Python string: 16 ASCII characters, or 16 others below
# U+10000. Longer words are rare, and take a microsecond each.
_ASCII_WIDTH, _WIDE_WIDTH = 16, 32


@dataclass(frozen=True)
class Pieces:
    """The pieces of some words, end to end.

    Attributes:
        ids: int32 `[pieces]`, ids in the vocabulary.
        counts: int64 `[words]`, how many pieces each word has.
        starts: int64 `[pieces]`, where each piece starts in `Words.chars`; None if not requested.
        stops: int64 `[pieces]`, where it stops; None if not requested.
    """

    ids: np.ndarray
    counts: np.ndarray
    starts: np.ndarray | None = None
    stops: np.ndarray | None = None


class WordPiece:
    """google-research/bert's WordpieceTokenizer, which keeps the pieces of words.

    Args:
        vocab: Entry to id.
        unk_token: Entry for words that have no pieces or are too long.
        max_word_chars: Maximum number of characters of a word.
    """

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_word_chars: int) -> None:
        # Words are read forwards, while some entry continues. Backwards from the end, as the
        # algorithm is published, a word of n characters takes n * n / 2 lookups.
        self._first = _beginnings(vocab.items())
        self._next = _beginnings((e[2:], row) for e, row in vocab.items() if e.startswith("##"))
        self._unk_id = vocab[unk_token]
        self._max_word_chars = max_word_chars
        self._longest_first = max(map(len, vocab))
        self._forget()

    def pieces(self, words: Words, offsets: bool) -> Pieces:
        """Splits words into pieces."""
        if len(self._long) + self._rows + sum(map(len, self._tables.values())) > _MAX_ENTRIES:
            self._forget()
        found = self._find(words)
        counts = found & ((1 << _COUNT_BITS) - 1)
        before = np.cumsum(counts) - counts
        rows = np.repeat((found >> _COUNT_BITS) - before, counts)
        rows += np.arange(len(rows))
        ids = self._ids.take(rows)
        if not offsets:
            return Pieces(ids, counts)
        word_starts, stops = np.repeat(words.starts, counts), self._stops.take(rows)
        whole = stops == _WHOLE_WORD
        stops = np.where(whole, np.repeat(words.stops, counts), word_starts + stops)
        starts = np.empty_like(stops)
        starts[1:] = stops[:-1]
        starts[before] = words.starts
        return Pieces(ids, counts, starts, stops)

    def _forget(self) -> None:
        self._long: dict[str, int] = {}
        self._tables = {1: WordTable(_ASCII_WIDTH // 8), 2: WordTable(_WIDE_WIDTH // 8)}
        self._ids = np.array([self._unk_id], np.int32)
        self._stops = np.array([_WHOLE_WORD], np.int64)
        self._rows = 1

    def _find(self, words: Words) -> np.ndarray:
        """Returns the table's entry of each word, int64 `[words]`, and adds missing ones."""
        lengths = words.stops - words.starts
        chars, width = words.chars, _ASCII_WIDTH
        if chars.itemsize > 1:
            chars, width = chars.astype(np.uint16), _WIDE_WIDTH
        table = self._tables[chars.itemsize]
        short = lengths <= width // chars.itemsize
        if chars is not words.chars:
            beyond = np.flatnonzero(words.chars > 0xFFFF)
            short[np.searchsorted(words.starts, beyond, side="right") - 1] = False
        keys = word_keys(chars, words.starts, lengths, width)
        found = np.where(short, table.find(keys), 0)
        missing = np.flatnonzero(found == 0)
        if len(missing):
            strings = words.strings(missing)
            found[missing] = self._learn(strings, short[missing].tolist())
            once = dict(zip(strings, missing.tolist(), strict=True))
            new = np.fromiter(once.values(), np.int64, len(once))
            new = new[short[new]]
            if len(new):
                table.insert(keys[new], found[new])
        return found

    def _learn(self, words: list[str], short: list[bool]) -> list[int]:
        """Returns the entries of words, and keeps those of words too long for the tables."""
        entries_of: dict[str, int] = {}
        ids: list[int] = []
        stops: list[int] = []
        for word, is_short in zip(words, short, strict=True):
            if word in entries_of or word in self._long or len(word) > self._max_word_chars:
                continue
            start = len(ids)
            self._cut(word, ids, stops)
            count = len(ids) - start
            entries_of[word] = (self._rows + start) << _COUNT_BITS | count if count else _NO_PIECES
            if not is_short:
                self._long[word] = entries_of[word]
        self._ids = _extended(self._ids, self._rows, ids)
        self._stops = _extended(self._stops, self._rows, stops)
        self._rows += len(ids)
        return [entries_of.get(word) or self._long.get(word, _NO_PIECES) for word in words]

    def _cut(self, word: str, ids: list[int], stops: list[int]) -> None:
        """Appends ids and ends of a word's pieces; nothing if it cannot be split."""
        begun, start, entries = len(ids), 0, self._first
        while start < len(word):
            end, stop = start, start + 1
            while (entry := entries.get(word[start:stop])) is not None:
                if entry != _ONLY_BEGINS:
                    best, end = entry, stop
                stop += 1
                if stop > len(word):
                    break
            if end == start:
                del ids[begun:], stops[begun:]
                return
            ids.append(best)
            stops.append(end)
            start, entries = end, self._next


def _beginnings(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the id of each entry, and `_ONLY_BEGINS` for the beginnings of entries.

    >>> _beginnings([("be", 7), ("bert", 9)])
    {'b': -1, 'be': 7, 'ber': -1, 'bert': 9}
    """
    found: dict[str, int] = {}
    for entry, row in entries:
        for stop in range(1, len(entry)):
            found.setdefault(entry[:stop], _ONLY_BEGINS)
        found[entry] = row
    return found


def _extended(array: np.ndarray, used: int, values: list[int]) -> np.ndarray:
    """Writes values after the used part of an array, or of a larger copy if they do not fit."""
    stop = used + len(values)
    if stop > len(array):
        array = np.concatenate([array, np.empty(stop, array.dtype)])
    array[used:stop] = values
    return array
