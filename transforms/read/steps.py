"""Reads the parts of a run that are not finished; what this step calls works without Beam."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import apache_beam as beam

from bert_embed.transforms.blocks import DocumentBlock, TokenBlock
from bert_embed.transforms.crash_markers import crash_marker
from bert_embed.transforms.ledger import BlockRecord, finished_parts, is_complete
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BlockSpec
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.steps import passed_as_block


def read_unfinished(
    elements: beam.PCollection,
    folder: OutputFolder,
    run: str,
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]],
    block: type,
    spec_of: Callable[[Any], BlockSpec] | None = None,
) -> tuple[beam.PCollection, beam.PCollection]:
    """Reads blocks of any input, but for the parts that earlier attempts of the run finished.

    The plan holds back what was finished when it was made; this step looks again, because a bundle
    may be retried. `read` takes an element, a BlockSpec or what `spec_of` takes, and numbers of
    parts to leave out, and gives records of type `block`. Gives what was read, and finished
    BlockRecords.
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
        DocumentBlock | TokenBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockRecord]
    ]:
        spec = element if self._spec_of is None else self._spec_of(element)
        finished = finished_parts(self._folder, self._run, spec)
        for record in finished.values():
            yield beam.pvalue.TaggedOutput("finished", record)
        if not is_complete(spec, finished):
            done = {*spec.done, *finished}
            with RedactErrors("read"), crash_marker(self._folder.path, self._run, spec):
                yield from self._read(element, done)
