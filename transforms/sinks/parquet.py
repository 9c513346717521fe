"""Parquet: a table of vectors into a file, what the vectors are in its metadata."""

import errno
import json
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bert.output_types import output_dtype, stored_type
from bert.result_files import METADATA_KEY
from transforms.sinks.columns import sentence_table, span_table, token_table, word_table
from transforms.vectors import EmbeddingBlock

_TABLES = {
    "sentence": sentence_table,
    "token": token_table,
    "word": word_table,
    "span": span_table,
}


def write_parquet(
    file: BinaryIO, block: EmbeddingBlock, granularity: str, metadata: dict[str, Any]
) -> None:
    """Writes one kind of a block's vectors as one row group; equal blocks give equal bytes.

    Nothing is compressed: vectors are noise to a compressor, and nearly all of the file. Polars
    writes lists of floats in a quarter of Arrow's time, which is what a fast model waits for.
    Integers take four bytes each in Parquet, whatever their type; Arrow can give them a
    dictionary, through whose indices they take up the one or two bytes that they are. Arrow also
    writes the extra columns whose types Polars would change.

    Raises:
        OSError: The file cannot be written.
    """
    dtype = output_dtype(metadata)
    table = _TABLES[granularity](block, dtype)
    kept = {METADATA_KEY: json.dumps(metadata, sort_keys=True)}
    rows = max(table.num_rows, 1)
    numbers = [] if stored_type(dtype).kind == "f" else _number_columns(table.schema)
    if not numbers and _polars_keeps(block.extra):
        try:
            pl.DataFrame(table).write_parquet(
                file,
                compression="uncompressed",
                statistics=False,
                row_group_size=rows,
                metadata=kept,
            )
        except pl.exceptions.ComputeError as error:  # as it calls a disk that is full
            raise OSError(errno.EIO, str(error)) from error
    else:
        pq.write_table(
            table.replace_schema_metadata(kept),
            file,
            compression="none",
            write_statistics=False,
            use_dictionary=numbers,
            row_group_size=rows,
        )


def write_loadable(
    file: BinaryIO, block: EmbeddingBlock, granularity: str, metadata: dict[str, Any]
) -> None:
    """Writes one kind of a block's float32 vectors as BigQuery loads them.

    An id is never null, which only Arrow's writer can say; a vector that is missing is an empty
    list, because no array of BigQuery is null.
    """
    table = with_empty_lists(_TABLES[granularity](block, "float32"))
    fields = [field.with_nullable(field.name != "id") for field in table.schema]
    kept = {METADATA_KEY: json.dumps(metadata, sort_keys=True)}
    pq.write_table(
        table.cast(pa.schema(fields, kept)),
        file,
        compression="none",
        write_statistics=False,
        use_dictionary=False,
        row_group_size=max(table.num_rows, 1),
    )


def with_empty_lists(table: pa.Table) -> pa.Table:
    """The table of words or spans with an empty vector wherever one is missing."""
    name = next((name for name in ("words", "spans") if name in table.column_names), None)
    if name is None:
        return table
    lists = table[name].combine_chunks()
    units = lists.values
    fields = {field.name: units.field(field.name) for field in units.type}
    vectors = fields["embedding"]
    fields["embedding"] = pa.LargeListArray.from_arrays(vectors.offsets, vectors.values)
    made = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    filled = pa.LargeListArray.from_arrays(lists.offsets, made)
    return table.set_column(table.column_names.index(name), name, filled)


def _number_columns(schema: pa.Schema) -> list[str]:
    """The path that Parquet gives the numbers of the vectors."""
    nested = next((name for name in ("tokens", "words", "spans") if name in schema.names), None)
    above = "" if nested is None else f"{nested}.list.element."
    return [f"{above}embedding.list.element"]


def _polars_keeps(extra: pa.Table | None) -> bool:
    """Whether the types of columns are still the same when Polars has written them."""
    return extra is None or all(map(_kept_by_polars, extra.schema.types))


def _kept_by_polars(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        return kind.unit != "s"
    return not (pa.types.is_time(kind) or pa.types.is_float16(kind))
