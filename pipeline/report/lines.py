"""Finds the numbers of the lines that begin at given bytes of local files."""

import os
from collections.abc import Iterable

from bert_embed.storage.files import is_remote, open_raw

_MOST_BYTES = 16 << 20  # of a file that are read: a place far into it keeps its byte alone


def line_numbers(sources: Iterable[str]) -> dict[str, int]:
    """The line of each `<file>:<byte>`, from 1; without those that begin no line of a local file.

    Rows of tables and bytes of compressed files are such, and files that are gone or have changed.
    """
    offsets: dict[str, set[int]] = {}
    for source in sources:
        path, _, offset = source.rpartition(":")
        if offset.isdecimal() and not is_remote(path) and os.path.isfile(path):
            offsets.setdefault(path, set()).add(int(offset))
    found: dict[str, int] = {}
    for path, wanted in offsets.items():
        near = sorted(each for each in wanted if each <= _MOST_BYTES)
        found |= {f"{path}:{at}": line for at, line in _lines_at(path, near)}
    return found


def _lines_at(path: str, offsets: list[int]) -> Iterable[tuple[int, int]]:
    line, at, before = 1, 0, b"\n"
    try:
        with open_raw(path) as file:
            for offset in offsets:
                data = file.read(offset - at)
                if len(data) < offset - at:
                    return
                line, at, before = line + data.count(b"\n"), offset, data[-1:] or before
                if before == b"\n":
                    yield offset, line
    except OSError:  # no file of the run: the place stays without its line
        return
