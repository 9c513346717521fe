"""ReadBlocks: a BlockSpec in, the DocumentBlocks of its parts out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.accounting import BlockReport, finished_parts, is_complete
from transforms.block_spec import BlockSpec
from transforms.part import Part
from transforms.sources.documents import Documents, join_documents
from transforms.sources.jsonl import Columns, parse_jsonl
from transforms.sources.lines import Lines, PartLines, read_parts
from transforms.sources.text import parse_text


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
    """

    part: Part
    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    line_numbers: np.ndarray | None = None

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
    """

    output: str
    run: str
    columns: Columns
    part_docs: int
    block_bytes: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        read = specs | "Read" >> beam.ParDo(_Read(self)).with_outputs("finished", main="documents")
        return {"documents": read.documents, "finished": read.finished}


class _Read(beam.DoFn):
    def __init__(self, settings: ReadBlocks) -> None:
        self._output, self._run = settings.output, settings.run
        self._columns = settings.columns
        self._part_docs, self._block_bytes = settings.part_docs, settings.block_bytes

    def process(
        self, spec: BlockSpec
    ) -> Iterator[DocumentBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]]:
        done = finished_parts(self._output, self._run, spec)
        for report in done.values():
            yield beam.pvalue.TaggedOutput("finished", report)
        if is_complete(spec, done):
            return
        yield from document_blocks(spec, self._columns, self._part_docs, self._block_bytes, done)


def document_blocks(
    spec: BlockSpec,
    columns: Columns,
    part_docs: int,
    block_bytes: int,
    done: dict[int, BlockReport],
) -> Iterator[DocumentBlock]:
    """Reads a block and parses its parts, but those that are done."""
    started = time.perf_counter()
    for content in read_parts(spec, part_docs, block_bytes):
        if content.number in done:
            continue
        block = parse_part(spec, content, columns, time.perf_counter() - started)
        yield block
        started = time.perf_counter()


def parse_part(
    spec: BlockSpec, content: PartLines, columns: Columns, seconds: float
) -> DocumentBlock:
    """The lines of a part to its documents; what is no document is rejected with its place."""
    started = time.perf_counter()
    found = [_parse(spec.format, lines, columns) for lines in content.lines]
    documents = join_documents(found, columns.has_pairs, columns.spans is not None)
    covered: dict[int, int] = {}
    for lines in content.lines:
        covered[lines.file] = covered.get(lines.file, 0) + len(lines.data)
    part = Part(
        block=spec.number,
        number=content.number,
        last=content.last,
        records=sum(lines.count for lines in content.lines),
        covered={} if spec.read_through else covered,
        end_of_file=content.end_of_file,
        rejected=tuple(documents.rejected),
        seconds={"read": seconds + time.perf_counter() - started},
    )
    return DocumentBlock(
        part,
        documents.ids,
        documents.texts,
        documents.sources,
        documents.texts_b,
        documents.words,
        documents.spans,
        documents.line_numbers if spec.numbered else None,
    )


def _parse(kind: str, lines: Lines, columns: Columns) -> Documents:
    if kind == "jsonl":
        return parse_jsonl(lines, columns)
    return parse_text(lines, columns.pair_separator)
