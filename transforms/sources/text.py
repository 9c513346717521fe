"""Plain text: one document a line, its id the place where the line begins."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.dead_letter import BLANK_LINE, Rejected
from transforms.sources.lines import Lines

INVALID_UTF8 = "invalid UTF-8"


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
    places = pa.array(offsets, pa.int64()).cast(pa.string())
    return pa.compute.binary_join_element_wise(path, places, ":")


def parse_text(lines: Lines) -> tuple[pa.StringArray, list[str], list[Rejected]]:
    """Lines to documents: ids, texts, and the lines that are blank or no UTF-8."""
    texts, offsets = line_texts(lines)
    bad = [row for row in _suspects(lines, offsets).tolist() if _is_bad(texts[row])]
    places = positions(lines.path, offsets)
    if not bad:
        return places, _only_texts(texts), []
    rejected = [_refused(places[row].as_py(), texts[row]) for row in bad]
    good = np.delete(np.arange(len(texts)), bad)
    return places.take(pa.array(good)), _only_texts([texts[row] for row in good]), rejected


def _suspects(lines: Lines, offsets: np.ndarray) -> np.ndarray:
    """Lines that may be blank or no UTF-8, by their first byte unless some byte is not ASCII.

    A blank line begins with white space; looking at that byte spares nearly all a closer look.
    """
    data = np.frombuffer(lines.data, np.uint8)
    if not lines.data.isascii():
        return np.arange(len(offsets))
    return np.flatnonzero(data[offsets - lines.offset] <= ord(" "))


def _is_bad(text: str | bytes) -> bool:
    return not text or isinstance(text, bytes) or text.isspace()


def _refused(place: str, line: str | bytes) -> Rejected:
    if isinstance(line, bytes):
        return Rejected(place, place, "read", INVALID_UTF8, line)
    return Rejected(place, place, "read", BLANK_LINE, line, blank=True)


def _only_texts(texts: Sequence[str | bytes]) -> list[str]:
    return list(texts)  # type: ignore[arg-type]  # the caller has taken the bytes out
