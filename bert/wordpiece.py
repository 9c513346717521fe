"""Words to WordPieces: greedy, longest match first, each distinct word once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bert.normalizer import Words
from bert.word_table import WordTable, word_keys

_MAX_KNOWN = 1 << 18  # words and pieces together, about 40 MB; then it starts afresh
_COUNT_BITS = 32  # a known word is one integer: where its pieces start, and how many they are
_UNKNOWN = 1  # row 0, one piece
_WHOLE_WORD = -1  # as the end of a piece: wherever the word ends
# Bytes of the words that are looked up without a string being made of them: 16 ASCII characters,
# or 16 others below U+10000. Longer ones are rare, and cost a microsecond each.
_ASCII_WIDTH, _WIDE_WIDTH = 16, 32


@dataclass(frozen=True)
class Pieces:
    """The pieces of some words, end to end.

    Attributes:
        ids: int32 `[pieces]`, ids in the vocabulary.
        counts: int64 `[words]`, how many pieces each word has.
        starts: int64 `[pieces]`, where each piece starts in `Words.chars`; None if not asked for.
        stops: int64 `[pieces]`, where it stops; None if not asked for.
    """

    ids: np.ndarray
    counts: np.ndarray
    starts: np.ndarray | None = None
    stops: np.ndarray | None = None


class WordPiece:
    """google-research/bert's WordpieceTokenizer, which remembers what it has seen.

    Args:
        vocab: Entry to id.
        unk_token: Entry that stands for a word that has no pieces or is too long.
        max_word_chars: Longest word, in characters, that is looked at.
    """

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_word_chars: int) -> None:
        self._vocab = vocab
        self._unk_id = vocab[unk_token]
        self._max_word_chars = max_word_chars
        self._longest_first = max(map(len, vocab))
        self._longest_next = max(
            (len(entry) for entry in vocab if entry.startswith("##")), default=2
        )
        self._forget()

    def pieces(self, words: Words, offsets: bool) -> Pieces:
        """Cuts words into pieces."""
        if len(self._known) + self._rows > _MAX_KNOWN:
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
        self._known: dict[str, int] = {}
        self._tables = {1: WordTable(_ASCII_WIDTH // 8), 2: WordTable(_WIDE_WIDTH // 8)}
        self._ids = np.array([self._unk_id], np.int32)
        self._stops = np.array([_WHOLE_WORD], np.int64)
        self._rows = 1

    def _find(self, words: Words) -> np.ndarray:
        """Returns what is known of each word, int64 `[words]`, after learning what was not."""
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
            found[missing] = self._learn(strings)
            short_missing = short[missing].tolist()
            distinct = {
                string: row
                for string, row, is_short in zip(
                    strings, missing.tolist(), short_missing, strict=True
                )
                if is_short
            }
            new = np.fromiter(distinct.values(), np.int64, len(distinct))
            table.insert(keys[new], found[new])
        return found

    def _learn(self, words: list[str]) -> list[int]:
        """Returns what is known of each word, cutting those that were not known."""
        found: list[int] = []
        new_ids: list[int] = []
        new_stops: list[int] = []
        for word in words:
            known = self._known.get(word)
            if known is None:
                ids, stops = self._cut(word) if len(word) <= self._max_word_chars else ([], [])
                known = (self._rows + len(new_ids)) << _COUNT_BITS | len(ids) if ids else _UNKNOWN
                new_ids += ids
                new_stops += stops
                if len(word) <= self._max_word_chars:
                    self._known[word] = known
            found.append(known)
        self._ids = _extended(self._ids, self._rows, new_ids)
        self._stops = _extended(self._stops, self._rows, new_stops)
        self._rows += len(new_ids)
        return found

    def _cut(self, word: str) -> tuple[list[int], list[int]]:
        """Returns the ids of the pieces and where each stops in the word; nothing if none fit."""
        ids: list[int] = []
        stops: list[int] = []
        rest, prefix, longest = word, 0, self._longest_first
        while len(rest) > prefix:
            length = min(len(rest), longest)
            while (entry := self._vocab.get(rest[:length])) is None:
                length -= 1
                if length == prefix:
                    return [], []
            ids.append(entry)
            stops.append((stops[-1] if stops else 0) + length - prefix)
            rest, prefix, longest = f"##{rest[length:]}", 2, self._longest_next
        return ids, stops


def _extended(array: np.ndarray, used: int, values: list[int]) -> np.ndarray:
    """Writes values behind the used part of an array, a larger copy of it if they do not fit."""
    stop = used + len(values)
    if stop > len(array):
        array = np.concatenate([array, np.empty(stop, array.dtype)])
    array[used:stop] = values
    return array
