"""WriteBlocks: an EmbeddingBlock in, its files and its BlockReport out."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import apache_beam as beam

from bert.result_files import FILE_STEMS
from transforms.accounting import (
    BlockReport,
    length_histogram,
    part_report,
    report_bytes,
    report_path,
)
from transforms.dead_letter import rejected_lines
from transforms.discretion import Discreet
from transforms.files import join, make_folder, write_bytes, write_whole
from transforms.metrics import count_report
from transforms.sinks.jsonl import write_jsonl
from transforms.sinks.parquet import write_loadable, write_parquet
from transforms.sinks.tfrecord import suffix, write_tfrecord
from transforms.vectors import EmbeddingBlock

_FORMATS: dict[str, Callable[..., None]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "tfrecord": write_tfrecord,
    "bigquery": write_loadable,  # loaded into the table once all are there
}
_SUFFIXES = {"bigquery": "parquet"}  # where it is not the format's name


@dataclass
class WriteBlocks(beam.PTransform):
    """Each block to a file for each kind of its vectors, one of rejected records if there are any,
    then its report.

    Attributes:
        output: Folder of the run's output, local or gs://.
        run: Fingerprint of the run, kept in each report.
        output_format: `parquet`, `jsonl`, `tfrecord`, or `bigquery`: Parquet to be loaded into a
            table.
        metadata: What the vectors are; stands in each file whose format has room for it.
    """

    output: str
    run: str
    output_format: str
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[EmbeddingBlock]) -> beam.PCollection[BlockReport]:
        return blocks | "Write" >> beam.ParDo(_Write(self))


class _Write(beam.DoFn):
    def __init__(self, settings: WriteBlocks) -> None:
        self._output, self._run = settings.output, settings.run
        self._format, self._metadata = settings.output_format, settings.metadata

    def setup(self) -> None:
        make_folder(join(self._output, "blocks"))

    def process(self, block: EmbeddingBlock) -> Iterator[BlockReport]:
        with Discreet("write"):
            report = write_block(block, self._output, self._run, self._format, self._metadata)
        count_report(report)
        yield report


def write_block(
    block: EmbeddingBlock, output: str, run: str, output_format: str, metadata: dict[str, Any]
) -> BlockReport:
    """Writes the files of a part, the report last: it is the mark that the part is done."""
    started = time.perf_counter()
    files = dict(block.part.files)
    ending = f".{_SUFFIXES.get(output_format, output_format)}"
    if output_format == "tfrecord":
        ending = suffix(metadata.get("compression", "none"))
    for granularity in block.granularities if len(block) else ():
        name = f"{FILE_STEMS[granularity]}-{block.part.name}{ending}"
        write = partial(
            _FORMATS[output_format], block=block, granularity=granularity, metadata=metadata
        )
        files[name] = write_whole(join(output, name), write)
    if block.part.rejected:
        name = f"rejected-{block.part.name}.jsonl"
        files[name] = write_bytes(join(output, name), rejected_lines(block.part.rejected))
    part = block.part.then("write", time.perf_counter() - started)
    report = part_report(
        part,
        embedded=len(block),
        truncated=int(block.truncated.sum()),
        tokens=int(block.num_tokens.sum()),
        computed_tokens=block.computed_tokens,
        padded_tokens=block.padded_tokens,
        batches=block.batches,
        compiled=block.compiled,
        lengths=length_histogram(block.num_tokens),
        files=files,
    )
    write_bytes(report_path(output, part.block, part.number), report_bytes(report, run))
    return report
