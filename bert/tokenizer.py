"""Text to WordPiece ids and offsets, exactly as google-research/bert's FullTokenizer."""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from bert.normalizer import Normalizer, safe_cut
from bert.wordpiece import WordPiece

_CHUNK_CHARS = 1 << 16  # the arrays of one chunk stay in a core's cache
_SPACE = 32


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokens of a list of texts, end to end, with the place of each in its text.

    Attributes:
        ids: int32 `[tokens]`, no special tokens.
        row_splits: int64 `[texts + 1]`, where each text begins and ends in `ids`.
        starts: int32 `[tokens]`, the first code point of the text that the token came from.
        stops: int32 `[tokens]`, one past the last; `text[start:stop]` is what was read.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class Tokenizer:
    """BERT's tokenizer for one vocabulary.

    Ids equal those of google-research/bert's FullTokenizer under this Python's `unicodedata`, for
    any text. Special tokens in a text are text: "[SEP]" gives three tokens or more, never one.

    Args:
        vocab: A vocab.txt, or its entries in order of their ids.
        lower_case: True for uncased models: lower case, and no accents.
        max_word_chars: Longest word, in characters, that is not [UNK] at once; 200 in
            google-research's models, 100 in Hugging Face's.

    Raises:
        ValueError: If the vocabulary lacks [CLS], [SEP] or [UNK].
    """

    def __init__(
        self,
        vocab: str | os.PathLike[str] | Sequence[str],
        lower_case: bool = True,
        max_word_chars: int = 200,
    ) -> None:
        entries = _read_vocab(vocab) if isinstance(vocab, (str, os.PathLike)) else vocab
        self.vocab: tuple[str, ...] = tuple(entries)
        ids = {entry: row for row, entry in enumerate(self.vocab)}
        missing = [token for token in ("[CLS]", "[SEP]", "[UNK]") if token not in ids]
        if missing:
            raise ValueError(f"the vocabulary lacks {', '.join(missing)}")
        self.cls_id, self.sep_id, self.unk_id = ids["[CLS]"], ids["[SEP]"], ids["[UNK]"]
        self.pad_id = ids.get("[PAD]", 0)
        self._normalizer = Normalizer(lower_case)
        self._word_piece = WordPiece(ids, "[UNK]", max_word_chars)
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the ids of each text, int32 `[tokens]`, without special tokens."""
        ids, row_splits = self.encode_flat(texts)
        return [ids[start:stop] for start, stop in pairwise(row_splits.tolist())]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, int32 `[tokens]`, and row splits, int64 `[texts + 1]`."""
        tokenized = self._tokenize(texts, offsets=False)
        return tokenized.ids, tokenized.row_splits

    def encode_with_offsets(self, texts: Sequence[str]) -> TokenizedTexts:
        """Returns ids without special tokens, and where in its text each token was read.

        A token that is part of what one character became has the whole character as its span.
        """
        return self._tokenize(texts, offsets=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the vocabulary's entries for ids."""
        return [self.vocab[entry] for entry in ids]

    def _tokenize(self, texts: Sequence[str], offsets: bool) -> TokenizedTexts:
        counts = np.zeros(len(texts), np.int64)
        parts = [(np.empty(0, np.int32),) * 3]
        with self._lock:
            for row, shift, chunk in _chunks(texts):
                part, part_counts = self._tokenize_chunk(chunk, shift, offsets)
                parts.append(part)
                counts[row : row + len(chunk)] += part_counts
        ids, starts, stops = (np.concatenate(column) for column in zip(*parts, strict=True))
        return TokenizedTexts(ids, np.concatenate([[0], np.cumsum(counts)]), starts, stops)

    def _tokenize_chunk(
        self, texts: list[str], shift: int, offsets: bool
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
        """Returns ids, starts and stops of the tokens of some texts, and how many each has."""
        spaced = self._normalizer("\n".join([*texts, ""]))
        words = spaced.chars.tobytes().decode("utf-32-le", "surrogatepass").split()
        pieces = self._word_piece.pieces(words)
        word_starts, word_stops = _word_spans(spaced.chars)
        text_stops = np.cumsum([len(text) + 1 for text in texts])
        words_until = np.searchsorted(word_starts, spaced.ends[text_stops - 1])
        counts = np.diff(np.concatenate([[0], np.cumsum(pieces.counts)])[words_until], prepend=0)
        if not offsets:
            return (pieces.ids, pieces.ids[:0], pieces.ids[:0]), counts
        piece_starts, piece_stops = self._word_piece.spans(pieces, word_stops - word_starts)
        at = np.repeat(word_starts, pieces.counts)
        text_starts = np.concatenate([[0], text_stops[:-1]]) - shift
        before = np.repeat(text_starts.astype(np.int32), counts)
        starts = spaced.source[at + piece_starts] - before
        stops = spaced.source[at + piece_stops - 1] + 1 - before
        return (pieces.ids, starts, stops), counts


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yields runs of texts, or parts of a long one: its row, characters before it, the texts."""
    chunk: list[str] = []
    size = 0
    for row, text in enumerate(texts):
        if chunk and size + len(text) > _CHUNK_CHARS:
            yield row - len(chunk), 0, chunk
            chunk, size = [], 0
        if len(text) <= _CHUNK_CHARS:
            chunk.append(text)
            size += len(text)
            continue
        start = 0
        while start < len(text):
            stop = safe_cut(text, start, _CHUNK_CHARS)
            yield row, start, [text[start:stop]]
            start = stop
    if chunk:
        yield len(texts) - len(chunk), 0, chunk


def _word_spans(chars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each word starts and stops; `chars` begins with a word or ends with a space."""
    border = np.flatnonzero(np.diff(chars != _SPACE, prepend=False))
    return border[::2], border[1::2]


def _read_vocab(path: str | os.PathLike[str]) -> list[str]:
    with Path(path).open(encoding="utf-8", newline="\n") as lines:
        return [line.strip() for line in lines]
