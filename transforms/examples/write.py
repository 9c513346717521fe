"""Writes tokenized examples: as a job's output, or as a copy on the way to the model."""

import time
from dataclasses import dataclass, replace

from bert_embed.transforms.examples.encode import example_bytes
from bert_embed.transforms.output_folder import EXAMPLES, OutputFile, OutputFolder
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.redact import RedactErrors


@dataclass(frozen=True)
class ExampleFiles:
    """Where and how examples are written.

    Attributes:
        folder: Local or gs://.
        tokenizer: Fingerprint of the tokenizer, stored in each example.
    """

    folder: str
    tokenizer: str

    def write(self, block: TokenBlock) -> dict[str, OutputFile]:
        """Writes a block's file and returns its name and facts; none without documents."""
        if not len(block):
            return {}
        windows = block.layout.windows
        data = example_bytes(block, self.tokenizer)
        return OutputFolder(self.folder).write(
            EXAMPLES,
            block.part.block,
            block.part.number,
            ".tfrecord",
            lambda file: file.write(data),
            len(block) if windows is None else len(windows.document),
        )


def keep_examples(block: TokenBlock, files: ExampleFiles) -> TokenBlock:
    """Writes the examples of a block on its way to the model; its record names the file."""
    started = time.perf_counter()
    with RedactErrors("keep"):
        part = replace(block.part, files=block.part.files | files.write(block))
    return replace(block, part=part.then("keep", time.perf_counter() - started))
