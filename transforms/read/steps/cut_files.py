"""Cuts the files of a run that can only be read from their start."""

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam

from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.cut_files import cut_file
from bert_embed.transforms.records.finished import finished_parts
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors


@dataclass
class CutFiles(Step):
    """Reads files that several readers share, once, and tells each reader where its parts are.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run, whose finished parts are left out; "" leaves out none.
        part_docs: As `ReadBlocks` has it.
        block_bytes: Likewise.
        examples: Likewise.
    """

    output: str
    run: str
    part_docs: int
    block_bytes: int
    examples: str | None = None

    def expand(
        self, readers: beam.PCollection[tuple[BlockSpec, ...]]
    ) -> beam.PCollection[BlockSpec]:
        folder = OutputFolder(self.output, self.examples)
        cut = _Cut(folder, self.run, self.part_docs, self.block_bytes)
        return (
            readers
            | "SpreadFiles" >> beam.Reshuffle()
            | "Cut" >> beam.ParDo(cut)
            | "Spread" >> beam.Reshuffle()
        )


class _Cut(beam.DoFn):
    def __init__(self, folder: OutputFolder, run: str, part_docs: int, block_bytes: int) -> None:
        self._folder, self._run = folder, run
        self._part_docs, self._block_bytes = part_docs, block_bytes

    def process(self, readers: tuple[BlockSpec, ...]) -> Iterator[BlockSpec]:
        folder, run = self._folder, self._run
        with RedactErrors("read"):
            done = {part for spec in readers for part in finished_parts(folder, run, spec)}
            yield from cut_file(readers, folder, self._part_docs, self._block_bytes, done)
