"""Reads blocks of any format and parses their records into documents.

A file that can only be read from its start is cut once, for many workers. The parts of a compressed
one go to the run's own folder, those of another are read from where they are; memory holds one.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.base.errors import StorageError
from bert_embed.storage.files import for_each, open_listed, read_bytes
from bert_embed.storage.local import crc32c_of_bytes
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock, rows_of_part, without_skipped
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import (
    TFRECORD,
    WHOLE_FILES,
    BlockSpec,
    CutPart,
    Part,
    ReadPart,
    Rejected,
    Slice,
)
from bert_embed.transforms.read import examples, lines
from bert_embed.transforms.read.columns import PLAIN, Columns
from bert_embed.transforms.read.csv import Dialect, block_records, parse_csv
from bert_embed.transforms.read.parquet import parse_rows, read_row_parts
from bert_embed.transforms.read.records import Documents, join_documents, loaded
from bert_embed.transforms.read.streams import check_encoding

_CODEC = "lz4"  # half of the text's size in half of the time that zstd takes


def cut_file(
    spec: BlockSpec,
    read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]],
    folder: OutputFolder,
) -> Iterator[BlockSpec]:
    """Reads a file once; a BlockSpec for each part not done, its text in `folder`."""
    stored = spec.compression is not None
    done = frozenset(spec.done)

    def cuts() -> Iterator[tuple[CutPart, bytes]]:
        started = time.perf_counter()
        for part in read_parts(spec):
            if part.number not in done:
                data = b"".join(content.data for content in part.contents)
                bare = tuple(content.with_data(b"") for content in part.contents)
                seconds = time.perf_counter() - started
                yield CutPart(replace(part, contents=bare, seconds=seconds), len(data)), data
            started = time.perf_counter()

    def store(item: tuple[CutPart, bytes]) -> CutPart:
        cut, data = item
        if not stored or not data:
            return cut
        small = pa.compress(data, codec=_CODEC, asbytes=True)
        folder.write_text(spec.number, cut.part.number, small)
        return replace(cut, folder=folder.path, crc32c=crc32c_of_bytes(small))

    for cut in for_each(folder.path if stored else "", store, cuts()):
        yield replace(spec, spread=False, done=(), cut=cut)


def cut_part(spec: BlockSpec, cut: CutPart) -> ReadPart[Any]:
    """The one part of a BlockSpec that `cut_file` gave, with its bytes."""
    if not cut.size:
        return cut.part
    (records,) = cut.part.contents
    if cut.folder is None:
        with open_listed(spec.slices[0].info) as file:
            file.seek(records.offset)
            data = file.read(cut.size)
    else:
        path = OutputFolder(cut.folder).text(spec.number, cut.part.number)
        if (stored := read_bytes(path)) is None:
            raise FileNotFoundError(f"{path} is gone; the same command writes it again")
        if crc32c_of_bytes(stored) != cut.crc32c:
            raise StorageError(f"{path} is not as it was written; the same command writes it again")
        data = pa.decompress(stored, cut.size, codec=_CODEC, asbytes=True)
    return replace(cut.part, contents=(records.with_data(data),))


_PIECE = 1 << 20  # bytes read at a time


def _whole_file(piece: Slice, compression: str | None) -> lines.Lines:
    """A file, decompressed: one document, also if it is empty."""
    pieces = lines.stored_pieces(piece, compression, _PIECE)
    first = next(pieces, b"")
    check_encoding(piece.info.path, first)
    every = lines.whole_records(piece, 0, chain([first], pieces), lambda _: lines.NO_STARTS)
    return next(every, lines.Lines(piece.file, piece.info.path, 0, b"", lines.ONE_START))


def parse_file(content: lines.Lines, columns: Columns) -> Documents:
    """Parses a file; one that is blank, too large or not UTF-8 is rejected."""
    path, place, none = content.path, f"{content.path}:0", pa.array([], pa.string())
    text = lines.decoded(content.data.removeprefix(lines.BOM))
    if isinstance(text, str) and text.strip():
        return Documents(pa.array([path]), [text], pa.array([place]), [])
    rejected = lines.rejected_text(place, text, path)
    if content.too_large:
        rejected = Rejected(path, place, "read", lines.TOO_LARGE)
    elif isinstance(text, str):
        rejected = replace(rejected, record=None)
    return Documents(none, [], none, [rejected])


_PARSERS: dict[str, Callable[[Any, Columns], Documents]] = {
    "text": lines.parse_text,
    WHOLE_FILES: parse_file,
    "jsonl": lines.parse_jsonl,
    "csv": parse_csv,
    "parquet": parse_rows,
}


def document_blocks(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int, done: Container[int]
) -> Iterator[DocumentBlock]:
    """Reads a block and parses its parts, without those in `done` and what it skips."""
    for part, started in _timed(parts_of(spec, part_docs, block_bytes, columns), done):
        yield without_skipped(parse_part(spec, part, columns, started), spec.skipped)


def example_blocks(
    spec: BlockSpec,
    reading: examples.ExampleReading,
    part_docs: int,
    block_bytes: int,
    done: Container[int],
    skip_blocks: Collection[int] = (),
) -> Iterator[TokenBlock]:
    """Reads a block of examples likewise; all documents of `skip_blocks` are rejected."""
    path = spec.slices[0].info.path
    parts = parts_of(spec, part_docs, block_bytes, windows=reading.windows)
    for content, started in _timed(parts, done):
        part = Part(spec.number, content.number, content.last, end_of_file=content.end_of_file)
        existing = rows_of_part(np.frombuffer(spec.skipped, np.int64), content.number)
        [run] = content.contents or [examples.NO_RECORDS]
        settings = run.first, reading, existing, spec.number in skip_blocks
        block = examples.example_block(part, path, run.records, run.begins, *settings)
        seconds = content.seconds + time.perf_counter() - started
        yield replace(block, part=block.part.then("read", seconds))


def _timed(
    parts: Iterable[ReadPart[Any]], done: Container[int]
) -> Iterator[tuple[ReadPart[Any], float]]:
    """The parts that are not `done`, and when the reading of each began."""
    started = time.perf_counter()
    for part in parts:
        if part.number not in done:
            yield part, started
            started = time.perf_counter()


def parts_of(
    spec: BlockSpec,
    part_docs: int,
    block_bytes: int,
    columns: Columns = PLAIN,
    windows: bool = True,
) -> Iterator[ReadPart[Any]]:
    """Reads a block as parts of at most so many documents, which are not parsed yet.

    A part is also closed at about `block_bytes` of text, of a file that is read through, of
    Parquet and of examples. With `windows` a document may have several examples.
    """
    if spec.cut is not None:
        return iter([cut_part(spec, spec.cut)])
    if spec.format == "parquet":
        return read_row_parts(spec, columns, part_docs, block_bytes)
    contents: Iterator[Any]
    if spec.format == TFRECORD:
        contents = examples.document_runs(spec, part_docs, block_bytes, windows)
    elif spec.format == WHOLE_FILES:
        read = partial(_whole_file, compression=spec.compression)
        contents = for_each(spec.slices[0].info.path, read, spec.slices)
    elif spec.format == "csv":
        contents = block_records(spec, block_bytes, dialect_by(columns))
    else:
        contents = lines.block_lines(spec, block_bytes)
    return (lines.parts_read_through if spec.read_through else lines.parts_in_order)(
        contents, part_docs
    )


def dialect_by(columns: Columns) -> Dialect:
    """How fields of CSV are quoted."""
    return Dialect(
        columns.csv_quoting in ("minimal", "escaped"),
        "\\" if columns.csv_quoting in ("escaped", "dump") else None,
        separator=columns.csv_separator,
        header=columns.csv_header,
    )


def parse_part(
    spec: BlockSpec, content: ReadPart[Any], columns: Columns, started: float
) -> DocumentBlock:
    """Parses the records of a part, whose reading began at `started`; bad ones are rejected."""
    parse, place_is_id = _PARSERS[spec.format], spec.format == "text" or columns.id is None
    is_cut = spec.format not in (WHOLE_FILES, "parquet")
    parsed = [
        lines.reject_large(piece.path, piece.offset, place_is_id)
        if is_cut and piece.too_large
        else parse(piece, columns)
        for piece in content.contents
    ]
    documents = join_documents(parsed, columns)
    if columns.base:
        documents = _with_relative_ids(documents, columns.base)
    if columns.loads:
        documents = loaded(documents)
    covered: Counter[int] = Counter()
    for piece in content.contents:
        covered[piece.file] += piece.size
    part = Part(
        block=spec.number,
        number=content.number,
        last=content.last,
        records=sum(piece.count for piece in content.contents),
        covered={} if spec.read_through else dict(covered),
        end_of_file=content.end_of_file,
        rejected=tuple(documents.rejected),
        unfit=dict(documents.unfit),
        seconds={"read": content.seconds + time.perf_counter() - started},
    )
    return document_block(part, documents)


def _with_relative_ids(documents: Documents, base: str) -> Documents:
    """Documents that are named by places, which begin with a folder: without it."""
    rejected = [replace(one, id=one.id and one.id.removeprefix(base)) for one in documents.rejected]
    ids = pc.utf8_slice_codeunits(documents.ids, len(base))
    return replace(documents, ids=ids, rejected=rejected)


def document_block(part: Part, documents: Documents) -> DocumentBlock:
    """The documents of a part."""
    counted = ("rejected", "unfit")
    columns = {name: column for name, column in vars(documents).items() if name not in counted}
    return DocumentBlock(part, **columns)
