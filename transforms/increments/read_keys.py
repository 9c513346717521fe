"""Reads the keys of the input and of earlier outputs: hashes as columns, never a text or a vector.

The hash of the id distributes them to buckets, each compared within one worker's memory.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.transforms.examples.decode import ExampleReading
from bert_embed.transforms.examples.read import example_blocks
from bert_embed.transforms.increments.earlier import EarlierFile, EarlierOutput, earlier_keys
from bert_embed.transforms.increments.keys import (
    EarlierKeys,
    InputKeys,
    in_buckets,
)
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks
from bert_embed.transforms.records.documents import DocumentBlock, id_hashes
from bert_embed.transforms.records.skip import places
from bert_embed.transforms.records.spec import BlockSpec
from bert_embed.transforms.records.tokens import TokenBlock
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.tokenize import hashed_texts, text_hashes

_MOST_HELD = 1 << 20  # keys that a worker gathers before it passes them on: fewer tiny buckets

Keyed: TypeAlias = tuple[int, InputKeys] | tuple[int, EarlierKeys]


@dataclass(frozen=True)
class KeySettings:
    """How the keys of a run are compared."""

    earlier: tuple[EarlierOutput, ...]  # a later one replaces rows of the same id
    buckets: int  # of ids, each compared by itself
    folder: OutputFolder
    run: str
    columns: Columns
    part_docs: int
    block_bytes: int
    reading: ExampleReading | None = None  # where the input is examples

    def blocks(
        self, spec: BlockSpec, done: Container[int] = ()
    ) -> Iterator[DocumentBlock] | Iterator[TokenBlock]:
        """The documents of a block, without the parts in `done`."""
        if self.reading is not None:
            return example_blocks(spec, self.reading, self.part_docs, self.block_bytes, done)
        return document_blocks(spec, self.columns, self.part_docs, self.block_bytes, done)


class _HeldKeys(beam.DoFn):
    """Gathers keys over the elements of a bundle and passes them on in buckets."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def start_bundle(self) -> None:
        self._held: list[Any] = []
        self._count = 0

    def _hold(self, keys: InputKeys | EarlierKeys) -> Iterator[Keyed]:
        self._held.append(keys)
        self._count += len(keys)
        if self._count >= _MOST_HELD:
            yield from self._release()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for keyed in self._release():
            yield WindowedValue(keyed, window.max_timestamp(), [window])

    def _release(self) -> Iterator[Keyed]:
        held, self._held, self._count = self._held, [], 0
        if held:
            yield from in_buckets(type(held[0]).joined(held), self._buckets)


class ReadKeys(_HeldKeys):
    """Reads the keys of the documents of BlockSpecs."""

    def __init__(self, settings: KeySettings) -> None:
        super().__init__(settings.buckets)
        self._settings = settings

    def process(self, spec: BlockSpec) -> Iterator[Keyed]:
        ours = self._settings
        with RedactErrors("read ids"):
            for block in ours.blocks(spec, spec.done):
                yield from self._hold(input_keys(block))


class KeysOf(_HeldKeys):
    """Takes the keys of documents that were read already."""

    def process(self, block: DocumentBlock) -> Iterator[Keyed]:
        with RedactErrors("read ids"):
            keys = input_keys(block)
        yield from self._hold(keys)


def input_keys(block: DocumentBlock | TokenBlock) -> InputKeys:
    """The keys of a part's documents."""
    texts = block.text_hash if isinstance(block, TokenBlock) else text_hashes(hashed_texts(block))
    return InputKeys(
        id_hash=id_hashes(block.ids),
        text_hash=texts,
        block=np.full(len(block), block.part.block, np.int64),
        place=places(block.part.number, len(block)),
    )


class ReadEarlier(_HeldKeys):
    """Reads the keys of the files of earlier outputs."""

    def process(self, file: EarlierFile) -> Iterator[Keyed]:
        with RedactErrors("read an earlier output"):
            for keys in earlier_keys(file):
                yield from self._hold(keys)
