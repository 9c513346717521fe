"""Counts different texts and ids of a run in bounded memory, by their hashes.

A small run keeps all hashes, and its count is exact. A larger one keeps those that begin with some
zero bits: a sample by value, which gives the number of different ones within half a percent.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

EXACT = 1 << 16  # documents, up to which all hashes are kept
_MOST = 1 << 17  # hashes held at a time, where there were more documents than expected
_BITS = 64


def sample_bits(documents: int) -> int:
    """How many leading bits of a kept hash are zero, for about so many documents.

    >>> sample_bits(EXACT), sample_bits(EXACT + 1), sample_bits(EXACT * 8)
    (0, 1, 3)
    """
    return max(0, (max(documents, 1) - 1).bit_length() - EXACT.bit_length() + 1)


@dataclass(frozen=True)
class Distinct:
    """Different hashes."""

    hashes: np.ndarray  # uint64 `[hashes]`, each once, in order
    bits: int = 0  # how many leading bits of each are zero

    @property
    def count(self) -> int:
        """How many different ones there are; estimated if `bits` is not 0."""
        return len(self.hashes) << self.bits

    def to_text(self) -> str:
        """The hashes as base64 of their little-endian bytes."""
        return base64.b64encode(self.hashes.astype("<u8").tobytes()).decode("ascii")

    @classmethod
    def from_text(cls, text: str, bits: int) -> "Distinct":
        """What `to_text` gave; ValueError for anything else."""
        data = base64.b64decode(text, validate=True)
        return cls(np.frombuffer(data, "<u8").astype(np.uint64), bits)

    def sampled(self, bits: int) -> "Distinct":
        """Those with so many leading zero bits."""
        if bits <= self.bits:
            return self
        return Distinct(self.hashes[self.hashes >> np.uint64(_BITS - bits) == 0], bits)


def distinct(hashes: np.ndarray, bits: int) -> Distinct:
    """The different ones of some hashes, int64 or uint64 `[hashes]`, with `bits` leading zeros."""
    return Distinct(np.unique(hashes.view(np.uint64))).sampled(bits)


def joined(several: Iterable[Distinct]) -> Distinct:
    """The different hashes of several, at most 131,072: of more, a smaller sample."""
    listed = list(several)
    bits = max((hashes.bits for hashes in listed), default=0)
    parts = [hashes.sampled(bits).hashes for hashes in listed]
    different = Distinct(np.unique(np.concatenate([np.empty(0, np.uint64), *parts])), bits)
    while len(different.hashes) > _MOST:
        different = different.sampled(different.bits + 1)
    return different
