"""Words to WordPieces: greedy, longest match first, each distinct word once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_MAX_CACHED = 1 << 18  # words and pieces together, about 30 MB; then it starts afresh
_COUNT_BITS = 32  # a cached word is one integer: where its pieces start, and how many they are
_WHOLE_WORD = -1  # as the end of a piece: wherever the word ends


@dataclass(frozen=True)
class Pieces:
    """The pieces of a run of words, end to end.

    Attributes:
        ids: int32 `[pieces]`, ids in the vocabulary.
        counts: int64 `[words]`, how many pieces each word has.
        rows: int32 `[pieces]`, where the cache keeps each piece, for `WordPiece.spans`.
    """

    ids: np.ndarray
    counts: np.ndarray
    rows: np.ndarray


class WordPiece(dict[str, int]):
    """google-research/bert's WordpieceTokenizer; as a dict, the words it has seen.

    Args:
        vocab: Entry to id.
        unk_token: Entry that stands for a word that has no pieces or is too long.
        max_word_chars: Longest word, in characters, that is looked at.
    """

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_word_chars: int) -> None:
        super().__init__()
        self._vocab = vocab
        self._max_word_chars = max_word_chars
        self._longest = max(map(len, vocab))
        self._unknown = 1  # row 0, one piece
        self._ids = np.array([vocab[unk_token]], np.int32)
        self._stops = np.array([_WHOLE_WORD], np.int32)
        self._rows = 1

    def pieces(self, words: Sequence[str]) -> Pieces:
        """Cuts words, none of them empty, into pieces."""
        if len(self) + self._rows > _MAX_CACHED:
            self.clear()
            self._rows = 1
        found = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        counts = found & ((1 << _COUNT_BITS) - 1)
        starts = (found >> _COUNT_BITS) - np.cumsum(counts) + counts
        total = int(counts.sum())
        rows = np.repeat(starts, counts) + np.arange(total)
        return Pieces(self._ids[rows], counts, rows)

    def spans(self, pieces: Pieces, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where each piece starts and stops in its word, for words of these lengths."""
        stops = self._stops[pieces.rows]
        stops = np.where(stops == _WHOLE_WORD, np.repeat(lengths, pieces.counts), stops)
        starts = np.zeros_like(stops)
        starts[1:] = stops[:-1]
        starts[(np.cumsum(pieces.counts) - pieces.counts)] = 0
        return starts, stops

    def __missing__(self, word: str) -> int:
        cut = self._cut(word) if len(word) <= self._max_word_chars else None
        if cut is None:
            if len(word) <= self._max_word_chars:
                self[word] = self._unknown
            return self._unknown
        ids, stops = cut
        found = self._rows << _COUNT_BITS | len(ids)
        self._keep(ids, stops)
        self[word] = found
        return found

    def _cut(self, word: str) -> tuple[list[int], list[int]] | None:
        """Returns the ids of the pieces and where each stops in the word; None if there is none."""
        ids, stops, start, prefix = [], [], 0, ""
        while start < len(word):
            stop = min(len(word), start + self._longest)
            while (entry := self._vocab.get(prefix + word[start:stop])) is None:
                stop -= 1
                if stop == start:
                    return None
            ids.append(entry)
            stops.append(stop)
            start, prefix = stop, "##"
        return ids, stops

    def _keep(self, ids: list[int], stops: list[int]) -> None:
        needed = self._rows + len(ids)
        if needed > len(self._ids):
            self._ids = np.resize(self._ids, 2 * needed)
            self._stops = np.resize(self._stops, 2 * needed)
        self._ids[self._rows : needed] = ids
        self._stops[self._rows : needed] = stops
        self._rows = needed
