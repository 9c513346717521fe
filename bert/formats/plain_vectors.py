"""Reads stored vectors from Parquet without Arrow, where no number of them is missing.

Arrow decodes two levels for each number of a list: many times the work of reading the numbers.
"""

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert.formats.number_types import restored, stored_type, stored_width
from bert.formats.parquet_pages import Page, column_pages, dictionary_places

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "embedding.list.element"


def plain_dtype(dtype: str) -> str:
    """Returns the output type of what `plain_vectors` yields of an output type.

    It gives bfloat16 as float32: to change a dictionary is less work than to change all numbers.
    """
    return "float32" if dtype == "bfloat16" else dtype


def plain_vectors(
    path: Path, file: "pa.parquet.ParquetFile", dtype: str, width: int
) -> Iterator[np.ndarray] | None:
    """Returns the vectors of a file, a page at a time; None if Arrow has to decode them.

    It has to if they are compressed, of another type, coded by other means than a run's files, or
    some are null.

    Args:
        path: The file.
        file: The same, open.
        dtype: Output type.
        width: Numbers of a vector.

    Returns:
        Values as `restored` takes them of `plain_dtype`, `[rows, stored width]` each, valid until
        the next ones are requested.
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
    return _read(path, pages, dtype, size)


def _read(path: Path, pages: list[Page], dtype: str, size: int) -> Iterator[np.ndarray]:
    most = max((page.count for page in pages), default=0)
    numbers = np.empty(most + size, stored_type(plain_dtype(dtype)).newbyteorder("<"))
    sizes = (page.size for page in pages if page.dictionary is not None)
    coded = memoryview(bytearray(max(sizes, default=0)))
    held = 0  # numbers of a vector that the last page began
    with open(path, "rb", buffering=0) as data:
        for page in pages:
            stop = held + page.count
            data.seek(page.first)
            if page.dictionary is None:
                _read_whole(data, numbers[held:stop].view(np.uint8).data)
            else:
                _read_whole(data, coded[: page.size])
                values = page.dictionary
                if dtype != plain_dtype(dtype):
                    values = restored(values, None, dtype, size)
                for places in dictionary_places(coded[: page.size], page.count):
                    numbers[held : held + len(places)] = _at(values, places)
                    held += len(places)
            rows = stop // size
            yield numbers[: rows * size].reshape(rows, size)
            held = stop - rows * size
            numbers[:held] = numbers[rows * size : stop]


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Takes values, by Arrow in a third of NumPy's time; IndexError if there is no such place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if places.max(initial=0) >= len(values):
        raise IndexError(f"place {places.max()} of {len(values)}")
    return pc.take(pa.array(values), pa.array(places), boundscheck=False).to_numpy()


def _read_whole(data: FileIO, target: memoryview) -> None:
    if data.readinto(target) != len(target):
        raise ValueError("ends within a page")
