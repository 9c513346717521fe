"""Splits words into WordPieces, greedily by longest match, each distinct word once."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from bert_embed.ragged import splits_of
from bert_embed.tokenization.normalizer import Words
from bert_embed.tokenization.word_table import WordTable, word_keys

_MAX_ENTRIES = 1 << 19  # words and pieces together, about 30 MB; then the tables are emptied
_COUNT_BITS = 32  # an entry is one integer: where the pieces start, and their number
_NO_PIECES = 1  # row 0, one piece
_BEFORE = "\n"  # precedes each word where words are cut; no word contains it
_PIECE = itemgetter(0)  # of a match
_WHOLE_WORD = -1  # instead of the end of a piece: the end of the word
# Bytes of words that are looked up without a Python string: 16 ASCII characters, or 16 others below
# U+10000. Longer words are rare, and take a microsecond each.
_ASCII_WIDTH, _WIDE_WIDTH = 16, 32


@dataclass(frozen=True)
class Pieces:
    """The pieces of some words, end to end."""

    ids: np.ndarray  # int32 [pieces], ids in the vocabulary
    counts: np.ndarray  # int64 [words], how many pieces each word has
    starts: np.ndarray | None = None  # int64 [pieces], starts in `Words.chars`, if requested
    stops: np.ndarray | None = None  # int64 [pieces], where it stops


class WordPiece:
    """google-research/bert's WordpieceTokenizer, which keeps the pieces of words.

    `unk_token` stands for words that have no pieces, or more than `max_word_chars` characters.
    """

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_word_chars: int) -> None:
        entries = [(entry, row) for entry, row in vocab.items() if entry and _BEFORE not in entry]
        pieces = {_BEFORE + entry: row for entry, row in entries}
        pieces |= {entry[2:]: row for entry, row in entries if entry[:2] == "##" != entry}
        # Where no entry begins a word: so each word has a first match.
        pieces[_BEFORE] = vocab[unk_token]
        self._piece_ids = np.fromiter(pieces.values(), np.int32, len(pieces))
        self._begins = np.array([piece[0] == _BEFORE for piece in pieces])
        self._chars = np.fromiter(map(len, pieces), np.int64, len(pieces)) - self._begins
        sizes = np.array([len(_bytes(piece)) for piece in pieces])
        # Of no size, it leaves a gap.
        self._sizes = np.where(self._chars > 0, sizes, 0)
        # The leftmost longest match after the last one is the greedy choice.
        self._cutter = BytesAhoCorasick(
            list(map(_bytes, pieces)), MatchKind.LeftmostLongest, Implementation.ContiguousNFA
        )
        self._unk_id = vocab[unk_token]
        self._max_word_chars = max_word_chars
        self.forget()

    def empty_copy(self) -> "WordPiece":
        """One for another thread, which shares the vocabulary and has learned no word yet."""
        empty = copy.copy(self)
        empty.forget()
        return empty

    def pieces(self, words: Words, offsets: bool) -> Pieces:
        """Splits words into pieces."""
        if len(self._longer) + self._rows + sum(map(len, self._tables.values())) > _MAX_ENTRIES:
            self.forget()
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

    def forget(self) -> None:
        """Empties the tables of words."""
        self._longer: dict[str, int] = {}
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
        new, longer = missing[short[missing]], missing[~short[missing]]
        if len(new):
            distinct, number = table.distinct(keys.take(new, axis=0))
            entries = self._learn(_lines_of(distinct.view(chars.dtype)))
            table.insert(distinct, entries)
            found[new] = entries.take(number)
        if len(longer):
            found[longer] = self._find_longer(words.strings(longer))
        return found

    def _find_longer(self, words: list[str]) -> list[int]:
        most, kept = self._max_word_chars, self._longer
        new = list(dict.fromkeys(word for word in words if len(word) <= most and word not in kept))
        if new:
            entries = self._learn(_bytes("".join(_BEFORE + word for word in new)))
            kept.update(zip(new, entries.tolist(), strict=True))
        return [kept.get(word, _NO_PIECES) for word in words]

    def _learn(self, lines: bytes) -> np.ndarray:
        """Returns the entries of new words, int64 `[words]`; each is UTF-8 behind `_BEFORE`."""
        # The other two of each match, its start and stop, would take longer than all that follows.
        matches = self._cutter.find_matches_as_indexes(lines)
        pieces = np.fromiter(map(_PIECE, matches), np.int64, len(matches))
        firsts = np.flatnonzero(self._begins.take(pieces))
        chars, sizes = self._chars.take(pieces), self._sizes.take(pieces)
        lengths, begins = np.add.reduceat(chars, firsts), _places_of(_BEFORE, lines)
        # Pieces do not overlap, so those of a word have all its bytes only if they leave no gap.
        covered = np.add.reduceat(sizes, firsts) == np.diff(begins, append=len(lines))
        whole = covered & (lengths <= self._max_word_chars)
        counts = np.diff(firsts, append=len(pieces))
        kept = np.repeat(whole, counts)
        pieces, chars, counts = pieces[kept], chars[kept], counts * whole
        stops = np.cumsum(chars) - np.repeat(splits_of(lengths * whole)[:-1], counts)
        starts = self._rows + splits_of(counts)[:-1]
        self._ids = _extended(self._ids, self._rows, self._piece_ids.take(pieces))
        self._stops = _extended(self._stops, self._rows, stops)
        self._rows += len(pieces)
        return np.where(whole, starts << _COUNT_BITS | counts, _NO_PIECES)


def _places_of(char: str, lines: bytes) -> np.ndarray:
    return np.flatnonzero(np.frombuffer(lines, np.uint8) == ord(char))


def _lines_of(words: np.ndarray) -> bytes:
    """Returns the argument of `_learn` for words of code points `[words, width]`, then zeros."""
    lines = np.full((len(words), words.shape[1] + 1), ord(_BEFORE), words.dtype)
    lines[:, 1:] = words
    points = lines[lines > 0]
    if points.itemsize == 1:
        return points.tobytes()
    return _bytes(points.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _extended(array: np.ndarray, used: int, values: np.ndarray) -> np.ndarray:
    """Writes values after the used part of an array, or of a larger copy if they do not fit."""
    stop = used + len(values)
    if stop > len(array):
        array = np.concatenate([array, np.empty(stop, array.dtype)])
    array[used:stop] = values
    return array
