"""Writes the files of each part, then its report, which marks the part as done."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from bert_embed.formats.output_files import KINDS, PIECES
from bert_embed.storage.files import checksum, stat
from bert_embed.transforms.distinct import distinct
from bert_embed.transforms.metrics import count_report
from bert_embed.transforms.output_folder import REJECTED, OutputFile, OutputFolder
from bert_embed.transforms.records.documents import id_hashes
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.rejected import rejected_lines
from bert_embed.transforms.records.report import BlockReport, part_report, read_report, report_bytes
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.records.vectors import EmbeddingBlock
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.write.jsonl import write_jsonl
from bert_embed.transforms.write.parquet import write_loadable, write_parquet
from bert_embed.transforms.write.tfrecord import suffix, write_tfrecord


@dataclass(frozen=True)
class Counting:
    """How the different texts and ids of a run are counted.

    Attributes:
        bits: `sample_bits` of the documents that are expected.
        ids: Whether ids are counted, too.
    """

    bits: int = 0
    ids: bool = False

    def hashes(self, ids: pa.StringArray, text_hash: np.ndarray) -> dict[str, Any]:
        """What a report keeps of a part's ids and texts."""
        own = distinct(id_hashes(ids), self.bits).to_text() if self.ids else None
        texts = distinct(text_hash, self.bits).to_text()
        return {"hash_bits": self.bits, "text_hashes": texts, "id_hashes": own}


Files = dict[str, OutputFile]  # by name
_COMPUTED = ("computed_tokens", "padded_tokens", "batches", "compiled")
_FORMATS: dict[str, Callable[..., None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "tfrecord": write_tfrecord,
    "bigquery": write_loadable,  # loaded into the table once all are there
}
_SUFFIXES = {"bigquery": "parquet"}  # where it is not the format's name


@dataclass
class WriteBlocks(Step):
    """Writes a file for each kind of vectors of a block, its rejected records, and its report.

    Attributes:
        output: Folder of the run's output, local or gs://.
        run: Fingerprint of the run, kept in each report.
        output_format: `parquet`, `jsonl`, `tfrecord`, or `bigquery`: Parquet to be loaded into a
            table.
        metadata: What the vectors are; written into each file whose format has a place for it.
        counting: How different texts and ids are counted.
    """

    output: str
    run: str
    output_format: str
    metadata: dict[str, Any] = field(default_factory=dict)
    counting: Counting = field(default_factory=Counting)

    def expand(self, blocks: beam.PCollection[EmbeddingBlock]) -> beam.PCollection[BlockReport]:
        files = partial(
            vector_files,
            folder=OutputFolder(self.output),
            output_format=self.output_format,
            metadata=self.metadata,
        )
        write = WriteParts(self.output, self.run, files, self.counting)
        return blocks | "Write" >> beam.ParDo(write)


class WriteParts(beam.DoFn):
    """Writes parts, of vectors or of examples, with their rejected records and reports.

    `write_files` writes the data files of a block; each report keeps the fingerprint of the run.
    """

    def __init__(
        self, output: str, run: str, write_files: Callable[[Any], Files], counting: Counting
    ) -> None:
        self._folder, self._run = OutputFolder(output), run
        self._write_files, self._counting = write_files, counting

    def process(self, block: EmbeddingBlock | TokenBlock) -> Iterator[BlockReport]:
        with RedactErrors("write"):
            report = write_part(block, self._folder, self._run, self._write_files, self._counting)
        count_report(report)
        yield report


def write_block(
    block: EmbeddingBlock, output: str, run: str, output_format: str, metadata: dict[str, Any]
) -> BlockReport:
    """Writes the files of a block of vectors and its report; see `WriteBlocks`."""
    folder = OutputFolder(output)
    files = partial(vector_files, folder=folder, output_format=output_format, metadata=metadata)
    return write_part(block, folder, run, files)


def write_part(
    block: EmbeddingBlock | TokenBlock,
    folder: OutputFolder,
    run: str,
    write_files: Callable[[Any], Files],
    counting: Counting = Counting(),
) -> BlockReport:
    """Writes the files of a part, then its report."""
    started = time.perf_counter()
    files = block.part.files | write_files(block) | _rejected_file(folder, block.part)
    if read_report(folder, block.part.block, block.part.number, run) is not None:
        # Another attempt was there, perhaps on a processor that rounds otherwise: either's files
        # may have come last.
        files = {name: _as_stored(folder, name, file) for name, file in files.items()}
    part = block.part.then("write", time.perf_counter() - started)
    computed = {name: getattr(block, name, 0) for name in _COMPUTED}
    computed["full_tokens"] = int(block.num_tokens_full.sum())
    computed |= counting.hashes(block.ids, block.text_hash)
    report = part_report(part, block.num_tokens, block.truncated, files, **computed)
    folder.write_report(part.block, part.number, report_bytes(report, run))
    return report


def _as_stored(folder: OutputFolder, name: str, file: OutputFile) -> OutputFile:
    path = folder.path_of(name)
    return replace(file, bytes=stat(path).size, crc32c=checksum(path))


def vector_files(
    block: EmbeddingBlock, folder: OutputFolder, output_format: str, metadata: dict[str, Any]
) -> Files:
    """Writes a file for each kind of a block's vectors; none for a block without documents."""
    ending = f".{_SUFFIXES.get(output_format, output_format)}"
    if output_format == "tfrecord":
        ending = suffix(metadata.get("compression", "none"))
    files: Files = {}
    for granularity in block.granularities if len(block) else ():
        kind, rows = KINDS[granularity], len(block)
        if granularity == "sentence" and block.windows is not None:
            kind, rows = PIECES[block.windows.name], len(block.windows.document)
        write = partial(
            _FORMATS[output_format], block=block, granularity=granularity, metadata=metadata
        )
        files |= folder.write(kind, block.part.block, block.part.number, ending, write, rows)
    return files


def _rejected_file(folder: OutputFolder, part: Part) -> Files:
    if not part.rejected:
        return {}
    data, rows = rejected_lines(part.rejected), len(part.rejected)
    return folder.write(
        REJECTED, part.block, part.number, ".jsonl", lambda file: file.write(data), rows
    )
