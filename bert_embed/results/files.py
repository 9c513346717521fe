"""Reads the rows of one file of a run: vectors, whatever they are stored as, and columns."""

import math
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bert_embed.base.arrays import splits_of
from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError
from bert_embed.results.kinds import KINDS, Kind
from bert_embed.results.names import PIECES


def open_parquet(
    source: BinaryIO | str | os.PathLike[str],
    buffer_size: int = 0,
    check_pages: bool = True,
    metadata: pq.FileMetaData | None = None,
    read_dictionary: Sequence[str] | None = None,
) -> pq.ParquetFile:
    """Opens a file; ArrowInvalid where its footer counts the same rows differently.

    pyarrow reads no more rows than the footer, or a row group, counts, and reports nothing.
    `metadata` is the footer, if it was read. A value of the leaf columns `read_dictionary`, paths
    of strings or bytes, is in memory once, however often a dictionary of the file repeats it; other
    values take four times as long to read so.
    """
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        buffer_size=buffer_size,
        page_checksum_verification=check_pages,
        read_dictionary=read_dictionary,
    )
    if metadata is None:
        _check_counts(file.metadata)
    return file


def _check_counts(footer: pq.FileMetaData) -> None:
    flat = [
        number
        for number in range(footer.num_columns)
        if footer.schema.column(number).max_repetition_level == 0
    ]
    rows = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        rows += group.num_rows
        for column in map(group.column, flat):
            if column.num_values != group.num_rows:
                raise pa.ArrowInvalid(
                    f"{group.num_rows:,} rows in a row group, {column.num_values:,} values in its "
                    f"column {column.path_in_schema}"
                )
    if rows != footer.num_rows:
        raise pa.ArrowInvalid(f"{footer.num_rows:,} rows in its footer, {rows:,} in its row groups")


METADATA_KEY = "bert_embed"  # of the settings of vectors in a Parquet footer or a table
BATCH_ROWS = 1024  # few enough that their vectors stay in the processor's cache
POSITION = "position"  # the column with the number of a token, word or span in its document
_BUFFER = 1 << 20  # bytes of a file, or of a column, that are read at a time
_UNIT_DOCUMENTS = 64  # whose units are a batch; each has a hundred or so
# A file of a run has about 128 MiB. A file that declares more than this is not read, because a few
# bytes of Parquet can declare any number of rows.
_MOST_BYTES = 8 << 30
_MULTI_BYTES = 4 << 20  # of multi-vectors in a batch as float32, about
# What a run notes of each row for itself; it is of no use beside a vector elsewhere.
_FACTS = ("num_tokens", "num_tokens_full", "truncated", "text_hash")
_INTEGERS = (*PIECES, "start", "stop", "num_tokens_full")
# What damaged bytes make Arrow, orjson, zlib and NumPy raise. Arrow's errors of a file's contents
# are OSErrors, too, without the number that an error of the system has.
_DAMAGE = (ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError, zlib.error)
_Units = tuple[list[Any], np.ndarray, dict[str, Any], np.ndarray]  # see `_units`


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


@dataclass(frozen=True)
class DocumentUnits:
    """The vectors of a document's tokens, words or spans.

    Attributes:
        id: The document's id, string or integer as in the input.
        texts: The tokens or words; None for spans, whose texts are in no file.
        starts: int32 `[units]`, code points in the text, -1 for special tokens; None where the
            file does not have them, as in JSON lines of tokens.
        stops: int32 `[units]`, likewise.
        vectors: float32 `[units, width]`, or `[units, layers, width]` for a stack; NaN for
            units without a vector, because they have no token.
    """

    id: str | int
    texts: list[str] | None
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
        path: `.parquet`, `.jsonl` or `.tfrecord`.
        settings: The run's settings of its vectors: `shape`, `output_dtype`, `id_type`, `heads`.
        kind: The kind of its vectors, one of `bert_embed.results.kinds.KINDS`.
        columns: Those to read, as far as the file has them; None for all that say something of a
            document.
        vectors: Whether to decode the vectors.
        rows: Most rows of a batch; one of multi-vectors has fewer where documents are long.
        limit: How many rows to read; None for all.
        chosen: int64 in order, the numbers of the rows to return; None for all.
        types: Arrow types of the extra columns by name, as `run.json` spells them.
        check_pages: Whether to compare pages of Parquet with their checksums, which is not needed
            if the file's own checksum was compared.
        file: The file, if it is open, seekable.

    Raises:
        InputError: The file is damaged.
    """
    types = {"id": settings.get("id_type", "string"), **(types or {})}
    wanted = _Wanted(KINDS[kind], settings, columns, vectors, min(rows, limit or rows), types)
    name, first = Path(path).name, 0
    if name.endswith(".tfrecord"):
        with requires("reading TFRecord files", "tensorflow"):
            import tensorflow  # noqa: F401 - a missing package is no damage
    with _damage_named(path):
        if name.endswith(".parquet"):
            batches = _parquet_rows(file or path, wanted, check_pages)
        else:
            read = _example_rows if name.endswith(".tfrecord") else _line_rows
            batches = read(file or path, name, wanted)
        for batch in batches:
            if limit is not None:
                batch = batch.slice(0, limit - first)
            stop = first + len(batch)
            if chosen is None:
                yield batch
            elif len(inside := chosen[slice(*np.searchsorted(chosen, [first, stop]))]):
                yield batch.take(inside - first)
            first = stop
            if first == limit:
                return


def read_units(path: Path, granularity: str, settings: Mapping[str, Any]) -> list[DocumentUnits]:
    """Reads a file of `tokens/`, `words/` or `spans/`, an item a document."""
    documents = []
    for ids, splits, columns, vectors in _units(path, granularity, settings):
        stacks = vectors.reshape(-1, *settings["token_shape"])
        for document, (first, last) in zip(ids, pairwise(splits.tolist()), strict=True):
            cut = {name: column[first:last] for name, column in columns.items()}
            texts, starts, stops = (cut.get(name) for name in (granularity, "start", "stop"))
            documents.append(DocumentUnits(document, texts, starts, stops, stacks[first:last]))
    return documents


def unit_batches(path: Path, granularity: str, settings: Mapping[str, Any]) -> Iterator[Rows]:
    """Reads what `read_units` does, a row for each token, word or span with a vector."""
    id_type = pa.type_for_alias(settings.get("id_type", "string"))
    for ids, splits, columns, vectors in _units(path, granularity, settings):
        lengths = np.diff(splits)
        positions = np.arange(len(vectors)) - np.repeat(splits[:-1], lengths)
        table = {
            "id": pa.array(ids, id_type).take(pa.array(np.repeat(np.arange(len(ids)), lengths))),
            POSITION: pa.array(positions, pa.int32()),
        }
        present = np.flatnonzero(~np.isnan(vectors[:, 0]))
        if len(present):
            yield Rows(vectors, pa.table(table | columns)).take(present)


@contextmanager
def _damage_named(path: Path | str) -> Iterator[None]:
    """Raises InputError, which names the file, where its bytes are not what a run wrote."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # no permission, a stale handle, too many open files: the bytes may be whole
        raise InputError(
            f"{path} is damaged: `bert-embed verify --repair` writes a file of a run again"
        ) from error


@dataclass(frozen=True)
class _Wanted:
    """What to read of each row, and how many rows at a time."""

    kind: Kind
    settings: Mapping[str, Any]
    columns: Collection[str] | None
    vectors: bool
    rows: int
    types: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether a column is wanted that is no part of the vectors."""
        if self.columns is None:
            return name not in (*self.kind.names(self.settings), *_FACTS)
        return name in self.columns


def _opened(source: BinaryIO | Path | str) -> Any:
    return open(source, "rb") if isinstance(source, str | Path) else nullcontext(source)


def _parquet_rows(
    source: BinaryIO | Path | str, wanted: _Wanted, check_pages: bool
) -> Iterator[Rows]:
    with open_parquet(source, _BUFFER, check_pages) as file:
        _check_size(file)
        held, names_of = file.schema_arrow.names, wanted.kind.names(wanted.settings)
        structs = None if names_of[0] in held else next(iter(wanted.kind.loaded(wanted.settings)))
        names = [name for name in held if wanted.has(name) and name != structs]
        vectors_in = [structs] if structs else names_of
        stored = [name for name in vectors_in if wanted.vectors and name in held]
        rows = wanted.rows
        if wanted.vectors and wanted.kind.by_token:
            numbers_in = f"{structs}.list.element.{names_of[0]}" if structs else names_of[0]
            rows = min(rows, _multi_rows(file.metadata, numbers_in))
        for batch in file.iter_batches(rows, columns=[*stored, *names], use_threads=False):
            vectors = np.empty((len(batch), 0), np.float32)
            if wanted.vectors:
                columns = {name: batch[name] for name in stored}
                if structs:
                    columns = _lists(columns[structs], names_of)
                vectors = wanted.kind.of_columns(columns, wanted.settings)
            yield Rows(vectors, pa.table({name: batch[name] for name in names}))


def _lists(structs: pa.ListArray, names: Sequence[str]) -> dict[str, pa.ListArray]:
    """Lists of structs as a list of each of their fields; `names` are what they are called."""
    lengths = np.from_dlpack(structs.value_lengths().fill_null(0))
    splits = pa.array(splits_of(lengths), pa.int32())
    fields = structs.flatten().flatten()
    return {
        name: pa.ListArray.from_arrays(splits, field)
        for name, field in zip(names, fields, strict=False)
    }


def _multi_rows(footer: pq.FileMetaData, numbers_in: str) -> int:
    """How many rows of multi-vectors fill a batch, by the mean of the column of their numbers."""
    numbers = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        numbers += sum(
            column.num_values for column in columns if column.path_in_schema.startswith(numbers_in)
        )
    return max(1, _MULTI_BYTES // 4 * footer.num_rows // max(1, numbers))


def _check_size(file: pq.ParquetFile) -> None:
    """Raises InputError if a footer declares far too many bytes or rows."""
    footer, schema = file.metadata, file.schema_arrow
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    kind = schema.field("embedding").type if "embedding" in schema.names else None
    width = getattr(kind, "list_size", 0)
    size = max(sum(group.total_byte_size for group in groups), footer.num_rows * (16 + 4 * width))
    if size > _MOST_BYTES:
        raise InputError(f"declares {size:,} bytes")


def _json_lines(file: BinaryIO) -> Iterator[dict[str, Any]]:
    size = 0
    for line in file:
        size += len(line)
        if size > _MOST_BYTES:
            raise InputError("too large to be a file of a run")
        yield orjson.loads(line)


def _line_rows(source: BinaryIO | Path | str, name: str, wanted: _Wanted) -> Iterator[Rows]:
    with _opened(source) as file:
        lines = _json_lines(file)
        while batch := list(islice(lines, wanted.rows)):
            vectors = np.empty((len(batch), 0), np.float32)
            if wanted.vectors:
                vectors = wanted.kind.of_lists(batch, wanted.settings)
            columns = {
                name: pa.array([row[name] for row in batch], _type_in_json(name, wanted.types))
                for name in batch[0]
                if wanted.has(name)
            }
            yield Rows(vectors, pa.table(columns))


def _type_in_json(name: str, types: Mapping[str, str]) -> pa.DataType:
    """The type of a column of JSON lines, which have times and decimals as text."""
    if name in _INTEGERS:
        return pa.int32()
    declared = types.get(name, "string")
    inner = declared.removeprefix("list<item: ").removesuffix(">")
    in_json = inner in ("bool", "float", "double", "halffloat") or "int" in inner
    kind = pa.type_for_alias(inner) if in_json else pa.string()
    return kind if inner == declared else pa.list_(kind)


def _example_rows(source: BinaryIO | Path | str, name: str, wanted: _Wanted) -> Iterator[Rows]:
    from bert_embed.results.tf_example import decode_records, unframed

    kinds: dict[str, type] = {"id": bytes, "text": bytes, **dict.fromkeys(_INTEGERS, int)}
    kinds = {feature: kind for feature, kind in kinds.items() if wanted.has(feature)}
    numbers = wanted.kind.features(wanted.settings)
    with _opened(source) as file:
        records = chain.from_iterable(unframed(iter(lambda: file.read(_BUFFER), b"")))
        while batch := [record.data for record in islice(records, wanted.rows)]:
            whole = [record for record in batch if record is not None]
            features, readable = decode_records(whole, kinds | numbers)
            if len(readable) < len(batch):
                raise InputError("a record's checksum differs, or it is not a tf.train.Example")
            vectors = wanted.kind.of_features(features, wanted.settings)
            columns = {}
            for feature, kind in kinds.items():
                column = features[feature].values
                if len(column) and kind is int:
                    columns[feature] = pa.array(column, pa.int32())
                elif len(column):
                    columns[feature] = pa.array([text.decode() for text in column.tolist()])
            if "id" in columns:
                columns["id"] = columns["id"].cast(pa.type_for_alias(wanted.types["id"]))
            yield Rows(vectors, pa.table(columns))


def _units(path: Path, granularity: str, settings: Mapping[str, Any]) -> Iterator[_Units]:
    """Some documents' ids, splits `[documents + 1]`, columns, and float32 `[units, width]`."""
    with _damage_named(path):
        read = _unit_table if path.suffix == ".parquet" else _unit_lines
        yield from read(path, KINDS[granularity], settings)


def _unit_table(path: Path, kind: Kind, settings: Mapping[str, Any]) -> Iterator[_Units]:
    with open_parquet(path) as file:
        _check_size(file)
        table = file.read(columns=["id", kind.folder]).combine_chunks()
    for batch in table.to_batches(_UNIT_DOCUMENTS):
        lists = batch[kind.folder]
        units = lists.flatten()
        fields = {field.name: units.field(field.name) for field in units.type}
        columns: dict[str, Any] = {side: fields[side].to_numpy() for side in ("start", "stop")}
        if kind.name in fields:
            columns[kind.name] = fields[kind.name].to_pylist()
        splits = splits_of(lists.value_lengths().to_numpy())
        yield batch["id"].to_pylist(), splits, columns, kind.of_columns(fields, settings)


def _unit_lines(path: Path, kind: Kind, settings: Mapping[str, Any]) -> Iterator[_Units]:
    key = "features" if kind.name == "token" else kind.folder
    with path.open("rb") as file:
        lines = _json_lines(file)
        while batch := list(islice(lines, _UNIT_DOCUMENTS)):
            units = [unit for line in batch for unit in line[key]]
            columns: dict[str, Any] = {}
            if kind.name == "token":
                values = [[layer["values"] for layer in unit["layers"]] for unit in units]
                width = math.prod(kind.shape(settings))
                vectors = np.array(values, np.float32).reshape(-1, width)
            else:
                for side in ("start", "stop"):
                    columns[side] = np.array([unit[side] for unit in units], np.int32)
                vectors = kind.of_lists(units, settings)
            if kind.name != "span":
                columns[kind.name] = [unit[kind.name] for unit in units]
            splits = splits_of(np.array([len(line[key]) for line in batch], np.int64))
            yield [line["id"] for line in batch], splits, columns, vectors
