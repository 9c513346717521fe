"""Reads the blocks of a run that are not finished; what these steps call works without Beam."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam

from bert_embed.transforms.crash_markers import crash_marker
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from bert_embed.transforms.records.block_coder import passed_as_block
from bert_embed.transforms.records.documents import DocumentBlock
from bert_embed.transforms.records.finished import finished_parts, is_complete
from bert_embed.transforms.records.report import BlockReport
from bert_embed.transforms.records.skip import without_skipped
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.redact import RedactErrors


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
