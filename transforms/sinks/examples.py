"""Examples out: WriteExamples as the end of a job, KeepExamples on the way to the model."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import apache_beam as beam

from transforms.accounting import (
    BlockReport,
    length_histogram,
    part_report,
    report_bytes,
    report_path,
)
from transforms.dead_letter import rejected_lines
from transforms.examples import example_bytes
from transforms.files import join, make_folder, write_bytes
from transforms.metrics import count_report
from transforms.sinks.tfrecord import compressed, suffix
from transforms.tokenization import TokenBlock


@dataclass(frozen=True)
class ExampleFiles:
    """Where examples go.

    Attributes:
        folder: Local or gs://.
        tokenizer: Fingerprint that each example carries.
        compression: `gzip` or `none`.
    """

    folder: str
    tokenizer: str
    compression: str = "none"

    def write(self, block: TokenBlock) -> dict[str, int]:
        """Writes a block's file, none for a block without documents; its name and bytes."""
        if not len(block):
            return {}
        name = f"examples-{block.part.name}{suffix(self.compression)}"
        data = compressed(example_bytes(block, self.tokenizer).tobytes(), self.compression)
        return {name: write_bytes(join(self.folder, name), data)}


@dataclass
class WriteExamples(beam.PTransform):
    """Each TokenBlock to a file of examples, one of rejected records if there are any, its report.

    Attributes:
        output: Folder of the run's output.
        run: Fingerprint of the run, kept in each report.
        files: How examples are written; into `output`.
    """

    output: str
    run: str
    files: ExampleFiles

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[BlockReport]:
        return blocks | "Write" >> beam.ParDo(_Write(self))


class _Write(beam.DoFn):
    def __init__(self, settings: WriteExamples) -> None:
        self._output, self._run, self._files = settings.output, settings.run, settings.files

    def setup(self) -> None:
        make_folder(join(self._output, "blocks"))

    def process(self, block: TokenBlock) -> Iterator[BlockReport]:
        report = write_examples(block, self._output, self._run, self._files)
        count_report(report)
        yield report


def write_examples(block: TokenBlock, output: str, run: str, files: ExampleFiles) -> BlockReport:
    """Writes the files of a part, the report last: it is the mark that the part is done."""
    started = time.perf_counter()
    written = files.write(block)
    if block.part.rejected:
        name = f"rejected-{block.part.name}.jsonl"
        written[name] = write_bytes(join(output, name), rejected_lines(block.part.rejected))
    num_tokens = block.layout.num_tokens
    report = part_report(
        block.part.then("write", time.perf_counter() - started),
        embedded=len(block),
        truncated=int(block.layout.truncated.sum()),
        tokens=int(num_tokens.sum()),
        lengths=length_histogram(num_tokens),
        files=written,
    )
    write_bytes(report_path(output, block.part.block, block.part.number), report_bytes(report, run))
    return report


@dataclass
class KeepExamples(beam.PTransform):
    """TokenBlocks to themselves, each written to a file that its part's report will list.

    Attributes:
        files: How examples are written.
    """

    files: ExampleFiles

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[TokenBlock]:
        return blocks | "Keep" >> beam.ParDo(_Keep(self.files))


class _Keep(beam.DoFn):
    def __init__(self, files: ExampleFiles) -> None:
        self._files = files

    def setup(self) -> None:
        make_folder(self._files.folder)

    def process(self, block: TokenBlock) -> Iterator[TokenBlock]:
        yield kept(block, self._files)


def kept(block: TokenBlock, files: ExampleFiles) -> TokenBlock:
    """Writes a block's examples and notes the file in its part."""
    started = time.perf_counter()
    part = replace(block.part, files=block.part.files | files.write(block))
    return replace(block, part=part.then("keep", time.perf_counter() - started))
