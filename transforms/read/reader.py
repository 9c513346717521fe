"""Reads blocks and parses their records into documents."""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Any

from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.cut_files import cut_part
from bert_embed.transforms.read.jsonl import parse_jsonl
from bert_embed.transforms.read.lines import Lines, read_parts
from bert_embed.transforms.read.parsed import Documents, join_documents
from bert_embed.transforms.read.tables.csv_cutter import QUOTED, Quoting
from bert_embed.transforms.read.tables.csv_records import CsvRecords, parse_csv, read_csv_parts
from bert_embed.transforms.read.tables.parquet_rows import parse_rows, read_row_parts
from bert_embed.transforms.read.text import parse_text, reject_large
from bert_embed.transforms.read.whole_files import parse_file, read_file_parts
from bert_embed.transforms.records.documents import DocumentBlock
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.read_part import ReadPart
from bert_embed.transforms.records.skip import without_skipped
from bert_embed.transforms.records.spec import WHOLE_FILES, BlockSpec

_PARSERS: dict[str, Callable[[Any, Columns], Documents]] = {
    "text": parse_text,
    WHOLE_FILES: parse_file,
    "jsonl": parse_jsonl,
    "csv": parse_csv,
    "parquet": parse_rows,
}


def document_blocks(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int, done: Container[int]
) -> Iterator[DocumentBlock]:
    """Reads a block and parses its parts, without those in `done` and what it skips."""
    started = time.perf_counter()
    for part in parts_of(spec, columns, part_docs, block_bytes):
        if part.number in done:
            continue
        yield without_skipped(parse_part(spec, part, columns, started), spec.skipped)
        started = time.perf_counter()


def parts_of(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int
) -> Iterator[ReadPart[Any]]:
    """Reads a block as parts that are not parsed yet."""
    if spec.cut is not None:
        return iter([cut_part(spec, spec.cut)])
    if spec.format == WHOLE_FILES:
        return read_file_parts(spec, part_docs)
    if spec.format == "parquet":
        return read_row_parts(spec, columns, part_docs, block_bytes)
    return read_records(spec, part_docs, block_bytes, quoting_of(columns))


def quoting_of(columns: Columns) -> Quoting:
    """How fields of CSV are quoted."""
    return Quoting(columns.csv_quoting == "minimal", columns.csv_escape)


def parse_part(
    spec: BlockSpec, content: ReadPart[Any], columns: Columns, started: float
) -> DocumentBlock:
    """Parses the records of a part, whose reading began at `started`; bad ones are rejected."""
    parsed = [_parse(spec.format, piece, columns) for piece in content.contents]
    documents = join_documents(parsed, columns)
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


def read_records(
    spec: BlockSpec, part_docs: int, block_bytes: int, quoting: Quoting = QUOTED
) -> Iterator[ReadPart[Any]]:
    """Reads a block of lines or of CSV."""
    if spec.format == "csv":
        return read_csv_parts(spec, part_docs, block_bytes, quoting)
    return read_parts(spec, part_docs, block_bytes)


def document_block(part: Part, documents: Documents) -> DocumentBlock:
    """The documents of a part."""
    counted = ("rejected", "unfit")
    columns = {name: column for name, column in vars(documents).items() if name not in counted}
    return DocumentBlock(part, **columns)


def _parse(kind: str, content: Any, columns: Columns) -> Documents:
    if isinstance(content, (Lines, CsvRecords)) and content.too_large:
        place_is_id = kind == "text" or columns.id is None
        return reject_large(content.path, content.offset, place_is_id)
    return _PARSERS[kind](content, columns)
