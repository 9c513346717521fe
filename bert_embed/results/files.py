"""Files of a run: their formats, a row each, and how the rows of one are read.

Vectors are read whatever they are stored as, with the columns beside them.
"""

import math
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bert_embed.base.arrays import SameValues, splits_of
from bert_embed.base.environment import missing
from bert_embed.base.errors import InputError, StorageError
from bert_embed.models.heads.head import Kind, Settings
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.columns import (
    Columns,
    WantedColumns,
    count_parquet,
    decoded,
    open_parquet,
    read_as_decimals,
    read_parquet,
    write_loadable,
    write_parquet,
)
from bert_embed.results.json_lines import count_lines, read_lines, write_jsonl
from bert_embed.results.names import parse_name
from bert_embed.results.tf_example import count_tfrecord, read_tfrecord, write_tfrecord
from bert_embed.storage.files import open_raw

VECTORS, EXAMPLES = "vectors", "examples"  # what a run writes


@dataclass(frozen=True)
class OutputFormat:
    """A format of a run's files."""

    name: str  # of the setting `output_format`
    suffix: str  # of its files
    count: Callable[[BinaryIO], int]  # the rows of a file; ValueError if it is damaged
    # Writes vectors of a kind, from a table with the columns of `encoded`; None: no vectors
    write: Callable[[BinaryIO, pa.Table, Kind, Settings], object] | None = None
    # Yields the columns of some rows at a time; `wanted.stored` are those of the vectors
    read: Callable[[Any, WantedColumns], Iterator[Columns]] | None = None
    # For the estimate of the output's size, by the number type
    bytes_a_number: Mapping[str, float] = field(default_factory=dict)
    bytes_a_row: int = 60  # beside its vector: id, counts, hash
    bytes_a_token: int = 0
    holds: str = VECTORS
    nested: bool = True  # whether it holds lists of vectors
    has_extra: bool = True  # whether it holds the extra columns of the input
    loads: bool = False  # whether the files are loaded into a BigQuery table, as FLOAT64
    decimals: bool = False  # whether floating numbers are decimals, which read back as float32
    requires: str = ""  # the package that reading it takes
    title: str = ""  # what people call its files, in that message

    def fits(self, kind: Kind) -> bool:
        """Whether it holds vectors of a kind."""
        return self.nested or (kind.by_row and not kind.by_token)

    def writer(
        self, table: pa.Table, kind: Kind, settings: Settings
    ) -> Callable[[BinaryIO], object]:
        """Returns what writes a table of vectors to a file; InputError if it cannot hold them."""
        write = self.write
        if write is None or not self.fits(kind):
            raise InputError(f"{self.name} files cannot hold vectors of {kind.name}")
        return lambda file: write(file, table, kind, settings)

    def size(self, rows: int, tokens: int, numbers: int, plain: int, dtype: str) -> int:
        """Estimates the bytes of so many rows and numbers, `plain` ones as float32."""
        typed = self.bytes_a_number.get(dtype, 0)
        wide = self.bytes_a_number.get("float32", 0)
        of_rows = rows * self.bytes_a_row + tokens * self.bytes_a_token
        return of_rows + math.ceil(numbers * typed) + math.ceil(plain * wide)


FORMATS: dict[str, OutputFormat] = {}  # by name
VECTOR_FORMATS: dict[str, OutputFormat] = {}  # those that hold vectors


def register_format(output_format: OutputFormat) -> None:
    """Adds a format: what writes, reads, checks, sizes or loads files knows it."""
    FORMATS[output_format.name] = output_format
    if output_format.holds == VECTORS:
        VECTOR_FORMATS[output_format.name] = output_format


_BINARY = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "ubinary": 1 / 8}
_DECIMALS = {"float32": 13, "float16": 13, "bfloat16": 13, "int8": 5, "ubinary": 4 / 8}
for _format in (
    OutputFormat("parquet", ".parquet", count_parquet, write_parquet, read_parquet, _BINARY),
    OutputFormat(
        *("jsonl", ".jsonl", count_lines, write_jsonl, read_lines, _DECIMALS), decimals=True
    ),
    OutputFormat(
        *("tfrecord", ".tfrecord", count_tfrecord, write_tfrecord, read_tfrecord, _BINARY),
        nested=False,
        has_extra=False,
        requires="tensorflow",
        title="TFRecord",
    ),
    OutputFormat(
        *("bigquery", ".parquet", count_parquet, write_loadable, read_parquet, _BINARY), loads=True
    ),
    OutputFormat(
        *("examples", ".tfrecord", count_tfrecord),
        bytes_a_row=350,
        bytes_a_token=8,
        holds=EXAMPLES,
        has_extra=False,
    ),
):
    register_format(_format)


def suffixes(holds: str = VECTORS) -> tuple[str, ...]:
    """Returns the suffixes of files of vectors, or of examples."""
    return tuple(dict.fromkeys(one.suffix for one in FORMATS.values() if one.holds == holds))


def format_of(name: str) -> OutputFormat:
    """Returns the format of a file of vectors; ValueError if no format has its suffix."""
    for one in FORMATS.values():
        if name.endswith(one.suffix):
            return one
    raise ValueError(f"{name} is no file of vectors")


def holds_vectors(name: str) -> bool:
    """Returns whether a name is that of a file of vectors."""
    parsed = parse_name(name)
    return parsed is not None and parsed.ending in suffixes()


BATCH_ROWS = 1024  # few enough that their vectors stay in the processor's cache
_DELETED_ROWS = 1 << 16
_UNIT_DOCUMENTS = 64  # whose units are a batch; each has a hundred or so
# What damaged bytes make Arrow, orjson, zlib and NumPy raise. Arrow's errors of a file's contents
# are OSErrors, too, without the number that an error of the system has.
_DAMAGE = (
    *(ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError),
    *(pa.ArrowException, zlib.error),
)


@dataclass(frozen=True)
class Rows:
    """Some rows of a run's vectors.

    `vectors` are float32 `[rows, width]`, decoded: the layers of a stack are side by side, the bits
    of ubinary are 1 and -1, a missing vector is NaN; width 0 where none were read. Of the kinds
    sparse and multi they are `SparseVectors` and `MultiVectors`. `columns` has as many rows: `id`;
    `window` or `chunk`, or `position`; `start`, `stop`; `text`, `token` or `word`; the extra
    columns. Only those that the run wrote.
    """

    vectors: Any
    columns: pa.Table
    others: Mapping[str, Any] = field(default_factory=dict)  # the rows' vectors of other kinds

    def __len__(self) -> int:
        return len(self.vectors)

    def slice(self, start: int, stop: int | None = None) -> "Rows":
        """Returns the rows from `start` on, before `stop`."""
        stop = len(self) if stop is None else min(stop, len(self))
        others = {kind: vectors[start:stop] for kind, vectors in self.others.items()}
        return Rows(self.vectors[start:stop], self.columns.slice(start, stop - start), others)

    def take(self, rows: np.ndarray) -> "Rows":
        """Returns some rows by their numbers, int64 `[rows]`."""
        others = {kind: vectors[rows] for kind, vectors in self.others.items()}
        return Rows(self.vectors[rows], self.columns.take(rows), others)


@dataclass(frozen=True, eq=False)
class DocumentUnits(SameValues):
    """The vectors of a document's tokens or words.

    Attributes:
        id: The document's id, string or integer as in the input.
        texts: The tokens or words.
        starts: int32 `[units]`, code points in the text, -1 for special tokens; None where the
            file does not have them, as in JSON lines of tokens.
        stops: int32 `[units]`, likewise.
        vectors: float32 `[units, width]`, or `[units, layers, width]` for a stack; NaN for
            units without a vector, because they have no token.
    """

    id: str | int
    texts: list[str]
    starts: NDArray[np.int32] | None
    stops: NDArray[np.int32] | None
    vectors: NDArray[np.float32]


def row_batches(
    path: Path | str,
    settings: Mapping[str, Any],
    *,
    kind: str = "sentence",
    columns: Collection[str] | None = ("id",),
    vectors: bool = True,
    rows: int = BATCH_ROWS,
    limit: int | None = None,
    chosen: np.ndarray | None = None,
    types: Mapping[str, str] | None = None,
    check_pages: bool = True,
    file: BinaryIO | None = None,
) -> Iterator[Rows]:
    """Reads a file of `embeddings/`, `windows/`, `chunks/` or of what heads make in batches.

    Args:
        path: On this machine or in a store, of the suffix of a format, see
            `bert_embed.results.files.FORMATS`.
        settings: The run's settings of its vectors: `shape`, `output_dtype`, `id_type`, `heads`.
        kind: The kind of its vectors, one of `bert_embed.models.heads.kinds.KINDS`.
        columns: Those to read, as far as the file has them; None for all that say something of a
            document.
        vectors: Whether to decode the vectors.
        rows: Most rows of a batch; one of multi-vectors has fewer where documents are long.
        limit: How many rows to read; None for all.
        chosen: int64 in order, the numbers of the rows to return; None for all.
        types: Arrow types of the extra columns by name, as `run.json` spells them.
        check_pages: Whether to compare pages of Parquet with their checksums, which is not needed
            if the file's own checksum was compared.
        file: The file, if it is open already; it stays so.

    Raises:
        InputError: The file is damaged.
    """
    types = {"id": settings.get("id_type", "string"), **(types or {})}
    wanted = WantedColumns(
        *(KINDS[kind], settings, columns, vectors, min(rows, limit or rows), types, check_pages)
    )
    name, first = Path(path).name, 0
    check_package(name)
    opened = open_raw(os.fspath(path)) if file is None else nullcontext(file)
    with opened as stream, damage_named(_damaged(path)):
        stream.seek(0)
        for batch in _batches(stream, name, wanted, chosen):
            if limit is not None:
                batch = batch.slice(0, limit - first)
            yield batch
            first += len(batch)
            if first == limit:
                return


def read_units(path: Path, granularity: str, settings: Mapping[str, Any]) -> list[DocumentUnits]:
    """Reads a file of `tokens/` or `words/`, an item a document."""
    kind, types = KINDS[granularity], {"id": settings.get("id_type", "string")}
    wanted = WantedColumns(kind, settings, ("id",), True, _UNIT_DOCUMENTS, types)
    documents = []
    with open_raw(os.fspath(path)) as file, damage_named(_damaged(path)):
        for batch, decimals in _columns(file, path.name, wanted):
            lists = batch[kind.folder]
            units = lists.flatten()
            fields = {field.name: units.field(field.name) for field in units.type}
            columns: dict[str, Any] = {
                side: fields[side].to_numpy() for side in ("start", "stop") if side in fields
            }
            columns[kind.name] = fields[kind.name].to_pylist()
            vectors = own_memory(decoded(kind, fields, decimals))
            stacks = vectors.reshape(-1, *settings["token_shape"])
            splits = splits_of(lists.value_lengths().to_numpy()).tolist()
            for document, (first, last) in zip(
                batch["id"].to_pylist(), pairwise(splits), strict=True
            ):
                cut = {name: column[first:last] for name, column in columns.items()}
                places = cut.get("start"), cut.get("stop")
                one = DocumentUnits(document, cut[granularity], *places, stacks[first:last])
                documents.append(one)
    return documents


def own_memory(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns vectors that can be written, not in Arrow's memory."""
    return np.require(vectors, requirements="W")


def deleted_batches(path: str, file: BinaryIO | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the ids that `write_deleted` wrote, some rows at a time; of a `file` that is open.

    Raises:
        InputError: The file is damaged.
    """
    opened = open_raw(path) if file is None else nullcontext(file)
    with opened as stream, damage_named(_damaged(path)), open_parquet(stream) as parquet:
        for batch in parquet.iter_batches(_DELETED_ROWS, use_threads=False):
            batch.schema.field("id")
            yield batch


@contextmanager
def damage_named(message: str, *settings: str) -> Iterator[None]:
    """Raises InputError, which names a file, where its bytes are not what a run wrote."""
    try:
        yield
    except StorageError:
        raise
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # no permission, a stale handle, too many open files: the bytes may be whole
        raise InputError(message, *settings) from error


def _damaged(path: Path | str) -> str:
    return f"{path} is damaged: `bert-embed verify --repair` writes a file of a run again"


def _batches(
    file: BinaryIO, name: str, wanted: WantedColumns, chosen: np.ndarray | None
) -> Iterator[Rows]:
    first = 0
    for columns, settings in _columns(file, name, wanted):
        if chosen is not None:  # before they are decoded, which takes longer than to read them
            if not columns:
                raise InputError("it has none of the columns")
            stop = first + len(next(iter(columns.values())))
            inside = chosen[slice(*np.searchsorted(chosen, [first, stop]))] - first
            first = stop
            if not len(inside):
                continue
            columns = {name: values.take(pa.array(inside)) for name, values in columns.items()}
        others = {column: values for column, values in columns.items() if wanted.has(column)}
        table = pa.table(others)
        vectors = np.empty((table.num_rows, 0), np.float32)
        if wanted.vectors:
            vectors = decoded(wanted.kind, columns, settings)
        if others and len(vectors) != table.num_rows:
            raise InputError(f"{len(vectors)} vectors of {table.num_rows} rows")
        yield Rows(vectors, table)


def check_package(name: str) -> None:
    """InputError where the package that reads a file is missing, which is no damage."""
    for one in FORMATS.values():
        if one.requires and name.endswith(one.suffix) and find_spec(one.requires) is None:
            raise InputError(missing(f"reading {one.title} files", one.requires))


def _columns(
    file: BinaryIO, name: str, wanted: WantedColumns
) -> Iterator[tuple[Columns, Mapping[str, Any]]]:
    """The columns of some rows at a time, and the settings that their vectors are decoded by."""
    output_format = format_of(name)
    if output_format.read is None:
        raise InputError(f"{name} holds no vectors")
    if output_format.decimals:
        wanted = read_as_decimals(wanted)
    for columns in output_format.read(file, wanted):
        yield columns, wanted.settings
