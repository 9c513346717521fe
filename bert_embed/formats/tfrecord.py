"""Writes and reads the framing of TFRecord files, with their checksums.

A record is its length (8 bytes, little-endian), the masked CRC32C of the length, its bytes, and the
masked CRC32C of the bytes, as tensorflow/core/lib/io/record_writer.h describes it.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import google_crc32c

from bert_embed.storage.errors import InputError

HEADER, FOOTER = 12, 4  # bytes before and after a record
_LARGEST = 1 << 28  # of a record; a larger one is no document but an attack on memory
_MASK_DELTA = 0xA282EAD8


class Record(NamedTuple):
    """A record of a file."""

    offset: int  # where its framing begins, in decompressed bytes
    data: bytes | None  # its bytes; None where the checksum differs


def masked_crc(data: bytes) -> int:
    """Returns the checksum of bytes as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """Returns a record with its framing."""
    return _framed_length(len(data)) + data + struct.pack("<I", masked_crc(data))


@lru_cache(1 << 14)
def _framed_length(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc(length))


def unframed(pieces: Iterable[bytes]) -> Iterator[list[Record]]:
    """Yields the records that each piece of a file's decompressed bytes completes.

    InputError, with the offset, where a length is damaged or the file ends within a record.
    """
    held, offset = b"", 0
    for piece in pieces:
        held = held + piece if held else piece
        records, used = _whole_records(held, offset)
        offset, held = offset + used, held[used:]
        if records:
            yield records
    if held:
        raise InputError(f"it ends within the record at byte {offset}")


def _whole_records(data: bytes, offset: int) -> tuple[list[Record], int]:
    records = []
    at = 0
    while len(data) - at >= HEADER:
        size, crc = struct.unpack_from("<QI", data, at)
        if masked_crc(data[at : at + 8]) != crc or size > _LARGEST:
            raise InputError(f"the length of the record at byte {offset + at} is damaged")
        stop = at + HEADER + size
        if stop + FOOTER > len(data):
            break
        record = data[at + HEADER : stop]
        (crc,) = struct.unpack_from("<I", data, stop)
        records.append(Record(offset + at, record if masked_crc(record) == crc else None))
        at = stop + FOOTER
    return records, at
