"""Normalizes texts and splits them into words, as BERT's basic tokenization, with tables."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from bert_embed.base.arrays import splits_of

_CODE_POINTS = 0x110000
_PAGE = 256  # code points that are looked up in unicodedata together
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
# No word contains these characters, so a long text can be split before any of them.
_BREAKS = re.compile("[\t\n\r \u4e00-\u9fff]")
SURROGATES = re.compile("[\ud800-\udfff]")

# The class of a code point: two bits for its role in words. With these numbers a word starts (and,
# read backwards, stops) exactly where class > (class before & 1).
_SPACE, _LETTER, _ALONE, _DROPPED = range(4)
_CLASS = 3
_WIDTH_SHIFT, _WIDTH = 2, 60  # four bits: the number of code points it becomes, if more than one
_IN_CONTEXT = 64  # the result depends on its neighbours
_UNKNOWN = 255  # its page is not in the tables yet


@dataclass(frozen=True)
class Words:
    """The normalized words of some texts, as spans of one array."""

    chars: np.ndarray  # uint8 (ASCII) or uint32 [length], code points
    starts: np.ndarray  # int64 [words], where each word starts in `chars`
    stops: np.ndarray  # int64 [words], where it stops
    counts: np.ndarray  # int64 [texts], words of each text
    source: np.ndarray | None  # int [length], places in the joined texts; None if the same
    origins: np.ndarray  # int64 [texts], where each text starts in the joined texts

    def came_from(self, at: np.ndarray) -> np.ndarray:
        """Returns the places in the joined texts that code points at these places are from."""
        return at if self.source is None else self.source.take(at)

    def strings(self, rows: np.ndarray) -> list[str]:
        """Returns some of the words, by number, as strings."""
        size = self.chars.itemsize
        data = self.chars.tobytes()
        encoding = "ascii" if size == 1 else "utf-32-le"
        starts, stops = (self.starts[rows] * size).tolist(), (self.stops[rows] * size).tolist()
        return [
            data[start:stop].decode(encoding, "surrogatepass")
            for start, stop in zip(starts, stops, strict=True)
        ]


class Rules(ABC):
    """What becomes of one character, and of a word whose characters depend on each other."""

    @abstractmethod
    def lookup(self, char: str) -> tuple[int, str]:
        """Returns the class of a character and its result."""

    @abstractmethod
    def depends(self, char: str, folded: str) -> bool:
        """Returns whether neighbours may change the result of a character, or where it stands."""

    @abstractmethod
    def folded_word(self, word: str) -> tuple[str, list[int] | None]:
        """Returns the result of a word, and the places that its characters are from if they move.

        It has no white space and no CJK.
        """


class Normalizer:
    """BERT's basic tokenization, with tables instead of a loop over characters.

    The result for a code point (nothing, a space, its lower case without accents) is asked of the
    rules once and kept. Words with characters that depend on their neighbours are computed one by
    one: Greek capital sigma, which google-research lowers otherwise at the end of a word, and marks
    that canonical order moves and accent stripping keeps.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._classes = np.full(_CODE_POINTS, _UNKNOWN, np.uint8)
        # The result for a code point, or its place in `_long` if it becomes several.
        self._folds = np.zeros(_CODE_POINTS, np.uint32)
        self._long = np.zeros(0, np.uint32)
        self._learn(0)
        self._ascii_classes = self._classes[:_PAGE].tobytes()
        self._ascii_folds = self._folds[:_PAGE].astype(np.uint8).tobytes()

    def words(self, texts: Sequence[str]) -> Words:
        """Finds the words of some texts; texts do not influence each other."""
        joined = "\n".join(["", *texts, ""])
        folded = self._fold_ascii(joined) if joined.isascii() else None
        chars, classes, source = folded or self._fold(joined)
        inside = classes & 1
        starts = np.flatnonzero(classes[1:] > inside[:-1]) + 1
        stops = np.flatnonzero(classes[:-1] > inside[1:]) + 1
        borders = splits_of(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        at = borders if source is None else np.searchsorted(source, borders)
        counts = np.diff(np.searchsorted(starts, at))
        return Words(chars, starts, stops, counts, source, borders[:-1] + 1)

    def _fold_ascii(self, text: str) -> tuple[np.ndarray, np.ndarray, None] | None:
        """Returns chars and classes at the same places; None if some chars must be dropped."""
        raw = text.encode("ascii")
        classes = raw.translate(self._ascii_classes)
        if bytes([_DROPPED]) in classes:
            return None
        chars = raw.translate(self._ascii_folds)
        return np.frombuffer(chars, np.uint8), np.frombuffer(classes, np.uint8), None

    def _fold(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Returns chars, classes, and the place each is from, None if it is the same place."""
        points = _points(text)
        classes: np.ndarray = self._classes.take(points)
        if (classes == _UNKNOWN).any():
            for page in np.unique(points[classes == _UNKNOWN] // _PAGE).tolist():
                self._learn(page)
            classes = self._classes.take(points)
        chars = self._folds.take(points)
        source: np.ndarray | None = None
        in_context = np.flatnonzero(classes & _IN_CONTEXT)
        if (classes & _WIDTH).any():
            chars, classes, source = self._widen(chars, classes)
        classes = classes & _CLASS
        if (classes == _DROPPED).any():
            places_left = np.flatnonzero(classes != _DROPPED)
            chars, classes = chars.take(places_left), classes.take(places_left)
            source = places_left if source is None else source.take(places_left)
        for start, stop in _words_around(text, in_context.tolist()):
            at = start if source is None else int(np.searchsorted(source, start))
            folded, places = self._rules.folded_word(text[start:stop])
            span = slice(at, at + len(folded))
            chars[span] = _points(folded)
            if places is not None:
                source = np.arange(len(chars)) if source is None else source
                source[span] = np.add(places, start)
        return chars, classes, source

    def _widen(
        self, chars: np.ndarray, classes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        widths = np.maximum((classes & _WIDTH) >> _WIDTH_SHIFT, 1)
        source = np.repeat(np.arange(len(chars), dtype=np.int32), widths)
        starts = np.cumsum(widths, dtype=np.int32) - widths
        chars, classes = chars.take(source), classes.take(source)
        wide = np.flatnonzero(classes & _WIDTH)
        step = wide - starts.take(source.take(wide))
        chars[wide] = self._long.take(chars.take(wide) + step)
        return chars, classes, source

    def _learn(self, page: int) -> None:
        classes, folds, long = _page(self._rules, page)
        at = slice(page * _PAGE, (page + 1) * _PAGE)
        self._classes[at] = classes
        self._folds[at] = np.where(classes & _WIDTH, folds + len(self._long), folds)
        self._long = np.concatenate([self._long, long])


@cache  # each thread has a Normalizer of its own
def _page(rules: Rules, page: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A page's classes, results, and the code points of those that are several, one by one.

    A result that is several code points is the place of the first.
    """
    classes, folds, long = np.zeros(_PAGE, np.uint8), np.zeros(_PAGE, np.uint32), ""
    for row in range(_PAGE):
        char = chr(page * _PAGE + row)
        classes[row], folded = rules.lookup(char)
        if len(folded) > 1:
            classes[row] |= len(folded) << _WIDTH_SHIFT
            folds[row] = len(long)
            long += folded
        elif folded:
            folds[row] = ord(folded)
        if folded and rules.depends(char, folded):
            classes[row] |= _IN_CONTEXT
    return classes, folds, _points(long)


class GoogleRules(Rules):
    """Those of google-research/bert's BasicTokenizer, by this Python's `unicodedata`."""

    def __init__(self, lower_case: bool) -> None:
        self._lower_case = lower_case

    def lookup(self, char: str) -> tuple[int, str]:
        if _is_dropped(char):
            return _DROPPED, ""
        folded = _folded(char) if self._lower_case else char
        if not folded:
            return _DROPPED, ""
        if char.isspace():
            return _SPACE, " "
        # No character becomes several of which one is punctuation or CJK.
        return _ALONE if _is_cjk(char) or _is_punctuation(folded[0]) else _LETTER, folded

    def depends(self, char: str, folded: str) -> bool:
        return self._lower_case and (char == "Σ" or any(map(unicodedata.combining, folded)))

    def folded_word(self, word: str) -> tuple[str, None]:
        return _folded("".join(char for char in word if not _is_dropped(char))), None


class HubRules(Rules):
    """Those of BertNormalizer and BertPreTokenizer, by the `tokenizers` library itself.

    Its Unicode is its own, whatever Python's. It knows no final sigma. Without `clean` no character
    is dropped.
    """

    def __init__(self, lower_case: bool, clean: bool = True) -> None:
        from tokenizers import normalizers, pre_tokenizers

        self._lower_case = lower_case
        self._normalize = normalizers.BertNormalizer(clean, lowercase=lower_case).normalize_str
        self._clean = normalizers.BertNormalizer(True, False, False, False).normalize_str
        self._split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
        self._decompose = normalizers.NFD().normalize_str

    def lookup(self, char: str) -> tuple[int, str]:
        if "\ud800" <= char <= "\udfff":
            return _DROPPED, ""  # as U+FFFD, as which other tokenizers read it
        folded = self._normalize(char)
        if not folded:
            return _DROPPED, ""
        inner = folded.strip(" ")
        pieces = len(self._split(f"a{inner}a"))
        if not inner or pieces == 2:
            return _SPACE, " "
        return _ALONE if inner != folded or pieces > 1 else _LETTER, inner

    def depends(self, char: str, folded: str) -> bool:
        # Between marks of the highest and of the lowest class, a mark does not stay where it is.
        return (
            self._lower_case
            and not char.isascii()
            and self._decompose(f"\u0345{folded}\u0334") != f"\u0345{self._decompose(folded)}\u0334"
        )

    def folded_word(self, word: str) -> tuple[str, list[int]]:
        cleaned = [self._clean(char) for char in SURROGATES.sub("\ufffd", word)]
        begins = defaultdict[str, deque[bool]](deque)
        for char in cleaned:
            for number, part in enumerate(self._decompose(char)):
                begins[part].append(number == 0)
        # Where marks change places, the library takes the next character's place for each part that
        # begins one, and the place before it for another.
        sources, place, moved = (at for at, char in enumerate(cleaned) if char), 0, []
        ordered = self._decompose("".join(cleaned))
        folded = list(map(self._normalize, ordered))
        for char, part in zip(ordered, folded, strict=True):
            if begins[char].popleft():
                place = next(sources)
            moved += [place] * len(part)
        return "".join(folded), moved


google_rules, hub_rules = cache(GoogleRules), cache(HubRules)  # one object for the same arguments


def safe_cut(text: str, start: int, length: int) -> int:
    """Returns where `text[start:]` can be split, after `length` or more, without splitting a word.

    >>> safe_cut("one two three", 0, 5)
    7
    """
    border = _BREAKS.search(text, start + length)
    return border.start() if border else len(text)


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
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


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
