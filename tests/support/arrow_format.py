"""A format of output files in one row, as CONTRIBUTING.md tells: Arrow's IPC files."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from bert_embed.models.heads.head import Kind, Settings
from bert_embed.results.columns import Columns, WantedColumns
from bert_embed.results.files import OutputFormat


def write_arrow(file: BinaryIO, table: pa.Table, kind: Kind, settings: Settings) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_arrow(source: Any, wanted: WantedColumns) -> Iterator[Columns]:
    table = pa.ipc.open_file(source).read_all()
    for batch in table.to_batches(wanted.rows):
        yield {name: batch[name] for name in batch.schema.names if wanted.takes(name)}


def count_arrow(file: BinaryIO) -> int:
    return pa.ipc.open_file(file).read_all().num_rows


ARROW = OutputFormat(
    "arrow",
    ".arrow",
    count_arrow,
    write_arrow,
    read_arrow,
    bytes_a_number={"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "ubinary": 1 / 8},
)
