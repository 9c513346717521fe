"""Writes `emb_0000.npy` and `metadata_0000.parquet`, as clip-retrieval and autofaiss read them."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from bert_embed.pipeline.export.folder import rows_of_files, write_files, write_parquet
from bert_embed.pipeline.export.source import Source
from bert_embed.results.files import Rows
from bert_embed.results.names import stored_type
from bert_embed.storage.files import write_whole

_MEGABYTES = 128  # of a file of vectors


def export(source: Source) -> bool:
    """Exports to npy files; False if they were there already."""
    rows = rows_of_files(source.width, _MEGABYTES)
    return write_files(source, rows, _names, partial(_write, source))


def _names(number: int, count: int) -> tuple[str, ...]:
    """The two files; numbers have as many digits as keeps names in their order."""
    digits = max(4, len(str(count - 1)))
    return f"emb_{number:0{digits}d}.npy", f"metadata_{number:0{digits}d}.parquet"


def _write(source: Source, paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
    """Writes both files in one pass."""
    vectors, columns = paths
    header = {
        "descr": np.lib.format.dtype_to_descr(stored_type(source.dtype)),
        "fortran_order": False,
        "shape": (rows, source.numbers_width),
    }

    def tables(file: BinaryIO) -> Iterator[pa.Table]:
        for batch in batches:
            file.write(source.numbers(batch).tobytes())
            yield batch.columns

    def write_both(file: BinaryIO) -> None:
        np.lib.format.write_array_header_1_0(file, header)
        write_whole(columns, lambda out: write_parquet(out, tables(file), source.schema))

    write_whole(vectors, write_both)
