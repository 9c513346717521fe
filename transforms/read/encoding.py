"""Finds out from a file's first bytes how they are stored, and rejects what is no UTF-8."""

import codecs
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO

import orjson

from bert_embed.storage.errors import InputError
from bert_embed.storage.file_info import FileInfo
from bert_embed.storage.files import is_remote, open_raw
from bert_embed.transforms.read.compressed import (
    BOM,
    CARRIAGE_RETURNS,
    JSON_VALUES,
    ObjectLines,
    decompressed,
)

# Byte order marks; one of UTF-32 begins with one of UTF-16, so UTF-32 comes first.
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_WIDE = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
_CONTROLS = bytes(code for code in range(32) if chr(code) not in "\t\n\r\f\x1b")
_SEVERAL = 8  # bytes from which on shares of them say something
_MANY_CONTROLS, _SOME_HIGH, _MOST_STRANGE = 0.1, 0.05, 0.05
# The first bytes of what a suffix should have named.
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_SUFFIXES = {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"}
_OTHERS = {
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "PDF",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"SQLite format 3\x00": "SQLite",
}
_PARQUET = b"PAR1"
_START, _LONG_START = 1 << 12, 1 << 20  # bytes looked at; of a file without a line feed in them


@dataclass(frozen=True)
class Inside:
    """What a file is, by its suffix, and then by its first bytes."""

    format: str
    compression: str | None


def check_encoding(path: str, start: bytes) -> None:
    """Raises InputError if a file's first bytes are no UTF-8 text, as far as these can say it."""
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise InputError(f"{path} is {name}, convert it to UTF-8: iconv -f {name} -t UTF-8")
    start = start[:_START]
    start = start.rstrip(b"\0") or start  # a file may have been allocated beyond its text
    for mark, name in _PACKED.items():
        if start.startswith(mark) and not _is_text(start):
            raise InputError(f"{path} is {name} data, give it the suffix {_SUFFIXES[name]}")
    for mark, name in _OTHERS.items():
        if start.startswith(mark) and not _is_text(start):
            raise InputError(f"{path} is {name}, not text; unpack or convert it")
    if len(start) < _SEVERAL or b"\0" not in start:
        return
    controls = len(start) - len(start.translate(None, _CONTROLS))
    high = sum(byte >= 0x80 for byte in start)
    if controls > _MANY_CONTROLS * len(start) or (
        high > _SOME_HIGH * len(start) and not _is_text(start)
    ):
        for name in _WIDE:
            if _reads_as(name, start):
                raise InputError(
                    f"{path} is {name[:6]} without a byte order mark, convert it to UTF-8: "
                    f"iconv -f {name} -t UTF-8"
                )
    if start.count(0) > _MANY_CONTROLS * len(start):
        raise InputError(f"{path} is binary data: of its first bytes many are zero")


def check_lines(info: FileInfo, start: bytes) -> None:
    """As `check_encoding`; InputError also if a store's file, not looked into before, has no LF."""
    check_encoding(info.path, start)
    enough = len(start) >= min(info.size, _START)
    if is_remote(info.path) and enough and b"\r" in start and b"\n" not in start:
        raise InputError(
            f"{info.path} has lines that end in carriage returns alone; write line feeds: "
            "tr '\\r' '\\n'"
        )


def _is_text(start: bytes) -> bool:
    """Whether bytes, of which the last may be part of a character, are UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def _reads_as(name: str, start: bytes) -> bool:
    """Whether bytes are text in an encoding of several bytes a character."""
    try:
        text = codecs.getincrementaldecoder(name)().decode(start)
    except UnicodeDecodeError:
        return False
    strange = sum(
        unicodedata.category(letter) in ("Cc", "Cn", "Co", "Cs") and letter not in "\t\n\r\f"
        for letter in text
    )
    return bool(text) and strange <= _MOST_STRANGE * len(text)


def look_inside(path: str, named: Inside, suffix: str, forced: bool) -> Inside:
    """What a file is: as `named`, or as its first bytes show; InputError if it is no text.

    A compressed file is recognized without its suffix, and a plain one with it; so are line ends
    of carriage returns alone, and JSON in which an object is not a line. Files of a store are read
    later, except those of the suffix `.json`, of which no line may be an object. A format that is
    `forced` stays.
    """
    if is_remote(path) and (suffix != ".json" or named.compression is not None):
        return named
    with open_raw(path) as file:
        start = _first_bytes(file)
        compression = _packing(start, named.compression)
        if compression is None:
            if start.startswith(_PARQUET) and not _is_text(start) and not forced:
                return Inside("parquet", None)
            check_encoding(path, start)
        elif compression is not None:
            file.seek(0)
            start = b""
            with suppress(InputError):  # said when the file is read
                start = next(decompressed(file, compression, path, _START), b"")
    inside = replace(named, compression=compression)
    if named.format == "jsonl" and _has_values(path, start):
        return _laid_out(inside, JSON_VALUES)
    if named.format in ("jsonl", "text", "csv") and b"\r" in start and b"\n" not in start:
        return _laid_out(inside, CARRIAGE_RETURNS)
    return inside


def _laid_out(inside: Inside, layout: str) -> Inside:
    packed = inside.compression
    return replace(inside, compression=layout if packed is None else f"{packed}+{layout}")


def _first_bytes(file: BinaryIO) -> bytes:
    start = file.read(_START)
    return start if b"\n" in start else start + file.read(_LONG_START)


def _packing(start: bytes, named: str | None) -> str | None:
    """How a file is compressed, by its first bytes; damaged ones stay what the suffix says."""
    for mark, name in _PACKED.items():
        if start.startswith(mark) and not _is_text(start[:_START]):
            return name
        if name == named and start[: len(mark)] == mark[: len(start)]:
            return name
    plain = bool(start) and _is_text(start) and start.translate(None, _CONTROLS) == start
    return None if plain else named


def _has_values(path: str, start: bytes) -> bool:
    """Whether JSON is an array, or has objects over several lines, or several in a line."""
    text = start.removeprefix(BOM).lstrip()
    if text.startswith(b"["):
        return True
    first, ended, rest = text.partition(b"\n")
    with suppress(orjson.JSONDecodeError):
        orjson.loads(first)
        return False
    if not first.startswith(b"{"):
        return False
    objects = ObjectLines()
    objects.feed(first)
    if objects.joined:
        raise InputError(
            f"{path} has JSON objects with nothing between them; write one a line: jq -c . FILE"
        )
    # Of a malformed first line the second line begins with another object.
    goes_on = objects.depth > 0 and not objects.is_quoted and rest.lstrip()[:1] in (b'"', b"}")
    return objects.count > 1 or (bool(ended) and goes_on)
