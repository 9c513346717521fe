"""Reads the first rows of a file of sentence vectors, without reading the rest of it."""

import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np
import orjson

from bert_embed.formats.number_types import output_dtype
from bert_embed.formats.vector_coding import Coding, damage_named, decoded_examples

_BATCH = 256  # rows of Parquet at a time: whole texts are in memory until they are cut
_BUFFER = 1 << 20  # bytes of a file at a time
_NUMBERS = ("embedding", "scale")
_IN_EXAMPLES: dict[str, type] = {"id": bytes, "text": bytes, "start": int, "stop": int}


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
    coding = Coding(output_dtype(settings), math.prod(settings["shape"]))
    read = _from_parquet
    if ".tfrecord" in name:
        read = _from_records
    elif name.endswith(".jsonl"):
        read = _from_lines
    with damage_named(name):
        found = list(read(file, name, coding, rows, columns))
        vectors = [each.vectors for each in found]
        joined = FirstRows(
            np.concatenate(vectors) if vectors else np.empty((0, coding.width), "f4")
        )
        for column in found[0].columns if found else ():
            values = chain.from_iterable(each.columns[column] for each in found)
            joined.columns[column] = [_cut(value, most_letters) for value in values]
    return joined


def _cut(value: Any, most_letters: int) -> Any:
    return value[:most_letters] if isinstance(value, str) else value


def _from_parquet(
    file: BinaryIO, name: str, coding: Coding, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file, buffer_size=_BUFFER, page_checksum_verification=True) as table:
        there = [each for each in (*_NUMBERS, *columns) if each in table.schema_arrow.names]
        for batch in table.iter_batches(min(rows, _BATCH), columns=there, use_threads=False):
            some = batch.slice(0, rows)
            scale = some["scale"] if "scale" in there else None
            others = {each: some[each].to_pylist() for each in there if each not in _NUMBERS}
            yield FirstRows(coding.of_column(some["embedding"], scale), others)
            rows -= len(some)
            if not rows:
                return


def _from_lines(
    file: BinaryIO, name: str, coding: Coding, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    lines = [orjson.loads(line) for line in islice(file, rows)]
    if not lines:
        return
    scales = [line.get("scale") for line in lines]
    others = {each: [line[each] for line in lines] for each in columns if each in lines[0]}
    yield FirstRows(coding.of_lists([line["embedding"] for line in lines], scales), others)


def _from_records(
    file: BinaryIO, name: str, coding: Coding, rows: int, columns: Sequence[str]
) -> Iterator[FirstRows]:
    from bert_embed.formats.tfrecord import unframed

    opened: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    pieces = unframed(iter(lambda: opened.read(_BUFFER), b""))
    records = [each.data for each in islice(chain.from_iterable(pieces), rows)]
    kinds = {each: kind for each, kind in _IN_EXAMPLES.items() if each in columns}
    vectors, found = decoded_examples(records, coding, kinds)
    others = {}
    for each, kept in found.items():
        if len(kept) == len(records):
            others[each] = [one.decode() if kinds[each] is bytes else one for one in kept.tolist()]
    yield FirstRows(vectors, others)
