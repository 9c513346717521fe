"""Reads tokenized examples from TFRecord files as TokenBlocks."""

import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bert_embed.formats.tfrecord import Record, unframed
from bert_embed.storage.errors import InputError
from bert_embed.transforms.examples.check import ExampleReading
from bert_embed.transforms.examples.decode import document_begins, example_block
from bert_embed.transforms.read.cut_files import cut_part
from bert_embed.transforms.read.lines import stored_pieces
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.read_part import ReadPart
from bert_embed.transforms.records.skip import rows_of_part
from bert_embed.transforms.records.spec import BlockSpec, InputFile, Slice
from bert_embed.transforms.records.tokens import TokenBlock

_PIECE = 1 << 20  # bytes read at a time
_COUNTED = 1024  # documents in memory while they are counted
# The bytes that an example has about without its text, and at most for each byte of its text.
_EXAMPLE_BYTES, _BYTES_OF_TEXT = 320, 8


@dataclass(frozen=True)
class FileRecords:
    """Some neighbouring records of a TFRecord file: whole documents."""

    file: int
    offset: int  # of the first byte in the decompressed file
    data: bytes  # the records with their framing
    begins: np.ndarray  # bool [records], which begin a document
    first: int  # number of the first record

    @property
    def count(self) -> int:
        """How many documents."""
        return int(self.begins.sum())

    @property
    def size(self) -> int:
        """How many bytes."""
        return len(self.data)

    @property
    def records(self) -> list[Record]:
        """The records, each with its offset in the file."""
        listed = chain.from_iterable(unframed([self.data]))
        return [Record(self.offset + record.offset, record.data) for record in listed]

    def with_data(self, data: bytes) -> "FileRecords":
        """The same records with their bytes, or with none while the bytes are stored elsewhere."""
        return replace(self, data=data)


def example_blocks(
    spec: BlockSpec,
    reading: ExampleReading,
    part_docs: int,
    block_bytes: int,
    done: Container[int],
    skipped: bool = False,
) -> Iterator[TokenBlock]:
    """Reads the parts of a file without those in `done`; `skipped` rejects all documents."""
    started = time.perf_counter()
    path = spec.slices[0].info.path
    parts: Iterable[ReadPart[FileRecords]] = (
        record_parts(spec, part_docs, block_bytes, reading.windows)
        if spec.cut is None
        else [cut_part(spec, spec.cut)]
    )
    for content in parts:
        if content.number in done:
            continue
        part = Part(spec.number, content.number, content.last, end_of_file=content.end_of_file)
        existing = rows_of_part(np.frombuffer(spec.skipped, np.int64), content.number)
        records, begins, first = _records_of(content)
        block = example_block(part, path, records, begins, first, reading, existing, skipped)
        seconds = content.seconds + time.perf_counter() - started
        yield replace(block, part=block.part.then("read", seconds))
        started = time.perf_counter()


def _records_of(part: ReadPart[FileRecords]) -> tuple[list[Record], np.ndarray, int]:
    if not part.contents:
        return [], np.zeros(0, bool), 0
    (content,) = part.contents
    return content.records, content.begins, content.first


def record_parts(
    spec: BlockSpec, part_docs: int, block_bytes: int, windows: bool
) -> Iterator[ReadPart[FileRecords]]:
    """The parts of a TFRecord file: `part_docs` documents, `block_bytes` of text, an empty end.

    With `windows` a document may have several records.
    """
    number = documents = 0
    for content in _document_runs(spec, part_docs, _BYTES_OF_TEXT * block_bytes, windows):
        yield ReadPart(number, (content,), last=False)
        documents += content.count
        number += 1
    yield ReadPart(number, (), last=True, end_of_file=documents)


def _document_runs(
    spec: BlockSpec, part_docs: int, part_bytes: int, windows: bool
) -> Iterator[FileRecords]:
    """Whole documents that fill a part: `part_bytes` beyond what records without text have."""
    begins: list[bool] = []
    documents = size = first = offset = total = 0
    data = bytearray()
    stop: int | None = None  # where the records that are wanted end; None: with the file

    def run(end: int) -> FileRecords:
        return FileRecords(
            spec.slices[0].file, offset, bytes(data[: end - offset]), np.array(begins, bool), first
        )

    for records, starts in _begun(spec, windows, data):
        for record, start in zip(records, starts.tolist(), strict=True):
            if start and (documents >= part_docs or size >= part_bytes):
                yield run(record.offset)
                del data[: record.offset - offset]
                first, offset = first + len(begins), record.offset
                begins, documents, size = [], 0, 0
            if start and total == spec.records:
                stop = record.offset
                break
            total, documents = total + start, documents + start
            size += max(0, len(record.data or b"") - _EXAMPLE_BYTES)
            begins.append(start)
        if stop is not None:
            break
    if begins:
        yield run(offset + len(data) if stop is None else stop)


def _begun(
    spec: BlockSpec, windows: bool, data: bytearray
) -> Iterator[tuple[list[Record], np.ndarray]]:
    """The records of a file, and which of them begin a document; `data` gets the file's bytes."""
    piece = spec.slices[0]
    previous = None

    def pieces() -> Iterator[bytes]:
        for stored in stored_pieces(piece, spec.compression, _PIECE):
            data.extend(stored)
            yield stored

    try:
        for records in unframed(pieces()):
            yield records, document_begins(records, windows, previous)
            previous = records[-1]
    except ValueError as error:
        if str(error).startswith(piece.info.path):
            raise
        raise InputError(f"{piece.info.path} is not a complete TFRecord file: {error}") from error


def limit_examples(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """Limits a file to its first `limit` documents; returns it and how many it then has."""
    spec = whole_file(replace(file, records=limit))
    documents = sum(run.count for run in _document_runs(spec, _COUNTED, 1 << 62, windows=True))
    return replace(file, records=documents), documents


def whole_file(file: InputFile) -> BlockSpec:
    """The block of one file alone."""
    piece = Slice(0, file.info, 0, file.stop)
    return BlockSpec(0, file.format, (piece,), file.compression, file.records, read_through=True)


def first_records(file: InputFile) -> list[Record]:
    """Some records from the start of a file; InputError if it is no TFRecord file."""
    records = _begun(whole_file(file), windows=False, data=bytearray())
    return next((listed for listed, _ in records), [])
