"""Finds where the sentences or paragraphs of a text begin."""

import re

import numpy as np

# A line break alone is a space, because most texts with short lines are wrapped; two or more, with
# only white space between them, end a paragraph.
_PARAGRAPH = re.compile(r"\n\s*\n\s*|\r\s*\r\s*|\u2029\s*")
_WRAP = re.compile(r"[\r\n]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LOCALE = "en"  # ICU's rules for sentences are those of UAX #29, the same for nearly all languages


def paragraph_starts(text: str) -> np.ndarray:
    """Returns where each paragraph begins, int64 `[paragraphs]`, in code points; the first is 0.

    >>> paragraph_starts("One.\\nTwo.\\n \\n\\nThree.").tolist()
    [0, 13]
    """
    return np.array([0, *(found.end() for found in _PARAGRAPH.finditer(text))], np.int64)


def sentence_starts(text: str) -> np.ndarray:
    """Returns where each sentence begins, int64 `[sentences]`, in code points; the first is 0.

    The boundaries are those of ICU's sentence breaker, the rules of Unicode's UAX #29, for all
    scripts. A paragraph ends a sentence, too.

    >>> sentence_starts("It is. Is it?\\nYes!").tolist()
    [0, 7, 14]
    """
    from icu4py.breakers import SentenceBreaker  # 42 MB of ICU, which nothing else needs

    starts: list[np.ndarray] = []
    paragraphs = paragraph_starts(text)
    for start, stop in zip(paragraphs.tolist(), [*paragraphs[1:].tolist(), len(text)], strict=True):
        flat = _SURROGATE.sub("\ufffd", _WRAP.sub(" ", text[start:stop]))
        lengths = np.fromiter(map(len, SentenceBreaker(flat, _LOCALE)), np.int64)
        starts.append(start + np.append(0, np.cumsum(lengths)[:-1]))
    return np.concatenate(starts)
