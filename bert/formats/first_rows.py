"""Reads the first rows of a file of sentence vectors, without reading the rest of it."""

import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np
import orjson

from bert.formats.number_types import (
    INTEGER_DTYPES,
    output_dtype,
    restored,
    stored_type,
    stored_width,
)
from bert.formats.vector_coding import damage_named
from storage.errors import InputError

_BATCH = 256  # rows of Parquet at a time: whole texts are in memory until they are cut
_BUFFER = 1 << 20  # bytes of a file at a time
_NUMBERS = ("embedding", "scale")


@dataclass
class FirstRows:
    """Some rows of a file of `embeddings/`, `windows/` or `chunks/`.

    Attributes:
        vectors: float32 `[rows, width]`; the layers of a stack are side by side.
        columns: The other columns by name, a value a row; texts are cut.
    """

    vectors: np.ndarray
    columns: dict[str, list[Any]] = field(default_factory=dict)


def first_rows(
    file: BinaryIO,
    name: str,
    settings: Mapping[str, Any],
    rows: int,
    columns: Sequence[str],
    most_letters: int,
) -> FirstRows:
    """Reads the first rows of a file.

    Args:
        file: The file, seekable.
        name: Its name, which says its format and stands in messages.
        settings: The run's settings of its vectors: `shape`, `output_dtype`.
        rows: How many rows to read at most.
        columns: Names of other columns; those that the file lacks are left out.
        most_letters: Where texts are cut.

    Raises:
        InputError: The file is damaged.
    """
    dtype, width = output_dtype(settings), math.prod(settings["shape"])
    read = _from_parquet
    if ".tfrecord" in name:
        read = _from_records
    elif name.endswith(".jsonl"):
        read = _from_lines
    with damage_named(name):
        found = list(read(file, name, dtype, width, rows, columns))
        vectors = [each.vectors for each in found]
        joined = FirstRows(np.concatenate(vectors) if vectors else np.empty((0, width), "f4"))
        for column in found[0].columns if found else ():
            values = chain.from_iterable(each.columns[column] for each in found)
            joined.columns[column] = [_cut(value, most_letters) for value in values]
    return joined


def _cut(value: Any, most_letters: int) -> Any:
    return value[:most_letters] if isinstance(value, str) else value


def _from_parquet(
    file: BinaryIO, name: str, dtype: str, width: int, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, buffer_size=_BUFFER, page_checksum_verification=True) as table:
        there = [each for each in (*_NUMBERS, *columns) if each in table.schema_arrow.names]
        for batch in table.iter_batches(min(rows, _BATCH), columns=there, use_threads=False):
            some = batch.slice(0, rows)
            # to_numpy would import pandas where it is installed: a third of a second.
            values = np.from_dlpack(some["embedding"].flatten())
            scale = np.from_dlpack(some["scale"]) if "scale" in there else None
            numbers = values.reshape(len(some), stored_width(dtype, width))
            others = {each: some[each].to_pylist() for each in there if each not in _NUMBERS}
            yield FirstRows(restored(numbers, scale, dtype, width), others)
            rows -= len(some)
            if not rows:
                return


def _from_lines(
    file: BinaryIO, name: str, dtype: str, width: int, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    lines = [orjson.loads(line) for line in islice(file, rows)]
    if not lines:
        return
    # JSON holds the integers of these types, and the numbers themselves of all others.
    coded = dtype if dtype in INTEGER_DTYPES else "float32"
    values = np.array([line["embedding"] for line in lines], stored_type(coded))
    scale = np.array([line["scale"] for line in lines], "f4") if "scale" in lines[0] else None
    others = {each: [line[each] for line in lines] for each in columns if each in lines[0]}
    yield FirstRows(restored(values, scale, coded, width), others)


def _from_records(
    file: BinaryIO, name: str, dtype: str, width: int, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    from bert.formats.tf_example import decode_records
    from bert.formats.tfrecord import unframed

    opened: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    pieces = unframed(iter(lambda: opened.read(_BUFFER), b""))
    records = [each.data for each in islice(chain.from_iterable(pieces), rows)]
    texts = [each for each in columns if each in ("id", "text")]
    places = [each for each in columns if each in ("start", "stop")]
    kinds: dict[str, type] = dict.fromkeys(texts, bytes) | dict.fromkeys(places, int)
    kinds |= {"scale": float, "embedding": float if dtype == "float32" else bytes}
    found, readable = decode_records([each or b"" for each in records], kinds)
    if len(readable) < len(records):
        raise InputError("a record is not a tf.train.Example, or its checksum differs")
    values = found["embedding"].values
    if dtype != "float32":
        little = stored_type(dtype).newbyteorder("<")
        values = np.frombuffer(b"".join(values.tolist()), little)
    scale = found["scale"].values if len(found["scale"].values) else None
    others: dict[str, list[Any]] = {}
    for each in texts + places:
        kept = found[each].values.tolist()
        if len(kept) == len(records):
            others[each] = [one.decode() if isinstance(one, bytes) else one for one in kept]
    numbers = values.reshape(len(records), stored_width(dtype, width))
    yield FirstRows(restored(numbers, scale, dtype, width), others)
