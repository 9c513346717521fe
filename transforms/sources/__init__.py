"""ReadBlocks: a BlockSpec in, the DocumentBlocks of its parts out."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.accounting import BlockReport, finished_parts, is_complete
from transforms.block_coder import passed_as_block
from transforms.block_spec import BlockSpec
from transforms.discretion import Discreet
from transforms.known import without_known
from transforms.part import Part
from transforms.sources.columns import Columns
from transforms.sources.csv_records import parse_csv, read_csv_parts
from transforms.sources.documents import Documents, join_documents
from transforms.sources.jsonl import parse_jsonl
from transforms.sources.lines import Lines, read_parts
from transforms.sources.parquet_rows import parse_rows, read_row_parts
from transforms.sources.parts import ReadPart
from transforms.sources.text import parse_text, refuse_large
from transforms.under_way import under_way

_PARSERS: dict[str, Callable[[Any, Columns], Documents]] = {
    "jsonl": parse_jsonl,
    "csv": parse_csv,
    "parquet": parse_rows,
}


@dataclass(frozen=True)
class DocumentBlock:
    """The documents of a part, as columns.

    Attributes:
        part: What was read and refused so far.
        ids: Arrow strings `[documents]`, unique in the run where the input's are.
        texts: The texts, none of them blank.
        sources: Arrow strings `[documents]`, file and position of each.
        texts_b: The second texts, "" for a document without; None if the run has no pairs.
        words: The words of a text that came as a list of words (some may be empty), None for any
            other text; None if no text of the part came so.
        spans: Code points `[start, stop)` in the text; None if none are asked for.
        line_numbers: int64 `[documents]`, number of each one's line in its file, from 0, where
            every line counts; None if they are not asked for.
        extra: Columns of the input that go with the vectors, a row a document; None if none are
            asked for.
    """

    part: Part
    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    line_numbers: np.ndarray | None = None
    extra: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.texts)


@dataclass
class ReadBlocks(beam.PTransform):
    """BlockSpecs to the documents that are still to do.

    Gives a dict: `documents`, and `finished`, the reports of parts that an earlier attempt of
    this run has written already. That is asked here, too, in the stage that computes: the plan
    has kept back the blocks that were finished when it was made, a repeated bundle finds others.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run; reports of another one do not count.
        columns: Where the fields of a record stand.
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

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        passed_as_block(DocumentBlock)
        read = specs | "Read" >> beam.ParDo(_Read(self)).with_outputs("finished", main="documents")
        read.documents.element_type = DocumentBlock
        return {"documents": read.documents, "finished": read.finished}


class _Read(beam.DoFn):
    def __init__(self, settings: ReadBlocks) -> None:
        self._output, self._run = settings.output, settings.run
        self._columns = settings.columns
        self._part_docs, self._block_bytes = settings.part_docs, settings.block_bytes
        self._examples = settings.examples

    def process(
        self, spec: BlockSpec
    ) -> Iterator[DocumentBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]]:
        done = finished_parts(self._output, self._run, spec, self._examples)
        for report in done.values():
            yield beam.pvalue.TaggedOutput("finished", report)
        if is_complete(spec, done):
            return
        blocks = document_blocks(spec, self._columns, self._part_docs, self._block_bytes, done)
        with Discreet("read"), under_way(self._output, self._run, spec):
            for block in blocks:
                yield without_known(block, spec.known)


def document_blocks(
    spec: BlockSpec,
    columns: Columns,
    part_docs: int,
    block_bytes: int,
    done: dict[int, BlockReport],
) -> Iterator[DocumentBlock]:
    """Reads a block and parses its parts, but those that are done."""
    started = time.perf_counter()
    for content in _parts(spec, columns, part_docs, block_bytes):
        if content.number in done:
            continue
        block = parse_part(spec, content, columns, time.perf_counter() - started)
        yield block
        started = time.perf_counter()


def _parts(
    spec: BlockSpec, columns: Columns, part_docs: int, block_bytes: int
) -> Iterator[ReadPart[Any]]:
    if spec.format == "csv":
        return read_csv_parts(spec, part_docs, block_bytes)
    if spec.format == "parquet":
        return read_row_parts(spec, columns, part_docs, block_bytes)
    return read_parts(spec, part_docs, block_bytes)


def parse_part(
    spec: BlockSpec, content: ReadPart[Any], columns: Columns, seconds: float
) -> DocumentBlock:
    """The records of a part to its documents; what is none is rejected with its place."""
    started = time.perf_counter()
    found = [_parse(spec.format, each, columns) for each in content.contents]
    documents = join_documents(found, columns)
    covered: dict[int, int] = {}
    for each in content.contents:
        covered[each.file] = covered.get(each.file, 0) + each.size
    part = Part(
        block=spec.number,
        number=content.number,
        last=content.last,
        records=sum(each.count for each in content.contents),
        covered={} if spec.read_through else covered,
        end_of_file=content.end_of_file,
        rejected=tuple(documents.rejected),
        seconds={"read": seconds + time.perf_counter() - started},
    )
    return document_block(part, documents, spec.numbered)


def document_block(part: Part, documents: Documents, numbered: bool) -> DocumentBlock:
    """The documents as they travel on, with the numbers of their lines where these are known."""
    return DocumentBlock(
        part,
        documents.ids,
        documents.texts,
        documents.sources,
        documents.texts_b,
        documents.words,
        documents.spans,
        documents.line_numbers if numbered else None,
        documents.extra,
    )


def _parse(kind: str, content: Any, columns: Columns) -> Documents:
    if isinstance(content, Lines) and content.too_large:
        return refuse_large(content, place_is_id=kind == "text" or columns.id is None)
    if kind == "text":
        return parse_text(content, columns.pair_separator)
    return _PARSERS[kind](content, columns)
