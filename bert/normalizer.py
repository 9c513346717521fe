"""Text to the words of BERT's basic tokenization: code points in, spaced code points out."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_CODE_POINTS = 0x110000
_PAGE = 256  # code points that are looked up in unicodedata together
_UNKNOWN = 255  # in the table of widths: nobody has asked for this page yet
_IN_CONTEXT = 128  # in the table of widths: what it becomes depends on its neighbours
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# Words never reach over these, so a long text can be cut in front of any of them.
_BREAKS = re.compile("[\t\n\r \u4e00-\u9fff]")


@dataclass(frozen=True)
class SpacedText:
    """A text as it is when only WordPiece is left to do.

    Attributes:
        chars: uint32 `[length]`, code points; words are what stands between spaces (32).
        source: int32 `[length]`, the position in the text that each code point came from;
            undefined for spaces.
        ends: int32 `[len(text)]`, where in `chars` that which came from each position ends.
    """

    chars: np.ndarray
    source: np.ndarray
    ends: np.ndarray


class Normalizer:
    """google-research/bert's BasicTokenizer up to its last split, by table instead of by character.

    What a code point becomes (nothing, a space, itself, its lower case without accents, each with
    spaces around it or not) is looked up in unicodedata once and kept. Two things depend on the
    neighbours and are done word by word: Greek capital sigma, whose lower case is another one at
    the end of a word, and marks that canonical order moves and accent stripping keeps.
    """

    def __init__(self, lower_case: bool) -> None:
        self._lower_case = lower_case
        self._widths = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
        self._starts = np.zeros(_CODE_POINTS, np.int32)
        self._expansions = np.array([32], np.uint32)

    def __call__(self, text: str) -> SpacedText:
        """Spaces one text; several may be joined by line feeds, which nothing reaches over."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        widths = self._widths[points]
        if len(widths) and widths.max() == _UNKNOWN:
            self._learn(np.unique(points[widths == _UNKNOWN] // _PAGE))
            widths = self._widths[points]
        in_context = np.flatnonzero(widths >= _IN_CONTEXT)
        widths &= _IN_CONTEXT - 1
        ends = np.cumsum(widths, dtype=np.int32)
        source = np.repeat(np.arange(len(points), dtype=np.int32), widths)
        first = self._starts[points] - ends + widths
        chars = self._expansions[first[source] + np.arange(len(source), dtype=np.int32)]
        for start, stop in _words_around(text, in_context.tolist()):
            word = _spaced(_folded(_cleaned(text[start:stop])))
            at = int(ends[start]) - int(widths[start])
            chars[at : at + len(word)] = _points(word)
        return SpacedText(chars, source, ends)

    def _learn(self, pages: np.ndarray) -> None:
        """Fills the tables for whole pages of code points."""
        learnt, at = [], len(self._expansions)
        for page in pages.tolist():
            for code in range(page * _PAGE, (page + 1) * _PAGE):
                char = chr(code)
                expansion = self._expansion(char)
                in_context = self._lower_case and (char == "Σ" or _is_moved(char))
                self._widths[code] = len(expansion) + (_IN_CONTEXT if in_context else 0)
                self._starts[code] = at
                learnt.append(expansion)
                at += len(expansion)
        self._expansions = np.concatenate([self._expansions, _points("".join(learnt))])

    def _expansion(self, char: str) -> str:
        if not _cleaned(char):
            return ""
        if char.isspace():
            return " "
        spaced = _spaced(_folded(char) if self._lower_case else char)
        return f" {spaced} " if _is_cjk(char) else spaced


def safe_cut(text: str, start: int, length: int) -> int:
    """Returns where `text[start:]` can be cut after `length` or more without cutting a word.

    >>> safe_cut("one two three", 0, 5)
    7
    """
    found = _BREAKS.search(text, start + length)
    return found.start() if found else len(text)


def _words_around(text: str, positions: list[int]) -> Iterator[tuple[int, int]]:
    """Yields the spans between whitespace or CJK that hold the positions, each once."""
    stop = 0
    for position in positions:
        if position < stop:
            continue
        start, stop = position, position + 1
        while start and not _is_border(text[start - 1]):
            start -= 1
        while stop < len(text) and not _is_border(text[stop]):
            stop += 1
        yield start, stop


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _cleaned(text: str) -> str:
    return "".join(char for char in text if not _is_dropped(char))


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def _spaced(text: str) -> str:
    return "".join(f" {char} " if _is_punctuation(char) else char for char in text)


def _is_dropped(char: str) -> bool:
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def _is_border(char: str) -> bool:
    return _is_cjk(char) or (char.isspace() and not _is_dropped(char))


def _is_cjk(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in _CJK)


def _is_punctuation(char: str) -> bool:
    if "!" <= char <= "~":
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")


def _is_moved(char: str) -> bool:
    """True if canonical order may move it, or part of it, and accent stripping keeps that part."""
    return any(unicodedata.combining(part) for part in _folded(char))
