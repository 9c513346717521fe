"""The algorithm of google-research/bert's FullTokenizer, one character at a time, for tests only.

Written from the published description, as plainly as possible, and sharing nothing with
`bert_embed.text.tokenizer`. Every character carries the position in the text that it came
from, so that it knows the offsets of a token too.
"""

import unicodedata

Letter = tuple[str, int]  # a character and the position it came from


def reference_tokens(
    text: str, vocab: dict[str, int], lower_case: bool, max_word_chars: int
) -> list[tuple[int, int, int]]:
    """Returns id, start and stop of each token of a text."""
    tokens = []
    for word in basic_words(text, lower_case):
        tokens.extend(word_pieces(word, vocab, max_word_chars))
    return tokens


def basic_words(text: str, lower_case: bool) -> list[list[Letter]]:
    """Cleans, isolates CJK, splits on whitespace, folds, splits at punctuation."""
    letters: list[Letter] = []
    for position, char in enumerate(text):
        code = ord(char)
        if code in (0, 0xFFFD) or is_control(char):
            continue
        if is_whitespace(char):
            letters.append((" ", position))
        elif is_cjk(code):
            letters += [(" ", position), (char, position), (" ", position)]
        else:
            letters.append((char, position))
    words = []
    for word in split(letters):
        words += split_at_punctuation(fold(word) if lower_case else word)
    return [word for run in words for word in split(run)]


def split(letters: list[Letter]) -> list[list[Letter]]:
    """`str.split()` for characters that know their positions."""
    words: list[list[Letter]] = [[]]
    for letter in letters:
        if letter[0].isspace():
            words.append([])
        else:
            words[-1].append(letter)
    return [word for word in words if word]


def fold(word: list[Letter]) -> list[Letter]:
    """Lower case without accents; Python folds the word, each character tells its positions.

    Context changes which characters come out (final sigma) or their order (canonical order of
    marks), never their number, so the n-th character that comes out has the n-th position.
    """
    chars = strip_accents("".join(char for char, _ in word).lower())
    positions = [at for char, at in word for _ in strip_accents(char.lower())]
    return list(zip(chars, positions, strict=True))


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def split_at_punctuation(word: list[Letter]) -> list[list[Letter]]:
    runs: list[list[Letter]] = [[]]
    for letter in word:
        if is_punctuation(letter[0]):
            runs += [[letter], []]
        else:
            runs[-1].append(letter)
    return [run for run in runs if run]


def word_pieces(
    word: list[Letter], vocab: dict[str, int], max_word_chars: int
) -> list[tuple[int, int, int]]:
    """Greedy longest match first; a word without pieces is one [UNK]."""
    chars = "".join(char for char, _ in word)
    unknown = [(vocab["[UNK]"], word[0][1], word[-1][1] + 1)]
    if len(chars) > max_word_chars:
        return unknown
    pieces = []
    start = 0
    while start < len(chars):
        for stop in range(len(chars), start, -1):
            piece = ("##" if start else "") + chars[start:stop]
            if piece in vocab:
                break
        else:
            return unknown
        pieces.append((vocab[piece], word[start][1], word[stop - 1][1] + 1))
        start = stop
    return pieces


def is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char)[0] == "P"


def is_cjk(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )
