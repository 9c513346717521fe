"""Writes the files of each part in its format, then its record, which marks the part as done."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.columns import encoded
from bert_embed.results.files import FORMATS
from bert_embed.storage.files import checksum
from bert_embed.text.layout import KeptWindows
from bert_embed.transforms.blocks import EmbeddingBlock, TokenBlock
from bert_embed.transforms.ledger import (
    BlockRecord,
    block_record,
    block_record_bytes,
    parse_block_record,
)
from bert_embed.transforms.output_folder import REJECTED, OutputFile, OutputFolder
from bert_embed.transforms.parts import rejected_lines
from bert_embed.transforms.steps import RedactErrors, count_block_record


def vector_table(
    block: EmbeddingBlock, kind: str, settings: Mapping[str, Any], loads: bool = False
) -> pa.Table:
    """A table with a row for each document: id, its vectors, num_tokens, ….

    `settings` are what a run says of its vectors, `loads` is as of `encoded`. Columns behind them
    are num_tokens, num_tokens_full, truncated and text_hash. A window or chunk, nothing of which is
    cut, has a row of its own for kinds that are `by_row`, and its number, `start` and `stop`
    instead of `num_tokens_full`. Kept texts and extra columns come last.
    """
    vectors, windows = encoded(KINDS[kind], block.of(kind), settings, loads), block.windows
    if windows is None or not KINDS[kind].by_row:
        facts = {
            "num_tokens": pa.array(block.num_tokens, pa.int32()),
            "num_tokens_full": pa.array(block.num_tokens_full, pa.int32()),
            "truncated": pa.array(block.truncated, pa.bool_()),
            "text_hash": pa.array(block.text_hash, pa.int64()),
        }
        return pa.table({"id": block.ids} | vectors | facts | more_columns(block))
    rows = windows.document
    facts = {
        "num_tokens": pa.array(windows.num_tokens, pa.int32()),
        "truncated": pa.array(np.zeros(len(rows), bool)),
        "text_hash": pa.array(block.text_hash[rows], pa.int64()),
        windows.name: pa.array(windows.window, pa.int32()),
        "start": pa.array(windows.starts, pa.int32()),
        "stop": pa.array(windows.stops, pa.int32()),
    }
    ids = block.ids.take(pa.array(rows))
    return pa.table({"id": ids} | vectors | facts | more_columns(block, windows))


def more_columns(block: EmbeddingBlock, windows: KeptWindows | None = None) -> dict[str, pa.Array]:
    """The kept texts and the extra columns, by name: of documents, or of their windows."""
    columns: dict[str, pa.Array] = {}
    if block.texts is not None:
        columns["text"] = block.texts
        if windows is not None:  # the part of the text that each holds
            whole = block.texts.to_pylist()
            pieces = (windows.document.tolist(), windows.starts.tolist(), windows.stops.tolist())
            texts = [
                whole[n] and whole[n][start:stop] for n, start, stop in zip(*pieces, strict=True)
            ]
            columns["text"] = pa.array(texts, pa.string())
    if block.extra is not None:
        table = block.extra if windows is None else block.extra.take(pa.array(windows.document))
        columns |= dict(zip(table.column_names, table.columns, strict=True))
    return columns


Files = dict[str, OutputFile]  # by name
_COMPUTED = ("computed_tokens", "padded_tokens", "batches", "compiled")


class WriteParts(beam.DoFn):
    """Writes parts, of vectors or of examples, with their rejected records and block records."""

    def __init__(self, output: str, run: str, write_files: Callable[[Any], Files]) -> None:
        self._folder, self._run = OutputFolder(output), run
        self._write_files = write_files

    def process(self, block: EmbeddingBlock | TokenBlock) -> Iterator[BlockRecord]:
        with RedactErrors("write"):
            record = self.write(block)
        count_block_record(record)
        yield record

    def write(self, block: EmbeddingBlock | TokenBlock) -> BlockRecord:
        """Writes the files of a part, then its record.

        Two attempts may write at once, on processors that round differently, and the files of
        either may come last: the record of those stays.
        """
        started, folder = time.perf_counter(), self._folder
        files = self._write_files(block)
        if rejected := block.part.rejected:
            lines, place = rejected_lines(rejected), (block.part.block, block.part.number)
            files = files | folder.write(
                REJECTED, *place, ".jsonl", lambda file: file.write(lines), len(rejected)
            )
        part = block.part.then("write", time.perf_counter() - started)
        computed: dict[str, Any] = {name: getattr(block, name, 0) for name in _COMPUTED}
        vectors = getattr(block, "vectors", None)  # float32 [rows, width]
        if vectors is not None and len(vectors):
            norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
            computed["norms"] = [round(float(end), 4) for end in (norms.min(), norms.max())]
            computed["zero_vectors"] = int(np.count_nonzero(norms == 0))
        computed["full_tokens"] = int(block.num_tokens_full.sum())
        record = block_record(part, block.num_tokens, block.truncated, files, **computed)

        def data(present: bytes | None) -> bytes | None:
            nonlocal record
            other = None if present is None else parse_block_record(present, self._run)
            if other is None or _describes(record, folder) or not _describes(other, folder):
                return block_record_bytes(record, self._run)
            record = replace(other, reused=False)
            return None

        folder.write_block_record(part.block, part.number, data)
        return record


def _describes(record: BlockRecord, folder: OutputFolder) -> bool:
    """Whether the files of a record are those that are there."""
    return all(checksum(folder.path_of(name)) == file.crc32c for name, file in record.files.items())


def write_vectors(
    output: str, run: str, output_format: str, metadata: dict[str, Any]
) -> WriteParts:
    """Writes a file for each kind of a block's vectors; `bigquery` is Parquet to be loaded."""
    settings: dict[str, Any] = {"output_format": output_format, "metadata": metadata}
    return WriteParts(output, run, partial(vector_files, folder=OutputFolder(output), **settings))


def vector_files(
    block: EmbeddingBlock, folder: OutputFolder, output_format: str, metadata: dict[str, Any]
) -> Files:
    """Writes a file for each kind of a block's vectors; none for a block without documents."""
    written, files = FORMATS[output_format], Files()
    for kind in block.kinds if len(block) else ():
        made, part = KINDS[kind], block.part
        place, rows = made.folder, len(block)
        if block.windows is not None and made.by_row:
            rows, place = len(block.windows.starts), made.place(block.windows.name)
        table = vector_table(block, kind, metadata, written.loads)
        write = written.writer(table, made, metadata)
        files |= folder.write(place, part.block, part.number, written.suffix, write, rows)
    return files
