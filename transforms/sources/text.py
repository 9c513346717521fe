"""Plain text: one document a line, or a pair, its id the place where the line begins."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from transforms.dead_letter import BLANK_LINE, Rejected
from transforms.sources.documents import Documents
from transforms.sources.lines import Lines

INVALID_UTF8 = "invalid UTF-8"
TOO_LARGE = "record too large"
_FEW = 32  # strings that Python has made before Arrow has begun, as for many tiny files


def line_texts(lines: Lines) -> tuple[list[str | bytes], np.ndarray]:
    """The lines as text and where each begins; what is no UTF-8 stays bytes.

    A line ends at a line feed; one carriage return before it is dropped, and a byte order mark
    at the start of the file.

    Returns:
        The lines, and int64 `[lines]`, byte offsets in the file.
    """
    data = lines.text
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])[: lines.count]
    offsets = starts + (lines.offset + len(lines.data) - len(data))
    if len(offsets):
        offsets[0] = lines.offset  # the mark belongs to the first line
    try:
        texts: list[str | bytes] = [*data.decode("utf-8").split("\n")]
    except UnicodeDecodeError:
        texts = [_decoded(line) for line in data.split(b"\n")]
    del texts[lines.count :]
    if b"\r" in data:
        texts = [_without_return(text) for text in texts]
    return texts, offsets


def _decoded(line: bytes) -> str | bytes:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line


def _without_return(line: str | bytes) -> str | bytes:
    return line.removesuffix("\r") if isinstance(line, str) else line.removesuffix(b"\r")


def positions(path: str, offsets: np.ndarray) -> pa.StringArray:
    """`<file>:<byte offset>` of each offset."""
    if len(offsets) <= _FEW:
        return pa.array([f"{path}:{offset}" for offset in offsets.tolist()], pa.string())
    places = pa.array(offsets, pa.int64()).cast(pa.string())
    return pa.compute.binary_join_element_wise(path, places, ":")


def parse_text(lines: Lines, pair_separator: str | None = None) -> Documents:
    """Lines to documents, and the lines that are blank or no UTF-8.

    Args:
        lines: Of a text file.
        pair_separator: What stands between the two texts of a line; None if a line is one text.
    """
    found, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    texts, texts_b = found, None
    suspects = _suspects(lines, offsets, found)
    if pair_separator is not None:
        texts, texts_b = split_pairs(found, pair_separator)
        suspects = range(len(found))
    rows = np.arange(len(found), dtype=np.int64)
    first = lines.number or 0
    bad = [row for row in suspects if _is_bad(texts[row])]
    if not bad:
        return Documents(places, _only_texts(texts), places, rows + first, [], texts_b)
    rejected = [_refused(places[row].as_py(), found[row]) for row in bad]
    rows = np.delete(rows, bad)
    ids = places.take(pa.array(rows))
    good = _only_texts([texts[row] for row in rows])
    if texts_b is not None:
        texts_b = [texts_b[row] for row in rows]
    return Documents(ids, good, ids, rows + first, rejected, texts_b)


def split_pairs(
    found: Sequence[str | bytes], separator: str
) -> tuple[list[str | bytes], list[str]]:
    """Splits each line, without white space at its ends, at its last separator.

    So does `extract_features.py` of google-research/bert with ` ||| `.

    Returns:
        The first texts, a line that is no UTF-8 as it is; and the second ones, "" for a line
        without the separator.

    >>> split_pairs(["a ||| b", "a ||| b ||| c ", "a |||"], " ||| ")
    (['a', 'a ||| b', 'a |||'], ['b', 'c', ''])
    """
    texts: list[str | bytes] = []
    texts_b: list[str] = []
    for line in found:
        if isinstance(line, bytes):
            texts.append(line)
            texts_b.append("")
            continue
        text, between, text_b = line.strip().rpartition(separator)
        texts.append(text if between else text_b)
        texts_b.append(text_b if between else "")
    return texts, texts_b


def _suspects(lines: Lines, offsets: np.ndarray, found: Sequence[str | bytes]) -> Iterable[int]:
    """Lines that may be blank or no UTF-8: by their first byte, if all of them are UTF-8.

    A blank line begins with white space, which is ASCII up to the space, or is not ASCII; looking
    at that byte spares nearly all a closer look.
    """
    if bytes in set(map(type, found)):
        return range(len(found))
    first = np.frombuffer(lines.data, np.uint8)[offsets - lines.offset]
    return np.flatnonzero((first <= ord(" ")) | (first >= 0x80)).tolist()


def _is_bad(text: str | bytes) -> bool:
    return not text or isinstance(text, bytes) or text.isspace()


def _refused(place: str, line: str | bytes) -> Rejected:
    if isinstance(line, bytes):
        return Rejected(place, place, "read", INVALID_UTF8, line)
    return Rejected(place, place, "read", BLANK_LINE, line, blank=not line.strip())


def refuse_large(lines: Lines, place_is_id: bool) -> Documents:
    """The one line that was too large to be held: no document, one rejected record."""
    [place] = positions(lines.path, np.array([lines.offset])).to_pylist()
    rejected = Rejected(place if place_is_id else None, place, "read", TOO_LARGE)
    none = pa.array([], pa.string())
    return Documents(none, [], none, np.empty(0, np.int64), [rejected])


def _only_texts(texts: Sequence[str | bytes]) -> list[str]:
    return list(texts)  # type: ignore[arg-type]  # the caller has taken the bytes out
