"""ReadExamples: a BlockSpec of a TFRecord file in, the TokenBlocks of its parts out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import apache_beam as beam
import numpy as np

from bert.record_files import Record, unframed
from transforms.accounting import BlockReport, finished_parts, is_complete
from transforms.block_spec import BlockSpec, InputFile, Slice
from transforms.example_rows import ExampleReading, document_begins, example_block
from transforms.part import Part
from transforms.sources.lines import stored_pieces
from transforms.tokenization import TokenBlock
from transforms.under_way import under_way

_PIECE = 1 << 20  # bytes read at a time
# An example of a text has about so many bytes, and for each byte of the text fewer than so many.
_EXAMPLE_BYTES, _BYTES_OF_TEXT = 320, 8


@dataclass
class ReadExamples(beam.PTransform):
    """BlockSpecs of TFRecord files to the rows of tokens that are still to do.

    Gives a dict: `tokens`, and `finished`, as `ReadBlocks` gives it.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run; reports of another one do not count.
        reading: What examples must be, and what is wanted of them.
        part_docs: A part is closed at so many documents.
        block_bytes: A part is closed at examples of so many bytes of text, about.
        leave_out: Numbers of blocks whose documents are rejected.
    """

    output: str
    run: str
    reading: ExampleReading
    part_docs: int
    block_bytes: int
    leave_out: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        read = specs | "Read" >> beam.ParDo(_Read(self)).with_outputs("finished", main="tokens")
        return {"tokens": read.tokens, "finished": read.finished}


class _Read(beam.DoFn):
    def __init__(self, settings: ReadExamples) -> None:
        self._output, self._run = settings.output, settings.run
        self._reading = settings.reading
        self._part_docs, self._block_bytes = settings.part_docs, settings.block_bytes
        self._leave_out = settings.leave_out

    def process(
        self, spec: BlockSpec
    ) -> Iterator[TokenBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]]:
        done = finished_parts(self._output, self._run, spec)
        for report in done.values():
            yield beam.pvalue.TaggedOutput("finished", report)
        if is_complete(spec, done):
            return
        left_out = spec.number in self._leave_out
        with under_way(self._output, self._run, spec):
            yield from example_blocks(
                spec, self._reading, self._part_docs, self._block_bytes, done, left_out
            )


def example_blocks(
    spec: BlockSpec,
    reading: ExampleReading,
    part_docs: int,
    block_bytes: int,
    done: dict[int, BlockReport],
    left_out: bool = False,
) -> Iterator[TokenBlock]:
    """Reads a file's parts, but those that are done; all documents are rejected if `left_out`.

    Raises:
        ValueError: The file is not the one that was listed, is damaged where the next record
            cannot be found, or holds examples of another tokenizer; it is named.
    """
    started = time.perf_counter()
    path = spec.slices[0].info.path
    for content in record_parts(spec, part_docs, _BYTES_OF_TEXT * block_bytes, reading.windows):
        if content.number in done:
            continue
        part = Part(spec.number, content.number, content.last, end_of_file=content.end_of_file)
        block = example_block(
            part, path, content.records, content.begins, content.first_record, reading, left_out
        )
        yield replace(block, part=block.part.then("read", time.perf_counter() - started))
        started = time.perf_counter()


@dataclass(frozen=True)
class RecordPart:
    """The records of one part: whole documents.

    Attributes:
        number: The part's number in its block.
        records: In the file's order.
        begins: bool `[records]`, which of them begin a document.
        first_record: Number of the first of them in the file.
        last: Whether the reader has no further part.
        end_of_file: In the part that marks the end of the file: documents of the file.
    """

    number: int
    records: list[Record]
    begins: np.ndarray
    first_record: int
    last: bool = False
    end_of_file: int | None = None


def record_parts(
    spec: BlockSpec, part_docs: int, part_bytes: int, windows: bool
) -> Iterator[RecordPart]:
    """Reads a file from start to end; gives the parts of the reader's stripe, then an empty one.

    Args:
        spec: A block of one TFRecord file.
        part_docs: A part is closed at so many documents,
        part_bytes: or at so many bytes of records, what each has but for its text left out.
        windows: Whether a document may have several records.
    """
    parts = documents = 0
    for held, begins, first in _document_runs(spec, part_docs, part_bytes, windows):
        if parts % spec.stripes == spec.stripe:
            yield RecordPart(parts, held, begins, first)
        documents += int(begins.sum())
        parts += 1
    mark = parts + (spec.stripe - parts) % spec.stripes  # the next number of this stripe
    yield RecordPart(mark, [], np.zeros(0, bool), 0, last=True, end_of_file=documents)


def _document_runs(
    spec: BlockSpec, part_docs: int, part_bytes: int, windows: bool
) -> Iterator[tuple[list[Record], np.ndarray, int]]:
    """Runs of whole documents that fill a part, with the number of their first record."""
    held: list[Record] = []
    begins: list[bool] = []
    documents = size = first = total = 0
    for records, starts in _begun(spec, windows):
        for record, start in zip(records, starts.tolist(), strict=True):
            if start and (documents >= part_docs or size >= part_bytes):
                yield held, np.array(begins, bool), first
                first, held, begins, documents, size = first + len(held), [], [], 0, 0
            if start and total == spec.records:
                break
            total, documents = total + start, documents + start
            size += max(0, len(record.data or b"") - _EXAMPLE_BYTES)
            held.append(record)
            begins.append(start)
        else:
            continue
        break
    if held:
        yield held, np.array(begins, bool), first


def _begun(spec: BlockSpec, windows: bool) -> Iterator[tuple[list[Record], np.ndarray]]:
    """The records of a file, and which of them begin a document."""
    piece = spec.slices[0]
    previous = None
    try:
        for records in unframed(stored_pieces(piece, spec.compression, _PIECE)):
            yield records, document_begins(records, windows, previous)
            previous = records[-1]
    except ValueError as error:
        if str(error).startswith(piece.info.path):
            raise
        raise ValueError(f"{piece.info.path} is no whole TFRecord file: {error}") from error


def limit_examples(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """A file cut to its first `limit` documents, and how many it then has."""
    spec = whole_file(replace(file, records=limit))
    found = sum(
        int(begins.sum()) for _, begins, _ in _document_runs(spec, limit, 1 << 62, windows=True)
    )
    return replace(file, records=found), found


def whole_file(file: InputFile) -> BlockSpec:
    """The block of one file alone."""
    piece = Slice(0, file.info, 0, file.stop)
    return BlockSpec(0, file.format, (piece,), file.compression, records=file.records)


def first_records(file: InputFile) -> list[Record]:
    """Some records from the start of a file.

    Raises:
        ValueError: It is no TFRecord file.
    """
    return next((records for records, _ in _begun(whole_file(file), windows=False)), [])
