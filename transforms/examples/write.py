"""Writes tokenized examples: as a job's output, or as a copy on the way to the model."""

import time
from dataclasses import dataclass, field, replace

import apache_beam as beam

from bert_embed.transforms.examples.encode import example_bytes
from bert_embed.transforms.output_folder import EXAMPLES, OutputFile, OutputFolder
from bert_embed.transforms.records.report import BlockReport
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.write.tfrecord import compressed, suffix
from bert_embed.transforms.write.writer import Counting, WriteParts


@dataclass(frozen=True)
class ExampleFiles:
    """Where and how examples are written.

    Attributes:
        folder: Local or gs://.
        tokenizer: Fingerprint of the tokenizer, stored in each example.
        compression: `gzip` or `none`.
    """

    folder: str
    tokenizer: str
    compression: str = "none"

    def write(self, block: TokenBlock) -> dict[str, OutputFile]:
        """Writes a block's file and returns its name and facts; none without documents."""
        if not len(block):
            return {}
        windows = block.layout.windows
        data = compressed(example_bytes(block, self.tokenizer).tobytes(), self.compression)
        return OutputFolder(self.folder).write(
            EXAMPLES,
            block.part.block,
            block.part.number,
            suffix(self.compression),
            lambda file: file.write(data),
            len(block) if windows is None else len(windows.document),
        )


@dataclass
class WriteExamples(Step):
    """Writes a file of examples for each TokenBlock, its rejected records, and its report.

    Attributes:
        output, run: Folder and fingerprint of the run.
        files: How examples are written; into `output`.
        counting: How different texts and ids are counted.
    """

    output: str
    run: str
    files: ExampleFiles
    counting: Counting = field(default_factory=Counting)

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[BlockReport]:
        return blocks | "Write" >> beam.ParDo(
            WriteParts(self.output, self.run, self.files.write, self.counting)
        )


@dataclass
class KeepExamples(Step):
    """Writes the examples of TokenBlocks and passes the blocks on; their reports name the files."""

    files: ExampleFiles

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[TokenBlock]:
        return blocks | "Keep" >> beam.Map(_keep, self.files)


def _keep(block: TokenBlock, files: ExampleFiles) -> TokenBlock:
    started = time.perf_counter()
    with RedactErrors("keep"):
        part = replace(block.part, files=block.part.files | files.write(block))
    return replace(block, part=part.then("keep", time.perf_counter() - started))
