"""Finds where the pages of a Parquet column hold its numbers, and decodes those of a dictionary."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD = 256  # bytes in which a page's header surely ends
# The numbers of Parquet's format: see parquet.thrift, and Encodings.md for levels and runs.
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_KIND, _STORED, _DATA, _DICTIONARY = 1, 3, 5, 7
_VALUES, _ENCODING, _DEFINITION, _REPETITION = 1, 2, 3, 4
# What the pages of a type are: most bits of a number's place in the dictionary are 16.
_CODED = {"FLOAT": _PLAIN, "FIXED_LEN_BYTE_ARRAY": _PLAIN, "INT32": _RLE_DICTIONARY}
_MOST_BITS = 16
_LONG_RUN = 504  # numbers: Arrow's longest run of different ones
_RUNS = 256  # decoded at once: few enough to stay in the processor's cache


@dataclass(frozen=True)
class Page:
    """A page whose numbers are all present.

    Attributes:
        first: Where its numbers begin in the file.
        size: Their bytes.
        count: How many they are.
        dictionary: The values that the page holds places of; None if it holds the values.
    """

    first: int
    size: int
    count: int
    dictionary: np.ndarray | None


def column_pages(
    file: int, parquet: "pa.parquet.ParquetFile", column: int, dtype: np.dtype
) -> list[Page] | None:
    """Finds the pages of a column of numbers.

    Args:
        file: Descriptor of the open file.
        parquet: The same.
        column: The column's number.
        dtype: Type of its numbers.

    Returns:
        The pages; None if Arrow has to read them: they are compressed, coded otherwise than Arrow
        codes the numbers of vectors, have numbers that are null, or many equal ones in a row.
    """
    pages: list[Page] = []
    level = parquet.schema.column(column).max_definition_level
    for number in range(parquet.num_row_groups):
        chunk = parquet.metadata.row_group(number).column(column)
        wanted = _CODED.get(chunk.physical_type)
        coded = wanted == _RLE_DICTIONARY
        if chunk.compression != "UNCOMPRESSED" or wanted is None:
            return None
        if chunk.has_dictionary_page != coded:
            return None
        at = chunk.dictionary_page_offset if coded else chunk.data_page_offset
        end = at + chunk.total_compressed_size
        dictionary = None
        if coded:
            dictionary, at = _dictionary(file, at, dtype)
        while at < end:
            page, at = _page(file, at, level, wanted, dictionary)
            if page is None or (not coded and page.size != page.count * dtype.itemsize):
                return None
            pages.append(page)
    return pages


def _dictionary(file: int, at: int, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Reads a page of different values; returns them, and where the next page begins."""
    header, length = _struct(os.pread(file, _HEAD, at), 0)
    if header[_KIND] != _DICTIONARY_PAGE:
        raise ValueError("a column's first page is not its dictionary")
    first, size = at + length, header[_STORED]
    values = np.frombuffer(os.pread(file, size, first), "<i4", header[_DICTIONARY][_VALUES])
    return values.astype(dtype), first + size


def _page(
    file: int, at: int, level: int, wanted: int, dictionary: np.ndarray | None
) -> tuple[Page | None, int]:
    """Returns the page that begins at a place, None if Arrow has to read it, and where it ends."""
    header, length = _struct(os.pread(file, _HEAD, at), 0)
    first, end = at + length, at + length + header[_STORED]
    page = header.get(_DATA, {})
    encoding = page.get(_ENCODING)
    if encoding == _PLAIN_DICTIONARY:  # its name in older files
        encoding = _RLE_DICTIONARY
    levels = page.get(_DEFINITION), page.get(_REPETITION)
    if header[_KIND] != _DATA_PAGE or encoding != wanted or levels != (_RLE, _RLE):
        return None, end
    # Two lists of levels, each after its length, precede the numbers.
    first += 4 + int.from_bytes(os.pread(file, 4, first), "little")
    size = int.from_bytes(os.pread(file, 4, first), "little")
    definition = os.pread(file, min(size, _HEAD), first + 4)
    first += 4 + size
    found = Page(first, end - first, page[_VALUES], dictionary)
    if not _are_all(definition, found.count, level):
        return None, end
    if dictionary is not None and not _has_long_runs(os.pread(file, _HEAD, first), found.count):
        return None, end
    return found, end


def _are_all(levels: bytes, count: int, level: int) -> bool:
    """Whether levels are one run, `count` times the same."""
    if not count:
        return True
    run, at = _varint(levels, 0)
    return run == count << 1 and levels[at:] == bytes([level])


def _has_long_runs(head: bytes, count: int) -> bool:
    """Whether a page's first run is long: each run is a step in Python."""
    if not count:
        return True
    run, _ = _varint(head, 1)
    numbers = (run >> 1) * 8 if run & 1 else run >> 1
    return numbers >= min(count, _LONG_RUN)


def dictionary_places(page: memoryview, count: int) -> Iterator[np.ndarray]:
    """Yields the places in a dictionary that a page holds, some uint8 or uint16 at a time.

    Args:
        page: Number of bits of a place, then runs: of one place, or of packed ones.
        count: How many places there are.

    Raises:
        ValueError: The page is damaged; so for an IndexError.
    """
    bits = page[0]
    if bits > _MOST_BITS:
        raise ValueError(f"a place of {bits} bits")
    data, at = np.frombuffer(page, np.uint8), 1
    while count > 0:
        run, start = _varint(page, at)
        if run & 1:
            stride = start - at + (run >> 1) * bits
            most = min(_RUNS, (len(page) - at) // stride)
            runs = data[at : at + most * stride].reshape(most, stride)
            same = (runs[:, : start - at] == runs[0, : start - at]).all(axis=1)
            alike = most if same.all() else int(same.argmin())
            values = _unpacked(runs[:alike, start - at :], bits)[:count]
            at += alike * stride
        else:
            at = start + -(-bits // 8)
            place = int.from_bytes(page[start:at], "little")
            values = np.full(min(run >> 1, count), place, np.uint16)
        yield values
        count -= len(values)


def _unpacked(runs: np.ndarray, bits: int) -> np.ndarray:
    """Returns the numbers in groups of eight, `bits` bytes each, uint8 or uint16.

    Args:
        runs: uint8 `[runs, bytes]`.
        bits: Those of a number.
    """
    if bits == 8:
        return runs.reshape(-1)
    data = np.zeros(runs.size + 8, np.uint8)
    data[: runs.size].reshape(runs.shape)[:] = runs
    groups = runs.size // bits
    if not bits % 4:  # two numbers have whole bytes
        two = np.ndarray((4 * groups,), "V4", data, 0, (bits // 4,)).copy()
        return _spread(two.view("<u4"), bits)
    values = np.empty((groups, 2), "<u8")
    for half in range(2):
        byte, shift = divmod(4 * half * bits, 8)
        four = np.ndarray((groups,), "V8", data, byte, (bits,)).copy().view("<u8")
        four >>= shift
        values[:, half] = _spread(four, bits).view("<u8")
    return values.view("<u2").reshape(-1)


def _spread(words: np.ndarray, bits: int) -> np.ndarray:
    """Moves the two or four numbers in the lowest bits of each word to the places of uint16."""
    size = 8 * words.itemsize
    place = size // 2
    while place >= 16:  # first two numbers at once, then each
        taken = bits * place // 16
        low = sum(((1 << taken) - 1) << first for first in range(0, size, 2 * place))
        high = words << (place - taken)
        high &= low << place
        words &= low
        words |= high
        place //= 2
    return words.view("<u2")


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Reads a struct of Thrift's compact protocol: its fields by number, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        delta, kind = head >> 4, head & 15
        at += 1
        if not delta:
            raise ValueError("a field's number is not the next one's")
        number += delta
        if kind in (1, 2):  # true, false
            fields[number] = kind == 1
        elif kind in (4, 5, 6):  # whole numbers
            coded, at = _varint(data, at)
            fields[number] = coded >> 1 ^ -(coded & 1)
        elif kind == 8:  # bytes
            size, at = _varint(data, at)
            at += size
        elif kind == 12:
            fields[number], at = _struct(data, at)
        else:
            raise ValueError(f"a field of kind {kind} in the header of a page")
    return fields, at + 1


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
        shift += 7
