"""Rejects all documents of the blocks that --skip_blocks names."""

from dataclasses import dataclass, replace

import apache_beam as beam
import numpy as np

from bert_embed.transforms.records.columnar import take
from bert_embed.transforms.records.documents import DocumentBlock
from bert_embed.transforms.records.rejected import BLOCK_SKIPPED, Rejected
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors


@dataclass
class SkipBlocks(Step):
    """Rejects every document of some blocks before the tokenizer and the model see them.

    For blocks that crash or hang every worker that takes them: the rest of the run can finish, and
    the files of rejected records name the documents.
    """

    blocks: tuple[int, ...]

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[DocumentBlock]:
        return blocks | "SkipBlocks" >> beam.Map(_without, self.blocks)


def _without(block: DocumentBlock, numbers: tuple[int, ...]) -> DocumentBlock:
    with RedactErrors("skip blocks"):
        return without_documents(block) if block.part.block in numbers else block


def without_documents(block: DocumentBlock) -> DocumentBlock:
    """A part all of whose documents are rejected."""
    rejected = tuple(
        Rejected(name, source, "read", BLOCK_SKIPPED, text)
        for name, source, text in zip(
            block.ids.to_pylist(), block.sources.to_pylist(), block.texts, strict=True
        )
    )
    part = replace(block.part, rejected=block.part.rejected + rejected)
    return replace(take(block, np.zeros(0, np.int64)), part=part)
