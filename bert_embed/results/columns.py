"""Turns vectors of a kind into Arrow columns as files store them, and back; Parquet files of them.

Those are also as BigQuery loads them, or of deleted ids.
"""

import io
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import EMBEDDING, PIECES, SCALE, Column, Kind, Settings, Type
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.names import output_dtype, restored, stored, stored_type, stored_width

if TYPE_CHECKING:
    import pyarrow.parquet as pq  # with the clients of all stores, which light commands do without

# What a run notes of each row for itself; it is of no use beside a vector elsewhere.
FACTS = ("num_tokens", "num_tokens_full", "truncated", "text_hash")
INTEGERS = (*PIECES, "start", "stop", "num_tokens_full")
Columns = dict[str, pa.Array]
_VECTOR = pa.list_(pa.float32())


@dataclass(frozen=True)
class WantedColumns:
    """What to read of each row, and how many rows at a time."""

    kind: Kind
    settings: Settings
    columns: Collection[str] | None  # None: all that say something of a document
    vectors: bool
    rows: int
    types: Mapping[str, str]  # Arrow's, of the extra columns and the id; else the id is text
    check_pages: bool = True

    def has(self, name: str) -> bool:
        """Whether a column is wanted that is no part of the vectors."""
        if self.columns is None:
            of_vectors = (*self.kind.names(self.settings), SCALE, self.kind.folder)
            return name not in (*of_vectors, *FACTS)
        return name in self.columns

    def takes(self, name: str) -> bool:
        """Whether a column is wanted, or one of the vectors."""
        of_vectors = self.stored if self.kind.by_row else (self.kind.folder,)
        return self.has(name) or (self.vectors and name in of_vectors)

    @property
    def stored(self) -> dict[str, Type]:
        """The columns of the vectors; none if they are not wanted."""
        return stored_types(self.kind, self.settings) if self.vectors else {}


def stored_types(kind: Kind, settings: Settings) -> dict[str, Type]:
    """Returns the types of the columns that vectors are read from, as files store them."""
    written, dtype = kind.types(settings), output_dtype(settings)
    types = {name: written[name] for name in kind.names(settings)}
    if kind.has_dtype:
        vectors = types[EMBEDDING]
        width = stored_width(dtype, vectors.width)
        types[EMBEDDING] = vectors._replace(numbers=stored_type(dtype).name, width=width)
        if dtype == "int8":
            types[SCALE] = Type("float32", vectors.ragged)
    return types


def arrow_type(described: Type) -> pa.DataType:
    """Returns Arrow's type of a column, whose lists may be null."""
    kind = pa.type_for_alias(described.numbers)
    for _ in range((described.width > 0) + described.ragged):
        kind = pa.list_(kind)
    return kind


def encoded(kind: Kind, vectors: Any, settings: Settings, loads: bool = False) -> Columns:
    """Returns the columns of vectors as `EmbeddingBlock` has them.

    Where BigQuery `loads` them: those of `loaded_types`, without null for a missing vector.
    """
    columns: Columns = {}
    splits = None
    for name, column in kind.columns(vectors, settings).items():
        splits = column.splits
        if kind.has_dtype and name == EMBEDDING:
            columns |= _dense(column, output_dtype(settings), is_null=not loads)
        elif isinstance(column.values, np.ndarray):
            text = pa.string() if column.values.dtype == object else None
            columns[name] = pa.array(column.values, text)
        else:
            columns[name] = column.values
    if not kind.by_row:
        structs = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        return {kind.folder: pa.LargeListArray.from_arrays(pa.array(splits, pa.int64()), structs)}
    if splits is None:
        return columns
    offsets = pa.array(splits, pa.int32())
    if loads and kind.structs:
        fields = [columns[name] for name in kind.structs]
        structs = pa.StructArray.from_arrays(fields, list(kind.structs.values()))
        columns = {kind.name: structs}
    return {name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()}


def _dense(column: Column, dtype: str, is_null: bool) -> Columns:
    """The vectors as lists, and scales; lists of fixed size cannot be null in Parquet.

    A missing vector `is_null`, or an empty list.
    """
    vectors, missing = column.values, column.missing
    coded = stored(vectors if missing is None else vectors[~missing], dtype)
    numbers, width = pa.array(coded.values.reshape(-1)), coded.values.shape[1]
    scale = coded.scale
    if missing is None:
        lists = pa.FixedSizeListArray.from_arrays(numbers, width)
    else:
        offsets = pa.array(np.append(0, np.cumsum(~missing) * width), pa.int64())
        mask = pa.array(missing) if is_null else None
        lists = pa.LargeListArray.from_arrays(offsets, numbers, mask=mask)
        if scale is not None:
            scale = np.zeros(len(missing), np.float32)
            scale[~missing] = coded.scale
    scales = {} if scale is None else {SCALE: pa.array(scale, mask=missing)}
    return {EMBEDDING: lists} | scales


def decoded(kind: Kind, columns: Mapping[str, Any], settings: Settings) -> Any:
    """Returns the vectors of columns that `stored_types` names."""
    types = {name: kind.types(settings)[name] for name in kind.names(settings)}
    parts = {}
    for name, described in types.items():
        values, splits, scale = columns[name], None, columns.get(SCALE)
        if described.ragged:
            splits = splits_of(_lengths(values))
            values, scale = values.flatten(), None if scale is None else scale.flatten()
        if kind.has_dtype and name == EMBEDDING:
            numbers = _restored(values, scale, output_dtype(settings), described.width)
        else:
            numbers = np.from_dlpack(values)
        parts[name] = Column(numbers, splits)
    return kind.of_columns(parts, settings)


def _lengths(lists: Any) -> np.ndarray:
    # to_numpy would import pandas where it is installed: a third of a second.
    lengths = lists.value_lengths()
    return np.from_dlpack(lengths.fill_null(0) if lengths.null_count else lengths)


def _restored(lists: Any, scale: Any, dtype: str, width: int) -> np.ndarray:
    """float32 `[rows, width]`, NaN for rows that are null."""
    present = _lengths(lists) > 0
    scales = None if scale is None else np.from_dlpack(scale.fill_null(np.nan))[present]
    rows = np.from_dlpack(lists.flatten()).reshape(int(present.sum()), stored_width(dtype, width))
    vectors = restored(rows, scales, dtype, width)
    if present.all():
        return vectors
    spread = np.full((len(present), width), np.nan, np.float32)
    spread[present] = vectors
    return spread


def loaded_types(kind: Kind, settings: Settings) -> dict[str, pa.DataType]:
    """Returns the columns of float32 vectors in BigQuery, which has no lists of lists."""
    types = kind.types(settings)
    values = {
        name: _VECTOR if one.width else pa.type_for_alias(one.numbers)
        for name, one in types.items()
    }
    if kind.structs:
        structs = {field: values[name] for name, field in kind.structs.items()}
        return {kind.name: pa.list_(pa.struct(structs))}
    return values if kind.by_row else {kind.folder: pa.list_(pa.struct(values))}


def lists_of(structs: pa.ListArray, names: Sequence[str]) -> Columns:
    """Lists of structs as a list of each of their fields; `names` are what they are called."""
    splits = pa.array(splits_of(_lengths(structs)), pa.int32())
    fields = structs.flatten().flatten()
    return {
        name: pa.ListArray.from_arrays(splits, field)
        for name, field in zip(names, fields, strict=False)
    }


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of fixed or any length."""
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as Python has them: instants of UTC, and no nanoseconds, which it lacks.

    Of a column with times that Python cannot hold, as of the year 10000, all are text.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us" if kind.unit == "ns" else kind.unit, kind.tz and "UTC")
    elif pa.types.is_time64(kind):
        kind = pa.time64("us")
    try:
        return column.cast(kind, safe=False).to_pylist()
    except (OverflowError, ValueError):
        return column.cast(pa.string()).to_pylist()


def typed_ids(table: pa.Table, settings: Settings) -> pa.Table:
    """Returns a table whose ids have the type of the column that they came from."""
    ids = table["id"].cast(pa.type_for_alias(settings.get("id_type", "string")))
    return table.set_column(0, "id", ids)


def read_as_decimals(wanted: WantedColumns) -> WantedColumns:
    """Returns what is wanted of a format that holds floating numbers as decimals."""
    dtype = output_dtype(wanted.settings)
    if stored_type(dtype).kind in "iu" and dtype != "bfloat16":
        return wanted
    return replace(wanted, settings={**wanted.settings, "output_dtype": "float32"})


METADATA_KEY = "bert_embed"  # of the settings of vectors in a Parquet footer or a table
_BUFFER = 1 << 20  # bytes of a column that are read at a time
# A file of a run has about 128 MiB. A file that declares more than this is not read, because a few
# bytes of Parquet can declare any number of rows.
MOST_BYTES = 8 << 30
_SIGNATURE_BYTES = 28  # of a footer, nonce and tag
_MULTI_BYTES = 4 << 20  # of multi-vectors in a batch as float32, about
_NUMBERS = f"{EMBEDDING}.list.element"
_VECTORS = (_NUMBERS, f"{_NUMBERS}.list.element", "values.list.element")  # of heads, the latter
_ALL_DIFFERENT = ("id", "text_hash")  # a dictionary of these would only be larger


def open_parquet(
    source: BinaryIO | str | os.PathLike[str],
    buffer_size: int = 0,
    check_pages: bool = True,
    metadata: "pq.FileMetaData | None" = None,
    read_dictionary: Sequence[str] | None = None,
) -> "pq.ParquetFile":
    """Opens a file; ArrowInvalid where it is encrypted, or its footer counts rows differently.

    pyarrow reads no more rows than the footer, or a row group, counts, and reports nothing.
    `metadata` is the footer, if it was read. A value of the leaf columns `read_dictionary`, paths
    of strings or bytes, is in memory once, however often a dictionary of the file repeats it; other
    values take four times as long to read so.
    """
    import pyarrow.parquet as pq

    held: Any = source
    if type(source) is io.BytesIO:  # else Arrow asks Python for each piece of it
        held = pa.BufferReader(source.getvalue())
    file = pq.ParquetFile(
        held,
        metadata=metadata,
        buffer_size=buffer_size,
        page_checksum_verification=check_pages,
        coerce_int96_timestamp_unit="us",  # as Spark means them; in ns the year 9999 is 1816
        read_dictionary=read_dictionary,
    )
    if metadata is None:
        if not isinstance(source, (str, os.PathLike)):
            _check_plain(source, file.metadata)
        _check_counts(file.metadata)
    return file


def _check_plain(source: BinaryIO, footer: "pq.FileMetaData") -> None:
    """ArrowInvalid behind a footer that is signed, as that of encrypted columns, if it is plain.

    pyarrow reads such a footer, and ends the process when it is asked for an encrypted column.
    """
    source.seek(-8, os.SEEK_END)
    if int.from_bytes(source.read(4), "little") == footer.serialized_size + _SIGNATURE_BYTES:
        raise pa.ArrowInvalid("its columns are encrypted: write it without encryption")


def _check_counts(footer: "pq.FileMetaData") -> None:
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


def write_parquet(file: BinaryIO, table: pa.Table, kind: Kind, settings: Settings) -> None:
    """Writes vectors as one row group; equal tables give equal bytes.

    Vectors stay as they are: with BYTE_STREAM_SPLIT and zstd those of MiniLM took 0.84 times the
    bytes, but 1.4 times as long to read and write. All other columns are compressed and have
    statistics. An integer of any type takes four bytes in Parquet; a dictionary reduces it to one
    or two.
    """
    packed = kind.has_dtype and stored_type(output_dtype(settings)).kind != "f"
    _write_table(file, typed_ids(table, settings), settings, packed)


def write_loadable(file: BinaryIO, table: pa.Table, kind: Kind, settings: Settings) -> None:
    """Writes float32 vectors that are `encoded` as BigQuery loads them, and no null id."""
    never_null = table.schema.set(0, table.schema.field("id").with_nullable(False))
    _write_table(file, table.cast(never_null), settings, packed=False)


def _write_table(file: BinaryIO, table: pa.Table, settings: Settings, packed: bool) -> None:
    """Writes a table; `packed` gives the numbers of the vectors a dictionary."""
    columns = [path for field in table.schema for path in _leaves(field.type, field.name)]
    of_units = {f"{kind.folder}.list.element.{_NUMBERS}" for kind in KINDS.values()}
    vectors = [path for path in columns if path in {*_VECTORS, *of_units}]
    others = [path for path in columns if path not in vectors]
    coded = [path for path in others if path not in _ALL_DIFFERENT]
    import pyarrow.parquet as pq

    pq.write_table(
        table.replace_schema_metadata({METADATA_KEY: json.dumps(settings, sort_keys=True)}),
        file,
        compression=dict.fromkeys(others, "zstd") | dict.fromkeys(vectors, "none"),
        use_dictionary=coded + vectors if packed else coded,
        write_statistics=others,
        write_page_checksum=True,
        row_group_size=max(table.num_rows, 1),
    )


def _leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    """The paths that Parquet gives the columns of a type.

    >>> list(_leaves(pa.list_(pa.struct([("start", pa.int32())])), "words"))
    ['words.list.element.start']
    """
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{path}.{field.name}")
    elif is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.list.element")
    else:
        yield path


def read_parquet(source: Any, wanted: WantedColumns) -> Iterator[Columns]:
    """Yields the wanted columns of some rows at a time."""
    kind = wanted.kind
    with open_parquet(source, _BUFFER, wanted.check_pages) as file:
        _check_size(file)
        held, names_of = file.schema_arrow.names, list(kind.names(wanted.settings))
        structs = kind.folder if not kind.by_row else None
        if kind.structs and names_of[0] not in held:
            structs = kind.name
        names = [name for name in held if wanted.has(name) and name != structs]
        vectors_in = [structs] if structs else [*names_of, SCALE]
        stored = [name for name in vectors_in if wanted.vectors and name in held]
        rows = wanted.rows
        if wanted.vectors and kind.by_token:
            numbers_in = f"{structs}.list.element.{EMBEDDING}" if structs else EMBEDDING
            rows = min(rows, _multi_rows(file.metadata, numbers_in))
        for batch in file.iter_batches(rows, columns=[*stored, *names], use_threads=False):
            columns = {name: batch[name] for name in (*stored, *names)}
            if structs in columns and kind.by_row:
                columns |= lists_of(columns.pop(structs), names_of)
            yield columns


def _multi_rows(footer: "pq.FileMetaData", numbers_in: str) -> int:
    """How many rows of multi-vectors fill a batch, by the mean of the column of their numbers."""
    numbers = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        numbers += sum(
            column.num_values for column in columns if column.path_in_schema.startswith(numbers_in)
        )
    return max(1, _MULTI_BYTES // 4 * footer.num_rows // max(1, numbers))


def _check_size(file: "pq.ParquetFile") -> None:
    """Raises InputError if a footer declares far too many bytes or rows."""
    footer, schema = file.metadata, file.schema_arrow
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    kind = schema.field(EMBEDDING).type if EMBEDDING in schema.names else None
    width = getattr(kind, "list_size", 0)
    size = max(sum(group.total_byte_size for group in groups), footer.num_rows * (16 + 4 * width))
    if size > MOST_BYTES:
        raise InputError(f"declares {size:,} bytes")


def count_parquet(file: BinaryIO) -> int:
    """Returns the number of rows of a file."""
    with open_parquet(file) as parquet:
        return parquet.metadata.num_rows


def write_deleted(file: BinaryIO, table: pa.Table, settings: Settings) -> None:
    """Writes ids as one row group, of the type of the output's ids; equal tables, equal bytes.

    Args:
        file: Where to write it.
        table: The column `id`; of windows and chunks also their number, `window` or `chunk`: a row
            for each that is gone.
        settings: What the run says of its vectors.
    """
    _write_table(file, typed_ids(table, settings), settings, packed=False)
