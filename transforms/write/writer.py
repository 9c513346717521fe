"""Writes the files of each part, then its record, which marks the part as done."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.storage.files import checksum, stat
from bert_embed.transforms.distinct import distinct
from bert_embed.transforms.metrics import count_block_record
from bert_embed.transforms.output_folder import REJECTED, OutputFile, OutputFolder
from bert_embed.transforms.records.block_record import (
    BlockRecord,
    block_record,
    block_record_bytes,
    read_block_record,
)
from bert_embed.transforms.records.documents import id_hashes
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.rejected import rejected_lines
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.write.jsonl import write_jsonl
from bert_embed.transforms.write.parquet import write_loadable, write_parquet
from bert_embed.transforms.write.tfrecord import write_tfrecord


@dataclass(frozen=True)
class Counting:
    """How different texts, and ids if `ids`, are counted; `bits` of the expected documents."""

    bits: int = 0
    ids: bool = False

    def hashes(self, ids: pa.StringArray, text_hash: np.ndarray) -> dict[str, Any]:
        """What a record keeps of a part's ids and texts."""
        id_hashes_text = distinct(id_hashes(ids), self.bits).to_text() if self.ids else None
        texts = distinct(text_hash, self.bits).to_text()
        return {"hash_bits": self.bits, "text_hashes": texts, "id_hashes": id_hashes_text}


Files = dict[str, OutputFile]  # by name
_COMPUTED = ("computed_tokens", "padded_tokens", "batches", "compiled")
_FORMATS: dict[str, Callable[..., None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "tfrecord": write_tfrecord,
    "bigquery": write_loadable,  # loaded into the table once all are there
}
_SUFFIXES = {"bigquery": "parquet"}  # where it is not the format's name


class WriteParts(beam.DoFn):
    """Writes parts, of vectors or of examples, with their rejected records and block records."""

    def __init__(
        self, output: str, run: str, write_files: Callable[[Any], Files], counting: Counting
    ) -> None:
        self._folder, self._run = OutputFolder(output), run
        self._write_files, self._counting = write_files, counting

    def process(self, block: EmbeddingBlock | TokenBlock) -> Iterator[BlockRecord]:
        with RedactErrors("write"):
            record = self.write(block)
        count_block_record(record)
        yield record

    def write(self, block: EmbeddingBlock | TokenBlock) -> BlockRecord:
        """Writes the files of a part, then its record."""
        started, folder = time.perf_counter(), self._folder
        files = self._write_files(block) | _rejected_file(folder, block.part)
        if read_block_record(folder, block.part.block, block.part.number, self._run) is not None:
            # Another attempt was there, perhaps on a processor that rounds otherwise: either's
            # files may have come last.
            files = {name: _as_stored(folder, name, file) for name, file in files.items()}
        part = block.part.then("write", time.perf_counter() - started)
        computed = {name: getattr(block, name, 0) for name in _COMPUTED}
        computed["full_tokens"] = int(block.num_tokens_full.sum())
        computed |= self._counting.hashes(block.ids, block.text_hash)
        record = block_record(part, block.num_tokens, block.truncated, files, **computed)
        folder.write_block_record(part.block, part.number, block_record_bytes(record, self._run))
        return record


def write_vectors(
    output: str,
    run: str,
    output_format: str,
    metadata: dict[str, Any],
    counting: Counting = Counting(),
) -> WriteParts:
    """Writes a file for each kind of a block's vectors; `bigquery` is Parquet to be loaded."""
    folder = OutputFolder(output)
    files = partial(vector_files, folder=folder, output_format=output_format, metadata=metadata)
    return WriteParts(output, run, files, counting)


def _as_stored(folder: OutputFolder, name: str, file: OutputFile) -> OutputFile:
    path = folder.path_of(name)
    return replace(file, bytes=stat(path).size, crc32c=checksum(path))


def vector_files(
    block: EmbeddingBlock, folder: OutputFolder, output_format: str, metadata: dict[str, Any]
) -> Files:
    """Writes a file for each kind of a block's vectors; none for a block without documents."""
    ending = f".{_SUFFIXES.get(output_format, output_format)}"
    files: Files = {}
    for kind in block.kinds if len(block) else ():
        place, rows = KINDS[kind].folder, len(block)
        if block.windows is not None and KINDS[kind].by_row:
            rows, place = len(block.windows.document), KINDS[kind].place(block.windows.name)
        write = partial(_FORMATS[output_format], block=block, kind=kind, metadata=metadata)
        files |= folder.write(place, block.part.block, block.part.number, ending, write, rows)
    return files


def _rejected_file(folder: OutputFolder, part: Part) -> Files:
    if not part.rejected:
        return {}
    data, rows = rejected_lines(part.rejected), len(part.rejected)
    return folder.write(
        REJECTED, part.block, part.number, ".jsonl", lambda file: file.write(data), rows
    )
