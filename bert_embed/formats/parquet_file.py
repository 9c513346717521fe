"""Opens Parquet files whose footers agree with themselves."""

import os
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq


def open_parquet(
    source: BinaryIO | str | os.PathLike[str], buffer_size: int = 0, check_pages: bool = True
) -> pq.ParquetFile:
    """Opens a file; ArrowInvalid where its footer counts other rows than its row groups do.

    pyarrow reads no more rows than the footer counts, and reports nothing.
    """
    file = pq.ParquetFile(source, buffer_size=buffer_size, page_checksum_verification=check_pages)
    footer = file.metadata
    rows = sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    if rows != footer.num_rows:
        raise pa.ArrowInvalid(f"{footer.num_rows:,} rows in its footer, {rows:,} in its row groups")
    return file
