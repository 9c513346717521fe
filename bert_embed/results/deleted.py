"""Writes and reads the files of ids that an output marks as deleted in those it continues."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.errors import InputError
from bert_embed.models.heads.kind import Settings
from bert_embed.results.columns import typed_ids
from bert_embed.results.parquet import open_parquet

_BATCH_ROWS = 1 << 16


def write_deleted(file: BinaryIO, table: pa.Table, settings: Settings) -> None:
    """Writes ids as one row group, of the type of the output's ids; equal tables, equal bytes.

    Args:
        file: Where to write it.
        table: The column `id`; of windows and chunks also their number, `window` or `chunk`: a row
            for each that is gone.
        settings: What the run says of its vectors.
    """
    pq.write_table(
        typed_ids(table, settings),
        file,
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
        row_group_size=max(table.num_rows, 1),
    )


def deleted_batches(file: BinaryIO, name: str) -> Iterator[pa.RecordBatch]:
    """Yields what `write_deleted` wrote, some rows at a time; InputError if it is damaged."""
    try:
        with open_parquet(file) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                batch.schema.field("id")
                yield batch
    except (pa.ArrowException, OSError, KeyError) as error:
        if getattr(error, "errno", None) is not None:  # of the file system, not of Arrow
            raise
        raise InputError(
            f"{name} is damaged: `bert-embed verify --repair` writes a file of a run again"
        ) from error
