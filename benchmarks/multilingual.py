"""Text in many scripts for the benchmarks, generated: nobody's text, and nobody's language.

Words are letters of a script drawn at random, 20,000 of them to a script, used by Zipf's law as
words are; European text is our English sentences with accents put on. Lengths of words and
sentences, spacing and punctuation are roughly those of the languages.
"""

import random
import unicodedata
from collections.abc import Iterator

from benchmarks.corpus import english_sentences

_SEED = 20250802
_WORDS = 20_000  # different words of a script
_ACCENTED = str.maketrans({"a": "áàâäãå", "e": "éèêë", "i": "íîï", "o": "óôöõø", "u": "úùûü"})
_ACCENTED |= str.maketrans({"c": "ç", "n": "ñ", "s": "šß", "z": "žż", "y": "ý", "l": "ł"})
# First and last code point, letters in a word, words in a sentence, between words, at the end.
_SCRIPTS = {
    "Greek": (0x03AC, 0x03CE, (2, 10), (6, 22), " ", "."),
    "Cyrillic": (0x0430, 0x044F, (2, 11), (6, 22), " ", "."),
    "Hebrew": (0x05D0, 0x05EA, (2, 6), (6, 20), " ", "."),
    "Arabic": (0x0621, 0x0652, (2, 8), (6, 20), " ", "؟"),
    "Devanagari": (0x0905, 0x094D, (2, 8), (6, 22), " ", "।"),
    "Korean": (0xAC00, 0xD7A3, (1, 4), (5, 16), " ", "."),
    "Thai": (0x0E01, 0x0E4E, (2, 6), (5, 16), "", " "),
    "Chinese": (0x4E00, 0x9FA5, (1, 3), (6, 24), "", "。"),
    "Japanese": (0x3041, 0x30FA, (1, 5), (5, 18), "", "。"),
}


def multilingual_sentences(count: int) -> list[str]:
    """Returns `count` sentences: four in ten European, the rest of nine scripts in turn."""
    draw = random.Random(_SEED)
    european = _european(draw, count)
    others = [_sentences(draw, *script) for script in _SCRIPTS.values()]
    return [
        next(european) if row % 10 < 4 else next(others[row % len(others)]) for row in range(count)
    ]


def _european(draw: random.Random, count: int) -> Iterator[str]:
    for sentence in english_sentences(count):
        yield "".join(
            draw.choice(_ACCENTED[ord(char)])
            if ord(char) in _ACCENTED and draw.random() < 0.08
            else char
            for char in sentence
        )


def _sentences(
    draw: random.Random,
    first: int,
    last: int,
    letters: tuple[int, int],
    words: tuple[int, int],
    between: str,
    end: str,
) -> Iterator[str]:
    alphabet = [chr(code) for code in range(first, last + 1)]
    alphabet = [char for char in alphabet if unicodedata.category(char)[0] in "LM"]
    known = ["".join(draw.choices(alphabet, k=draw.randint(*letters))) for _ in range(_WORDS)]
    while True:
        # The logarithm of the rank is uniform: Zipf's law.
        ranks = [int(_WORDS ** draw.random()) - 1 for _ in range(draw.randint(*words))]
        chosen = [known[rank] for rank in ranks]
        yield between.join(chosen).capitalize() + end
