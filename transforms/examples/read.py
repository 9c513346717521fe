"""Reads tokenized examples from TFRecord files as TokenBlocks."""

import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bert_embed.formats.tfrecord import Record, unframed
from bert_embed.storage.errors import InputError
from bert_embed.transforms.examples.decode import ExampleReading, document_begins, example_block
from bert_embed.transforms.read.lines import stored_pieces
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.skip import rows_of_part
from bert_embed.transforms.records.spec import BlockSpec, InputFile, Slice
from bert_embed.transforms.records.tokens import TokenBlock

_PIECE = 1 << 20  # bytes read at a time
_COUNTED = 1024  # documents in memory while they are counted
# The bytes that an example has about without its text, and at most for each byte of its text.
_EXAMPLE_BYTES, _BYTES_OF_TEXT = 320, 8


def example_blocks(
    spec: BlockSpec,
    reading: ExampleReading,
    part_docs: int,
    block_bytes: int,
    done: Container[int],
    skipped: bool = False,
) -> Iterator[TokenBlock]:
    """Reads the parts of a file without those in `done`; `skipped` rejects all documents.

    Raises:
        ValueError: The file is not the one that was listed, is so damaged that the next record
            cannot be found, or holds examples of another tokenizer; the message names it.
    """
    started = time.perf_counter()
    path = spec.slices[0].info.path
    for content in record_parts(spec, part_docs, _BYTES_OF_TEXT * block_bytes, reading.windows):
        if content.number in done:
            continue
        part = Part(spec.number, content.number, content.last, end_of_file=content.end_of_file)
        existing = rows_of_part(np.frombuffer(spec.skipped, np.int64), content.number)
        numbers = content.begins, content.first_record
        block = example_block(part, path, content.records, *numbers, reading, existing, skipped)
        yield replace(block, part=block.part.then("read", time.perf_counter() - started))
        started = time.perf_counter()


@dataclass(frozen=True)
class RecordPart:
    """The records of one part, in the file's order: whole documents.

    Attributes:
        number, last, end_of_file: As in `bert_embed.transforms.records.read_part.ReadPart`.
        begins: bool `[records]`, which of them begin a document.
        first_record: Number of the first of them in the file.
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
    """Reads a TFRecord file; gives the parts of the reader's stripe, then an empty part.

    A part is closed at `part_docs` documents, or at `part_bytes` of records beyond what a record
    without text has. With `windows` a document may have several records.
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
    """Whole documents that fill a part, which records begin them, and the first record's number."""
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
        raise InputError(f"{piece.info.path} is not a complete TFRecord file: {error}") from error


def limit_examples(file: InputFile, limit: int) -> tuple[InputFile, int]:
    """Limits a file to its first `limit` documents; returns it and how many it then has."""
    spec = whole_file(replace(file, records=limit))
    found = sum(
        int(begins.sum()) for _, begins, _ in _document_runs(spec, _COUNTED, 1 << 62, windows=True)
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
