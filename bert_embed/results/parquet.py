"""Reads and writes vectors in Parquet files, also as BigQuery loads them, and deleted ids."""

import io
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from bert_embed.base.errors import InputError
from bert_embed.models.heads.head import EMBEDDING, SCALE, Kind, Settings
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.columns import (
    Columns,
    WantedColumns,
    is_list,
    lists_of,
    loadable,
    requiring,
    typed_ids,
)
from bert_embed.results.names import output_dtype, stored_type

if TYPE_CHECKING:
    import pyarrow.parquet as pq  # with the clients of all stores, which light commands do without

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
    """Writes float32 vectors as BigQuery loads them: no null id, lists or structs for vectors."""
    table = loadable(table, kind)
    _write_table(file, table.cast(requiring(table.schema, ["id"])), settings, packed=False)


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
    import pyarrow.parquet as pq

    pq.write_table(
        typed_ids(table, settings),
        file,
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
        row_group_size=max(table.num_rows, 1),
    )
