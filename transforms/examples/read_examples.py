"""Reads the examples of a run that are not finished."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

import apache_beam as beam

from bert_embed.transforms.examples.decode import ExampleReading
from bert_embed.transforms.examples.read import example_blocks
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.steps import read_unfinished
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.records.tokens import TokenBlock


@dataclass
class ReadExamples(Step):
    """Reads the rows of token ids of BlockSpecs that are not finished.

    Gives a dict: `tokens`, and `finished`, as `read_unfinished` gives it.

    Attributes:
        output, run, part_docs: As in `ReadBlocks`.
        reading: What examples must be, and which of their vectors are requested.
        block_bytes: A part is closed at examples of about so many bytes of text.
        skip_blocks: Numbers of blocks whose documents are rejected.
    """

    output: str
    run: str
    reading: ExampleReading
    part_docs: int
    block_bytes: int
    skip_blocks: tuple[int, ...] = ()

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        settings, skipped = (self.reading, self.part_docs, self.block_bytes), self.skip_blocks

        def read(spec: BlockSpec, done: Container[int]) -> Iterator[TokenBlock]:
            return example_blocks(spec, *settings, done, spec.number in skipped)

        folder = OutputFolder(self.output)
        tokens, finished = read_unfinished(specs, folder, self.run, read, TokenBlock)
        return {"tokens": tokens, "finished": finished}
