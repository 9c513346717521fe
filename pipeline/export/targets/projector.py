"""Writes `tensors.tsv` and `metadata.tsv`, as TensorBoard's Embedding Projector reads them."""

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.export.journal import JOURNAL, write_files
from bert_embed.pipeline.export.source import Source
from bert_embed.storage.files import join, write_bytes, write_whole
from bert_embed.transforms.write.jsonl import json_values

_TENSORS, _METADATA, _CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"
_BREAKS = re.compile(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


class ProjectorTarget:
    """One file of vectors, one of their columns, and one that leads to both."""

    others: tuple[str, ...] = (_CONFIG,)

    def __init__(self, source: Source) -> None:
        self.rows = source.wanted_rows
        self.journal = join(source.options.dest, JOURNAL)
        self._source, self._dest = source, source.options.dest

    def names(self, number: int, count: int) -> tuple[str, ...]:
        """Both tables."""
        return _TENSORS, _METADATA

    def write(self, number: int, count: int, rows: int, batches: Iterator[Rows]) -> None:
        """Writes both tables, of a sample of the rows."""

        def write_both(file: BinaryIO) -> None:
            tables = self._tensors_into(file)
            write_whole(join(self._dest, _METADATA), lambda out: _write_metadata(out, tables))

        write_whole(join(self._dest, _TENSORS), write_both)

    def finish(self) -> None:
        """Writes the configuration."""
        config = (
            "embeddings {\n"
            f'  tensor_name: "{self._source.options.granularity} vectors"\n'
            f'  tensor_path: "{_TENSORS}"\n'
            f'  metadata_path: "{_METADATA}"\n'
            "}\n"
        )
        write_bytes(join(self._dest, _CONFIG), config.encode())

    def _tensors_into(self, file: BinaryIO) -> Iterator[pa.Table]:
        for batch in self._source.sampled(self.rows):
            for vector in batch.vectors:
                file.write("\t".join(map(str, vector)).encode() + b"\n")
            yield batch.columns


def _write_metadata(file: BinaryIO, tables: Iterator[pa.Table]) -> None:
    """Writes a line a row; names of columns come first only if there are several."""
    for number, each in enumerate(tables):
        if number == 0 and each.num_columns > 1:
            file.write("\t".join(map(_cell, each.column_names)).encode() + b"\n")
        columns = [json_values(column) for column in each.columns]
        for row in zip(*columns, strict=True):
            file.write("\t".join(map(_cell, row)).encode() + b"\n")


def _cell(value: Any) -> str:
    r"""A value on one line, without tabs.

    >>> _cell("a\tb\nc"), _cell(None), _cell(3)
    ('a b c', '', '3')
    """
    return "" if value is None else _BREAKS.sub(" ", str(value))


def export_projector(source: Source) -> bool:
    """Exports a sample for the projector; False if it was there already."""
    target = ProjectorTarget(source)
    return write_files(target, source, source.options.dest, target.rows)
