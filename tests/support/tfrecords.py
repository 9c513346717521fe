"""Writes TFRecord files record by record, as other programs do."""

import struct
from collections.abc import Iterable

from bert_embed.results.tf_example import masked_crc


def framed(records: Iterable[bytes]) -> bytes:
    """Returns records as the bytes of a file."""
    parts = []
    for data in records:
        length = struct.pack("<Q", len(data))
        parts += [length, struct.pack("<I", masked_crc(length))]
        parts += [data, struct.pack("<I", masked_crc(data))]
    return b"".join(parts)
