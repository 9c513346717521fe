"""Writes tokenized examples."""

from dataclasses import dataclass

from bert_embed.transforms.examples.encode import example_bytes
from bert_embed.transforms.output_folder import EXAMPLES, OutputFile, OutputFolder
from bert_embed.transforms.records.tokens import TokenBlock


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
