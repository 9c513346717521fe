"""Reads the rows of one file of a run, vectors and columns, in batches."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.formats.number_types import output_dtype
from bert_embed.formats.output_files import PIECES
from bert_embed.formats.result_files import DocumentUnits, read_units
from bert_embed.formats.vector_coding import (
    Coding,
    check_size,
    damage_named,
    example_columns,
    json_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1024
POSITION = "position"  # the column with the number of a token, word or span in its document
_BUFFER = 1 << 20  # bytes of a column read at a time
_VECTORS = ("embedding", "scale")
# What a run notes of each row for itself; it is of no use beside a vector elsewhere.
_FACTS = ("num_tokens", "num_tokens_full", "truncated", "text_hash")
_NUMBERS = (*PIECES, "start", "stop")


@dataclass(frozen=True)
class Rows:
    """Some rows of a run's vectors.

    Attributes:
        vectors: float32 `[rows, width]`, decoded; the bits of ubinary as 1 and -1.
        columns: Table of as many rows: `id`; `window` or `chunk`, or `position`; `start`, `stop`;
            `text`, `token` or `word`; the extra columns. Only those that the run wrote.
    """

    vectors: np.ndarray
    columns: "pa.Table"

    def __len__(self) -> int:
        return len(self.vectors)

    def slice(self, start: int, stop: int | None = None) -> "Rows":
        """Returns the rows from `start` on, before `stop`."""
        stop = len(self) if stop is None else stop
        return Rows(self.vectors[start:stop], self.columns.slice(start, stop - start))

    def take(self, rows: np.ndarray) -> "Rows":
        """Returns some rows by their numbers, int64 `[rows]`."""
        return Rows(self.vectors[rows], self.columns.take(rows))


def row_batches(
    path: Path, granularity: str, settings: Mapping[str, Any], extra: Mapping[str, str]
) -> Iterator[Rows]:
    """Reads a file of vectors in batches of at most `BATCH_ROWS`, but for long documents.

    Parquet and JSON lines of texts are read piece by piece, other files as a whole. Tokens, words
    and spans are a row each; those without a vector are left out.

    Args:
        path: `.parquet`, `.jsonl`, `.tfrecord` or `.tfrecord.gz`.
        granularity: `sentence`, `token`, `word` or `span`.
        settings: The run's settings of its vectors.
        extra: Arrow types of the extra columns by name, as `run.json` spells them.

    Raises:
        InputError: The file is damaged.
    """
    if granularity != "sentence":
        yield from _units(read_units(path, granularity, settings), granularity, settings)
        return
    coding = Coding(output_dtype(settings), math.prod(settings["shape"]))
    id_type = settings.get("id_type", "string")
    with damage_named(path):
        if path.suffix == ".parquet":
            yield from _parquet(path, coding)
        elif ".tfrecord" in path.name:
            yield from _examples(path, coding, id_type)
        else:
            yield from _lines(path, coding, {"id": id_type, **extra})


def _parquet(path: Path, coding: Coding) -> Iterator[Rows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, buffer_size=_BUFFER, page_checksum_verification=True) as file:
        check_size(file)
        names = [name for name in file.schema_arrow.names if name not in _FACTS]
        for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
            scale = batch["scale"] if "scale" in names else None
            columns = {name: batch[name] for name in names if name not in _VECTORS}
            yield Rows(coding.of_column(batch["embedding"], scale), pa.table(columns))


def _lines(path: Path, coding: Coding, types: Mapping[str, str]) -> Iterator[Rows]:
    import pyarrow as pa

    lines = json_lines(path)
    while some := list(islice(lines, BATCH_ROWS)):
        vectors = coding.of_lists(
            [row["embedding"] for row in some], [row.get("scale") for row in some]
        )
        names = [name for name in some[0] if name not in (*_VECTORS, *_FACTS)]
        columns = {
            name: pa.array([row[name] for row in some], _type_in_json(name, types))
            for name in names
        }
        yield Rows(vectors, pa.table(columns))


def _type_in_json(name: str, types: Mapping[str, str]) -> "pa.DataType":
    """The type of a column of JSON lines, which have times and decimals as text."""
    import pyarrow as pa

    if name in _NUMBERS:
        return pa.int32()
    declared = types.get(name, "string")
    inner = declared.removeprefix("list<item: ").removesuffix(">")
    in_json = inner in ("bool", "float", "double", "halffloat") or "int" in inner
    kind = pa.type_for_alias(inner) if in_json else pa.string()
    return kind if inner == declared else pa.list_(kind)


def _examples(path: Path, coding: Coding, id_type: str) -> Iterator[Rows]:
    import pyarrow as pa

    kinds: dict[str, type] = {"id": bytes, "text": bytes, **dict.fromkeys(_NUMBERS, int)}
    vectors, found = example_columns(path, coding, kinds)
    columns = {}
    for name in ("id", *_NUMBERS, "text"):
        values = found[name]
        if len(values) == 0:
            continue
        if kinds[name] is int:
            columns[name] = pa.array(values, pa.int32())
        else:
            columns[name] = pa.array([each.decode() for each in values.tolist()], pa.string())
    columns["id"] = columns["id"].cast(pa.type_for_alias(id_type))
    whole = Rows(vectors, pa.table(columns))
    for start in range(0, len(whole), BATCH_ROWS):
        yield whole.slice(start, min(start + BATCH_ROWS, len(whole)))


def _units(
    documents: Iterable[DocumentUnits], granularity: str, settings: Mapping[str, Any]
) -> Iterator[Rows]:
    id_type = settings.get("id_type", "string")
    remaining = iter(documents)
    while some := list(islice(remaining, 64)):  # each with a hundred units or so
        batch = _unit_rows(some, granularity, id_type)
        if len(batch):
            yield batch


def _unit_rows(documents: list[DocumentUnits], granularity: str, id_type: str) -> Rows:
    import pyarrow as pa

    ids: list[Any] = []
    lists: dict[str, list[Any]] = {POSITION: [], "start": [], "stop": [], granularity: []}
    vectors = []
    for each in documents:
        flat = each.vectors.reshape(len(each.vectors), math.prod(each.vectors.shape[1:]))
        present = np.flatnonzero(~np.isnan(flat[:, :1]).any(axis=1))
        vectors.append(flat[present])
        ids += [each.id] * len(present)
        lists[POSITION] += present.tolist()
        for name, values in (("start", each.starts), ("stop", each.stops)):
            lists[name] += [] if values is None else values[present].tolist()
        if each.texts is not None:
            lists[granularity] += [each.texts[row] for row in present.tolist()]
    columns: dict[str, Any] = {"id": pa.array(ids, pa.type_for_alias(id_type))}
    for name, column in lists.items():
        if len(column) == len(ids):
            columns[name] = pa.array(column, pa.string() if name == granularity else pa.int32())
    return Rows(np.concatenate(vectors), pa.table(columns))
