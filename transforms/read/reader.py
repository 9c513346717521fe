"""Reads the blocks of a run and parses their records into documents."""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam

from transforms.crash_markers import crash_marker
from transforms.output_folder import OutputFolder
from transforms.read.columns import Columns
from transforms.read.cut_files import parts_of_cut, read_records
from transforms.read.documents import Documents, join_documents
from transforms.read.jsonl import parse_jsonl
from transforms.read.lines import Lines
from transforms.read.parts import ReadPart
from transforms.read.tables.csv_records import CsvRecords, parse_csv
from transforms.read.tables.parquet_rows import parse_rows, read_row_parts
from transforms.read.text import parse_text, reject_large
from transforms.read.whole_files import parse_file, read_file_parts
from transforms.records.block_coder import passed_as_block
from transforms.records.documents import DocumentBlock
from transforms.records.finished import finished_parts, is_complete
from transforms.records.part import Part
from transforms.records.report import BlockReport
from transforms.records.skip import without_skipped
from transforms.records.spec import WHOLE_FILES, BlockSpec
from transforms.records.step import Step
from transforms.records.tokens import TokenBlock
from transforms.redact import RedactErrors

_PARSERS: dict[str, Callable[[Any, Columns], Documents]] = {
    "text": parse_text,
    WHOLE_FILES: parse_file,
    "jsonl": parse_jsonl,
    "csv": parse_csv,
    "parquet": parse_rows,
}


@dataclass
class ReadBlocks(Step):
    """Reads the documents of BlockSpecs that are not finished.

    Gives a dict: `documents`, and `finished`, as `read_unfinished` gives it.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run; reports of another run do not count.
        columns: Which fields of a record are read.
        part_docs: A part is closed at so many documents.
        block_bytes: A part of a file read through is closed at so many bytes of text.
        examples: Folder where the run keeps its examples, None if it keeps none.
    """

    output: str
    run: str
    columns: Columns
    part_docs: int
    block_bytes: int
    examples: str | None = None

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        settings = self.columns, self.part_docs, self.block_bytes

        def read(spec: BlockSpec, done: Container[int]) -> Iterator[DocumentBlock]:
            for block in document_blocks(spec, *settings, done):
                yield without_skipped(block, spec.skipped)

        folder = OutputFolder(self.output, self.examples)
        documents, finished = read_unfinished(specs, folder, self.run, read, DocumentBlock)
        return {"documents": documents, "finished": finished}


def read_unfinished(
    elements: beam.PCollection,
    folder: OutputFolder,
    run: str,
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]],
    block: type,
    spec_of: Callable[[Any], BlockSpec] | None = None,
) -> tuple[beam.PCollection, beam.PCollection]:
    """Reads blocks of any input, but for the parts that earlier attempts of the run finished.

    The plan holds back the blocks that were finished when it was made; this step looks again,
    because a bundle may be retried.

    Args:
        elements: BlockSpecs, or what `spec_of` takes.
        folder: Of the run's output.
        run: Fingerprint of the run; reports of another run do not count.
        read: Reads an element to blocks of this type, without the parts of these numbers.
        block: The type.
        spec_of: Gives the BlockSpec of an element.

    Returns:
        What was read, and the BlockReports of the finished parts.
    """
    passed_as_block(block)
    step = beam.ParDo(_Read(folder, run, read, spec_of))
    outputs = elements | "Read" >> step.with_outputs("finished", main="blocks")
    outputs.blocks.element_type = block
    return outputs.blocks, outputs.finished


class _Read(beam.DoFn):
    """Reads one block; the only step that looks for finished parts and leaves crash markers."""

    def __init__(
        self,
        folder: OutputFolder,
        run: str,
        read: Callable[..., Iterator[DocumentBlock | TokenBlock]],
        spec_of: Callable[[Any], BlockSpec] | None,
    ) -> None:
        self._folder, self._run = folder, run
        self._read, self._spec_of = read, spec_of

    def process(
        self, element: Any
    ) -> Iterator[
        DocumentBlock | TokenBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]
    ]:
        spec = element if self._spec_of is None else self._spec_of(element)
        done = finished_parts(self._folder, self._run, spec)
        for report in done.values():
            yield beam.pvalue.TaggedOutput("finished", report)
        if not is_complete(spec, done):
            with RedactErrors("read"), crash_marker(self._folder.path, self._run, spec):
                yield from self._read(element, done)


def document_blocks(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int, done: Container[int]
) -> Iterator[DocumentBlock]:
    """Reads a block and parses its parts, without those in `done`."""
    started = time.perf_counter()
    for part in parts_of(spec, columns, part_docs, block_bytes, done):
        if part.number in done:
            continue
        yield parse_part(spec, part, columns, started)
        started = time.perf_counter()


def parts_of(
    spec: BlockSpec,
    columns: Columns,
    part_docs: int,
    block_bytes: int,
    done: Container[int] = (),
) -> Iterator[ReadPart[Any]]:
    """Reads a block as parts that are not parsed yet; those in `done` may be left out."""
    if spec.cut is not None:
        return parts_of_cut(spec, spec.cut, done)
    if spec.format == WHOLE_FILES:
        return read_file_parts(spec, part_docs)
    if spec.format == "parquet":
        return read_row_parts(spec, columns, part_docs, block_bytes)
    return read_records(spec, part_docs, block_bytes)


def parse_part(
    spec: BlockSpec, content: ReadPart[Any], columns: Columns, started: float
) -> DocumentBlock:
    """Parses the records of a part; one that gives no document is rejected with its place.

    `started` is the clock when the part's reading began.
    """
    parsed = [_parse(spec.format, each, columns) for each in content.contents]
    documents = join_documents(parsed, columns)
    covered: Counter[int] = Counter()
    for each in content.contents:
        covered[each.file] += each.size
    part = Part(
        block=spec.number,
        number=content.number,
        last=content.last,
        records=sum(each.count for each in content.contents),
        covered={} if spec.read_through else dict(covered),
        end_of_file=content.end_of_file,
        rejected=tuple(documents.rejected),
        seconds={"read": content.seconds + time.perf_counter() - started},
    )
    return document_block(part, documents, spec.numbered)


def document_block(part: Part, documents: Documents, numbered: bool) -> DocumentBlock:
    """The documents of a part; `numbered` keeps the numbers of their lines."""
    columns = {name: each for name, each in vars(documents).items() if name != "rejected"}
    if not numbered:
        columns["line_numbers"] = None
    return DocumentBlock(part, **columns)


def _parse(kind: str, content: Any, columns: Columns) -> Documents:
    if isinstance(content, (Lines, CsvRecords)) and content.too_large:
        place_is_id = kind == "text" or columns.id is None
        return reject_large(content.path, content.offset, place_is_id)
    return _PARSERS[kind](content, columns)
