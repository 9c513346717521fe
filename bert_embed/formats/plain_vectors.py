"""Reads stored vectors from Parquet without Arrow, where no number of them is missing.

Arrow decodes two levels for each number of a list: many times the work of reading the numbers.
"""

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_embed.formats.number_types import stored_type, stored_width, unscaled
from bert_embed.formats.parquet_pages import Page, column_pages, dictionary_places

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "embedding.list.element"
_BLOCK = 1 << 17  # numbers at a time: so few stay in the processor's cache


def plain_vectors(
    path: Path, file: "pa.parquet.ParquetFile", dtype: str, width: int
) -> Iterator[np.ndarray] | None:
    """Returns the vectors of a file, some at a time; None if Arrow has to decode them.

    It has to if they are compressed, of another type, coded by other means than a run's files, or
    some are null.

    Args:
        path: The file.
        file: The same, open.
        dtype: Output type.
        width: Numbers of a vector.

    Returns:
        float32 `[rows, width]` each, valid until the next one is requested; int8 before it is
        multiplied by its scales.
    """
    import pyarrow as pa

    stored, size = stored_type(dtype), stored_width(dtype, width)
    kind = file.schema_arrow.field("embedding").type
    if getattr(kind, "list_size", None) != size or kind.value_type != pa.from_numpy_dtype(stored):
        return None
    names = [file.schema.column(number).path for number in range(len(file.schema.names))]
    if _COLUMN not in names:
        return None
    with open(path, "rb", buffering=0) as data:
        pages = column_pages(data.fileno(), file, names.index(_COLUMN), stored)
    if pages is None or sum(page.count for page in pages) != file.metadata.num_rows * size:
        return None
    coded = [(page, page.dictionary) for page in pages if page.dictionary is not None]
    if coded:  # as are all pages of a column then
        return _decoded(path, coded, dtype, width)
    return _as_stored(path, pages, dtype, width)


def _as_stored(path: Path, pages: list[Page], dtype: str, width: int) -> Iterator[np.ndarray]:
    """Reads pages of values."""
    most, stored = max((page.count for page in pages), default=0), stored_type(dtype)
    numbers = np.empty(most + width, stored.newbyteorder("<"))
    held, block = 0, max(1, _BLOCK // width)  # numbers of a vector that the last page began
    with open(path, "rb", buffering=0) as data:
        for page in pages:
            stop = held + page.count
            data.seek(page.first)
            _read_whole(data, numbers[held:stop].view(np.uint8).data)
            rows = stop // width
            values = numbers[: rows * width].reshape(rows, width)
            for first in range(0, rows, block):
                yield unscaled(values[first : first + block], dtype, width)
            held = stop - rows * width
            numbers[:held] = numbers[rows * width : stop]


def _decoded(
    path: Path, pages: list[tuple[Page, np.ndarray]], dtype: str, width: int
) -> Iterator[np.ndarray]:
    """Reads pages of places in dictionaries, whose values become numbers only once."""
    size, each = stored_width(dtype, width), 8 if dtype == "ubinary" else 1
    block = max(1, _BLOCK // each)
    numbers = np.empty((block + size, each), np.float32)
    coded = memoryview(bytearray(max(page.size for page, _ in pages)))
    held = 0  # values of a vector that the last block began
    with open(path, "rb", buffering=0) as data:
        for page, dictionary in pages:
            data.seek(page.first)
            _read_whole(data, coded[: page.size])
            values = unscaled(dictionary[:, None], dtype, each)
            for places in dictionary_places(coded[: page.size], page.count):
                if places.max() >= len(values):
                    raise ValueError("a place is not in the dictionary")
                for first in range(0, len(places), block):
                    some = places[first : first + block]
                    stop = held + len(some)
                    # "raise" would write into a buffer first.
                    values.take(some, axis=0, out=numbers[held:stop], mode="wrap")
                    rows = stop // size
                    yield numbers[: rows * size].reshape(rows, size * each)[:, :width]
                    held = stop - rows * size
                    numbers[:held] = numbers[rows * size : stop]


def _read_whole(data: FileIO, target: memoryview) -> None:
    if data.readinto(target) != len(target):
        raise ValueError("ends within a page")
