"""Write the Python language reference as JSONL: one line a paragraph, with `id` and `text`.

Every Python carries its language reference in `pydoc_data.topics`, so there is real text to embed
without a download. Usage: python examples/write_language_reference.py OUT
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from pydoc_data.topics import topics

_FEWEST_WORDS = 4  # shorter paragraphs are headings, labels and single lines of code
_WORD = re.compile(r"[A-Za-z][a-z]+")
_NOT_PROSE = re.compile(r"::=|^\s*(>>>|\+[-=]+\+|\||-{4,}|={4,})", re.MULTILINE)
_SIGNATURE = re.compile(r"\S.*\)$|(class|exception|coroutine) \S+.*$|[\w.]+$")
_ENDING = re.compile(r'[.:;!?)\]"”\u2019]\s*(\[\d+\]|\(\d+\))?$')


def paragraphs(text: str) -> Iterator[str]:
    """Yields the prose of a topic, each paragraph on one line, with its signature in front.

    >>> list(paragraphs("Calls\\n*****\\n\\nf.g(x)\\n\\n   Called when *x*\\n   is set by g.\\n"))
    ['f.g(x) Called when *x* is set by g.']
    """
    signature, depth = "", 0
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        indent = len(part) - len(part.lstrip())
        joined = " ".join(part.split())
        if _NOT_PROSE.search(part) or re.fullmatch(r".+\n[*=\-^]+", part):
            signature = ""
        elif "\n" not in part and _SIGNATURE.fullmatch(joined):
            signature, depth = joined, indent
        else:
            if is_prose(joined):
                yield f"{signature} {joined}" if signature and indent > depth else joined
            signature = ""


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph reads as sentences rather than as code or a label.

    >>> is_prose("The value of the expression is returned."), is_prose("x = f(a, b)[0]")
    (True, False)
    """
    words = _WORD.findall(paragraph)
    letters = sum(map(len, words)) / max(1, len(paragraph.replace(" ", "")))
    return len(words) >= _FEWEST_WORDS and letters > 0.6 and bool(_ENDING.search(paragraph))


def documents(reference: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the records of all topics by name; a text in several belongs to the shortest one."""
    owners: dict[str, dict[str, str]] = {}
    for topic in sorted(reference, key=lambda name: (len(reference[name]), name)):
        for number, text in enumerate(paragraphs(reference[topic])):
            owners.setdefault(text, {"id": f"{topic}/{number}", "text": text})
    return sorted(owners.values(), key=lambda record: record["id"].partition("/")[0])


def main(out: str) -> None:
    """Writes the file and prints how many paragraphs it holds."""
    records = documents(topics)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    Path(out).write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"{len(records)} paragraphs of the Python language reference: {out}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} OUT")
    main(sys.argv[1])
