"""Computes CRC32C checksums of files and bytes, as Cloud Storage reports them."""

import base64
import os

import google_crc32c

_CHUNK = 1 << 18  # a MiB or more would take fresh memory each, which costs more than the checksum


def crc32c_of(path: str | os.PathLike[str]) -> str:
    """The CRC32C of a local file, in base64 as Cloud Storage reports it."""
    checksum = google_crc32c.Checksum()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            checksum.update(chunk)
    return base64.b64encode(checksum.digest()).decode()


def crc32c_of_bytes(data: bytes) -> str:
    """The CRC32C of bytes in memory, likewise."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()
