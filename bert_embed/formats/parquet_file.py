"""Opens Parquet files whose footers agree with themselves."""

import os
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


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
