"""Reads float32 vectors from Parquet without decoding, where pages hold nothing but numbers.

Arrow decodes two levels for each number of a list: six times the work of reading the numbers.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "embedding.list.element"
_HEAD = 256  # bytes in which a page's header surely ends
_DATA_PAGE, _PLAIN = 0, 0  # the numbers of Parquet's format
# Fields of the headers: see parquet.thrift.
_KIND, _STORED, _DATA = 1, 3, 5
_VALUES, _ENCODING = 1, 2

_Place: TypeAlias = tuple[int, int]  # where numbers begin in the file, and how many they are


def plain_vectors(
    path: Path, file: "pa.parquet.ParquetFile", width: int
) -> Iterator[np.ndarray] | None:
    """Returns the vectors of a file, a page at a time; None if they have to be decoded.

    They have to if they are compressed, coded by a dictionary, of another type, or some are null.

    Args:
        path: The file.
        file: The same, open.
        width: Numbers of a vector.

    Returns:
        float32 `[rows, width]` each, valid until the next one is requested.
    """
    kind = file.schema_arrow.field("embedding").type
    if getattr(kind, "list_size", None) != width:
        return None
    places: list[_Place] = []
    with open(path, "rb", buffering=0) as data:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            columns = (group.column(each) for each in range(group.num_columns))
            column = next((each for each in columns if each.path_in_schema == _COLUMN), None)
            found = None if column is None else _pages(data.fileno(), column)
            if found is None or sum(count for _, count in found) != group.num_rows * width:
                return None
            places += found
    return _read(path, places, width)


def _pages(file: int, column: "pa.parquet.ColumnChunkMetaData") -> list[_Place] | None:
    """The numbers of each page of a column; None unless they are plain float32, none missing."""
    layout = column.physical_type, column.compression, column.has_dictionary_page
    if layout != ("FLOAT", "UNCOMPRESSED", False):
        return None
    places: list[_Place] = []
    at, end = column.data_page_offset, column.data_page_offset + column.total_compressed_size
    while at < end:
        head = os.pread(file, _HEAD, at)
        header, length = _struct(head, 0)
        page = header.get(_DATA, {})
        if header[_KIND] != _DATA_PAGE or page.get(_ENCODING) != _PLAIN:
            return None
        first = at + length  # two lists of levels, each after its length, then the numbers
        at = first + header[_STORED]
        for _ in range(2):
            first += 4 + int.from_bytes(os.pread(file, 4, first), "little")
        count = page[_VALUES]  # missing ones are counted, and not stored
        if at - first != 4 * count:
            return None
        places.append((first, count))
    return places


def _read(path: Path, places: list[_Place], width: int) -> Iterator[np.ndarray]:
    most = max((count for _, count in places), default=0)
    numbers = np.empty(most + width, "<f4")
    held = 0  # numbers of a vector that the last page began
    with open(path, "rb", buffering=0) as data:
        for first, count in places:
            stop = held + count
            data.seek(first)
            if data.readinto(numbers[held:stop].view(np.uint8).data) != 4 * count:
                raise ValueError("ends within a page")
            rows = stop // width
            yield numbers[: rows * width].reshape(rows, width)
            held = stop - rows * width
            numbers[:held] = numbers[rows * width : stop]


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


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
        shift += 7
