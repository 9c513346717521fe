"""Matches names of objects with globs as Python's `glob` matches files, without listing folders."""

import fnmatch
import re
from collections.abc import Callable

_PIECES = re.compile(
    r"(?P<folders>(?<![^/])\*\*/)|(?P<rest>\*\*+)|\*|\?|\[!?\]?[^\]/]*\]|[^*?\[]+|\["
)
_MAGIC = re.compile(r"[*?\[]")
_VISIBLE = r"(?!\.)"  # before a name that begins with a wildcard


def is_glob(pattern: str) -> bool:
    """Whether a name holds characters of a glob."""
    return _MAGIC.search(pattern) is not None


def fixed_folder(pattern: str) -> str:
    """The folders of a pattern before its first wildcard, without the last slash."""
    wildcard = _MAGIC.search(pattern)
    return pattern[: wildcard.start() if wildcard else len(pattern)].rpartition("/")[0]


def glob_matcher(pattern: str) -> Callable[[str], object]:
    r"""Returns a function that says whether a name matches.

    `*`, `?` and `[…]` match within a name, `**` matches folders too. A wildcard matches no name and
    no folder that begins with a dot. A backslash is a character like any other.

    >>> [name for name in ("a.txt", ".b.txt", "c\\d.txt", "e/f.txt") if glob_matcher("*.txt")(name)]
    ['a.txt', 'c\\d.txt']
    >>> [name for name in ("a.txt", "e/f.txt", ".g/h.txt") if glob_matcher("**/*.txt")(name)]
    ['a.txt', 'e/f.txt']
    """
    parts, begins = [], True
    for piece in _PIECES.finditer(pattern):
        text = piece[0]
        if piece["folders"]:
            parts.append(rf"(?:{_VISIBLE}[^/]*/)*")
            continue
        wild = text[0] in "*?[" and text != "["
        parts.append(_VISIBLE if begins and wild else "")
        if piece["rest"]:
            parts.append(rf"[^/]*(?:/{_VISIBLE}[^/]*)*")
        elif text == "*":
            parts.append("[^/]*")
        elif wild:
            parts.append(rf"(?!/){fnmatch.translate(text)[4:-3]}")
        else:
            parts.append(re.escape(text))
        begins = text.endswith("/")
    return re.compile("".join(parts), re.DOTALL).fullmatch
