"""LeaveOut: DocumentBlocks in, the same without the documents of some blocks out."""

from dataclasses import dataclass, replace

import apache_beam as beam
import numpy as np

from transforms.dead_letter import LEFT_OUT, Rejected
from transforms.known import take_documents
from transforms.sources import DocumentBlock


@dataclass
class LeaveOut(beam.PTransform):
    """Rejects every document of some blocks, so that neither tokenizer nor model meets them.

    For blocks that kill or hold up whoever takes them: the rest of the run can end, and what was
    left out stands in the dead letter.

    Attributes:
        blocks: Their numbers.
    """

    blocks: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[DocumentBlock]:
        return blocks | "Leave out" >> beam.Map(_without, self.blocks)


def _without(block: DocumentBlock, numbers: tuple[int, ...]) -> DocumentBlock:
    return without_documents(block) if block.part.block in numbers else block


def without_documents(block: DocumentBlock) -> DocumentBlock:
    """A part all of whose documents are rejected."""
    rejected = tuple(
        Rejected(name, source, "read", LEFT_OUT, text)
        for name, source, text in zip(
            block.ids.to_pylist(), block.sources.to_pylist(), block.texts, strict=True
        )
    )
    part = replace(block.part, rejected=block.part.rejected + rejected)
    return replace(take_documents(block, np.zeros(0, np.int64)), part=part)
