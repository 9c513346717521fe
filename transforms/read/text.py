"""Parses plain text: each line is a document; its id is the place of the line."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.lines import Lines
from bert_embed.transforms.read.parsed import Documents
from bert_embed.transforms.records.rejected import BLANK_LINE, Rejected

INVALID_UTF8 = "invalid UTF-8"
TOO_LARGE = "record too large"
_MOST_BY_PYTHON = 32  # strings for which Python is faster than Arrow, as in many tiny files


def line_texts(lines: Lines) -> tuple[list[str | bytes], np.ndarray]:
    """The texts of lines, and int64 `[lines]`, where each begins in the file, in bytes.

    A line ends at a line feed; one carriage return before it is dropped, and a byte order mark at
    the start of the file. A line that is not UTF-8 stays bytes.
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
        texts = [
            text.removesuffix("\r") if isinstance(text, str) else text.removesuffix(b"\r")
            for text in texts
        ]
    return texts, offsets


def utf8_detail(data: bytes) -> str | None:
    """Where bytes stop being UTF-8; None: they do not."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start} of the record is {data[error.start]:#04x}"
    return None


def _decoded(line: bytes) -> str | bytes:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line


def positions(path: str, offsets: np.ndarray) -> pa.StringArray:
    """`<file>:<byte offset>` of each offset."""
    if len(offsets) <= _MOST_BY_PYTHON:
        return pa.array([f"{path}:{offset}" for offset in offsets.tolist()], pa.string())
    places = pa.array(offsets, pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(path, places, ":")


def parse_text(lines: Lines, columns: Columns) -> Documents:
    """Parses lines; those that are blank or not UTF-8 are rejected."""
    texts, offsets = line_texts(lines)
    places = positions(lines.path, offsets)
    bad = [row for row in _suspects(lines, offsets, texts) if _is_bad(texts[row])]
    if not bad:
        return Documents(places, cast("list[str]", texts), places, [])
    rejected = [_rejected(places[row].as_py(), texts[row]) for row in bad]
    rows = np.delete(np.arange(len(texts)), bad)
    ids = places.take(pa.array(rows))
    good = cast("list[str]", [texts[row] for row in rows])
    return Documents(ids, good, ids, rejected)


def _suspects(lines: Lines, offsets: np.ndarray, texts: Sequence[str | bytes]) -> Iterable[int]:
    """Rows that may be blank or not UTF-8: a blank one begins with a space or non-ASCII."""
    if bytes in set(map(type, texts)):
        return range(len(texts))
    first = np.frombuffer(lines.data, np.uint8)[offsets - lines.offset]
    return np.flatnonzero((first <= ord(" ")) | (first >= 0x80)).tolist()


def _is_bad(text: str | bytes) -> bool:
    return not text or isinstance(text, bytes) or text.isspace()


def _rejected(place: str, line: str | bytes) -> Rejected:
    if isinstance(line, bytes):
        return Rejected(*(place, place, "read", INVALID_UTF8, line), detail=utf8_detail(line))
    return Rejected(place, place, "read", BLANK_LINE, line, blank=not line.strip())


def reject_large(path: str, offset: int, place_is_id: bool) -> Documents:
    """Rejects the one record of a content that is too large to be held in memory."""
    [place] = positions(path, np.array([offset])).to_pylist()
    rejected = Rejected(place if place_is_id else None, place, "read", TOO_LARGE)
    none = pa.array([], pa.string())
    return Documents(none, [], none, [rejected])
