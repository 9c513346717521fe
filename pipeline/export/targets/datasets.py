"""Writes a dataset repository as the Hugging Face Hub and `load_dataset` read it."""

import os
from collections.abc import Iterator
from dataclasses import replace

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.encode import exported_dtype, schema_of, table, write_parquet
from bert_embed.pipeline.export.journal import JOURNAL, rows_of_files, write_files
from bert_embed.pipeline.export.source import Source
from bert_embed.pipeline.outputs.card import card
from bert_embed.storage.files import join, write_bytes, write_whole
from bert_embed.transforms.descriptions import CARD

_MEGABYTES = 128  # of the vectors of a file
_SPLIT = "train"
_GLOB = f"data/{_SPLIT}-*"
_COLUMN = "embedding"
_ABOUT = "BERT embeddings: a row has the `id`, the vector (`embedding`) and what else was kept."


class DatasetTarget:
    """Parquet files of one split, and a card that leads to them."""

    others: tuple[str, ...] = (CARD,)

    def __init__(self, source: Source) -> None:
        self.rows = rows_of_files(source.width, _MEGABYTES)
        self.journal = join(source.options.dest, JOURNAL)
        self._source, self._dest = source, source.options.dest

    def names(self, number: int, count: int) -> tuple[str, ...]:
        """The file, named as `push_to_hub` names it."""
        return (f"data/{_SPLIT}-{number:05d}-of-{count:05d}.parquet",)

    def write(self, number: int, count: int, rows: int, batches: Iterator[Rows]) -> None:
        """Writes one file; a row group for each batch, so that a viewer reads a page of rows."""
        source = self._source
        schema = schema_of(source.schema, source.dtype, source.width, _COLUMN)
        tables = (table(batch, source.dtype, _COLUMN) for batch in batches)
        (name,) = self.names(number, count)
        write_whole(join(self._dest, name), lambda out: write_parquet(out, tables, schema))

    def finish(self) -> None:
        """Writes the card."""
        name = os.path.basename(self._dest.rstrip("/"))
        files = {"default": [{"split": _SPLIT, "path": _GLOB}]}
        record = self._source.record
        vectors = record.settings | {"output_dtype": exported_dtype(self._source.dtype)}
        text = card(replace(record, vectors=vectors), name, files, _ABOUT)
        write_bytes(join(self._dest, CARD), text.encode())


def export_datasets(source: Source) -> bool:
    """Exports to a dataset repository; False if it was there already.

    Raises:
        UsageError: The run is not complete, so that a card cannot describe it.
    """
    if not source.record.is_done:
        raise UsageError("--to datasets conflicts with --partial: the card describes a whole run")
    return write_files(DatasetTarget(source), source, source.options.dest, source.rows)
