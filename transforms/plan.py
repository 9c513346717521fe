"""Plans the blocks of a run."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import apache_beam as beam

from bert_embed.base.errors import InputError
from bert_embed.transforms.ledger import BegunBlocks, BlockRecord, begun_blocks, finished_blocks
from bert_embed.transforms.listing import read_listing
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BlockSpec, InputFile, PlannedWork, ReadPart, plan_blocks
from bert_embed.transforms.read.reader import cut_file
from bert_embed.transforms.steps import RedactErrors, Step, activity

_ALONE = 2000  # blocks that travel alone, enough for all workers: a thousand bytes of memory each


@dataclass
class PlanBlocks(Step):
    """Plans the BlockSpecs of a run and distributes them to workers; retries get the same plan.

    Gives a dict: `specs`, the BlockSpecs of what is not finished, where a file that `read_parts`
    reads from its start may have one for each part; `finished`, the BlockRecords that an earlier
    attempt wrote, `begun`, the BlockSpecs of these; and `planned`, one PlannedWork of all. `digest`
    is that of the listing in the folder.
    """

    folder: OutputFolder
    run: str
    digest: str
    block_bytes: int
    read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]]

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        make = beam.ParDo(_Plan(self.folder, self.digest, self.block_bytes))
        make = make.with_outputs("planned", "begun", main="specs")
        plan = begin | "Begin" >> beam.Impulse() | "Plan" >> make
        look = beam.ParDo(_Look(self.folder, self.run, self.read_parts))
        look = look.with_outputs("finished", "begun", main="specs")
        begun = plan.begun | "SpreadBegun" >> beam.Reshuffle() | "Look" >> look
        specs = (plan.specs, begun.specs) | "Specs" >> beam.Flatten()
        return {
            "specs": specs
            | "Spread" >> beam.Reshuffle()
            | "Unpack" >> beam.FlatMap(pickle.loads).with_output_types(BlockSpec),
            "finished": begun.finished,
            "begun": begun.begun,
            "planned": plan.planned,
        }


@dataclass(eq=False)
class _Plan(beam.DoFn):
    """Plans all blocks; those that are begun, and files to cut, go to workers of their own."""

    folder: OutputFolder
    digest: str
    block_bytes: int

    def process(
        self, impulse: bytes
    ) -> Iterator[
        bytes
        | beam.pvalue.TaggedOutput[Literal["planned"], PlannedWork]
        | beam.pvalue.TaggedOutput[Literal["begun"], BegunBlocks]
    ]:
        with activity("planning"):
            listing = read_listing(self.folder)
            if listing is None or listing.digest != self.digest:
                raise InputError(
                    f"{self.folder.path} does not hold this run's listing of the input; run the "
                    "same command again"
                )
            files = listing.files
            specs = partial(plan_blocks, files, self.block_bytes)
            for blocks in packed_blocks(begun_blocks(self.folder, specs())):
                is_packed = isinstance(blocks, bytes)
                yield blocks if is_packed else beam.pvalue.TaggedOutput("begun", blocks)
        yield beam.pvalue.TaggedOutput("planned", planned_work(files, specs()))


@dataclass(eq=False)
class _Look(beam.DoFn):
    """Reads the block records of an earlier attempt, and cuts files into their parts."""

    folder: OutputFolder
    run: str
    read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]]

    def process(
        self, begun: BegunBlocks
    ) -> Iterator[
        bytes
        | beam.pvalue.TaggedOutput[Literal["finished"], BlockRecord]
        | beam.pvalue.TaggedOutput[Literal["begun"], BlockSpec]
    ]:
        for spec, block_records in finished_blocks(self.folder, self.run, begun):
            yield from (beam.pvalue.TaggedOutput("finished", record) for record in block_records)
            if spec.done:
                yield beam.pvalue.TaggedOutput("begun", spec)
            if not spec.complete and not spec.spread:
                yield pickle.dumps([spec])
            elif not spec.complete:
                with RedactErrors("read"):
                    for part in cut_file(spec, self.read_parts, self.folder):
                        yield pickle.dumps([part])


def packed_blocks(blocks: Iterable[BlockSpec | BegunBlocks]) -> Iterator[bytes | BegunBlocks]:
    """Blocks of which nothing is written, pickled, the later ones some together.

    What is begun, and files to cut, go to workers of their own.
    """
    together: list[BlockSpec] = []
    for block in blocks:
        if isinstance(block, BegunBlocks):
            yield block
        elif block.spread:
            yield BegunBlocks([block], {block.number: []})
        else:
            together.append(block)
            if len(together) > block.number // _ALONE:
                yield pickle.dumps(together)
                together = []
    if together:
        yield pickle.dumps(together)


def planned_work(files: Sequence[InputFile], specs: Iterable[BlockSpec]) -> PlannedWork:
    """What the block records of a complete run must add up to."""
    blocks, read_through = 0, set[int]()
    for spec in specs:  # never held as a whole
        blocks += 1
        if spec.read_through:
            read_through.add(spec.slices[0].file)
    return PlannedWork(
        blocks=blocks,
        stops=tuple(None if n in read_through else file.stop for n, file in enumerate(files)),
        paths=tuple(file.info.path for file in files),
    )
