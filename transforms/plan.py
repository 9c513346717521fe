"""Plans the blocks of a run, and cuts files into them, the same way every time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import apache_beam as beam

from bert_embed.base.errors import InputError
from bert_embed.transforms.ledger import BegunBlocks, BlockRecord, begun_blocks, finished_blocks
from bert_embed.transforms.listing import read_listing
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import (
    WHOLE_FILES,
    BlockSpec,
    Footer,
    InputFile,
    PlannedWork,
    ReadPart,
    Slice,
)
from bert_embed.transforms.read.reader import cut_file
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.steps import Step, activity

_KIB, _MIB = 1 << 10, 1 << 20
# Much larger blocks spend time on fresh memory, much smaller ones on padding.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 256 * _KIB, _MIB
_BLOCKS_WANTED = 64
_FEW_FILES = 32  # that are read through; more keep many workers busy with a file each
# The number of tiny files in a block is limited, too, so that there are blocks for many workers; a
# block of a few dozen takes about as long to finish as to compute.
_FEWEST_FILES, _MOST_FILES = 64, 10_000
_MOST_CUTS = 16  # of a row group: each begins to read at the group's first row


def default_block_bytes(total: int) -> int:
    """Bytes of text in a block: about 64 blocks a run, between two limits."""
    return min(max(total // _BLOCKS_WANTED, _SMALLEST_BLOCK), _LARGEST_BLOCK)


def plan_blocks(files: Sequence[InputFile], block_bytes: int) -> Iterator[BlockSpec]:
    """Cuts the files into blocks, in their order, from sizes alone.

    A large file gives blocks of `block_bytes`. Neighbouring small files of one format share a
    block, at most `files_of_a_block`. A compressed file is one block, and so is a large CSV file;
    if there are few of these, the parts of each are spread over workers. A Parquet file's footer
    says where rows are. A file that is one document is never cut.
    """
    read_through = [file for file in files if file.read_through]
    few = sum(_stands_alone(file, block_bytes) for file in read_through) <= _FEW_FILES
    most_files = files_of_a_block(sum(not _stands_alone(file, block_bytes) for file in files))
    number = held = 0
    run: list[Slice] = []
    for index, file in enumerate(files):
        small = not _stands_alone(file, block_bytes)
        full = held + file.text_bytes > block_bytes or len(run) >= most_files
        if run and (not small or full or file.format != files[run[0].file].format):
            yield BlockSpec(number, files[run[0].file].format, tuple(run))
            number, run, held = number + 1, [], 0
        rows = None if file.footer is None else file.footer.rows
        whole = Slice(index, file.info, 0, file.stop, rows)
        if small:
            run.append(whole)
            held += file.text_bytes
        elif file.read_through:
            large = _is_large(file, block_bytes) and file.format != WHOLE_FILES
            yield BlockSpec(
                number,
                file.format,
                (whole,),
                file.compression,
                file.records,
                read_through=True,
                spread=few and large,
            )
            number += 1
        else:
            size = file.stop if file.format == WHOLE_FILES else block_bytes
            for start, stop in _cuts(file, size):
                yield BlockSpec(number, file.format, (replace(whole, start=start, stop=stop),))
                number += 1
    if run:
        yield BlockSpec(number, files[run[0].file].format, tuple(run))


def files_of_a_block(small_files: int) -> int:
    """The most small files in one block, so that there are about 64 blocks.

    >>> files_of_a_block(100), files_of_a_block(20_000), files_of_a_block(10_000_000)
    (64, 313, 10000)
    """
    return min(max(-(-small_files // _BLOCKS_WANTED), _FEWEST_FILES), _MOST_FILES)


def _stands_alone(file: InputFile, block_bytes: int) -> bool:
    return not file.can_share or _is_large(file, block_bytes)


def _is_large(file: InputFile, block_bytes: int) -> bool:
    return file.text_bytes >= block_bytes


def _cuts(file: InputFile, block_bytes: int) -> Iterable[tuple[int, int]]:
    """Where each block of a file begins and ends, in bytes, or in rows of Parquet."""
    starts: Iterable[int] = range(0, file.stop, block_bytes)
    if file.footer is not None:
        starts = [start for start in _row_starts(file.footer, block_bytes) if start < file.stop]
    return pairwise([*starts, file.stop])


def _row_starts(footer: Footer, block_bytes: int) -> Iterator[int]:
    """The first row of each block: whole row groups, except those much larger than a block."""
    row = held = 0
    for group in footer.groups:
        if group.rows == 0:
            continue
        cuts = max(1, min(_MOST_CUTS, group.size // block_bytes, group.rows))
        if row == 0 or held + group.size > block_bytes:
            yield row
            held = 0
        for cut in range(1, cuts):
            yield row + group.rows * cut // cuts
        held += group.size
        row += group.rows


@dataclass(frozen=True)
class PlanRequest:
    """From what a run is planned; `digest` is that of the listing in `output`."""

    block_bytes: int
    digest: str
    output: str


@dataclass
class PlanBlocks(Step):
    """Plans the BlockSpecs of a run and distributes them to workers; retries get the same plan.

    Gives a dict: `specs`, the BlockSpecs of what is not finished, where a file that `read_parts`
    reads from its start may have one for each part; `finished`, the BlockRecords that an earlier
    attempt wrote; and `planned`, one PlannedWork of all.
    """

    request: PlanRequest
    run: str
    read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]]

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        folder = OutputFolder(self.request.output)
        plan = (
            begin
            | "Request" >> beam.Create([self.request])
            | "Plan" >> beam.ParDo(_Plan(folder)).with_outputs("planned", "begun", main="specs")
        )
        begun = (
            plan.begun
            | "SpreadBegun" >> beam.Reshuffle()
            | "Look"
            >> beam.ParDo(_Look(folder, self.run, self.read_parts)).with_outputs(
                "finished", main="specs"
            )
        )
        specs = (plan.specs, begun.specs) | "Specs" >> beam.Flatten()
        return {
            "specs": specs | "Spread" >> beam.Reshuffle(),
            "finished": begun.finished,
            "planned": plan.planned,
        }


class _Plan(beam.DoFn):
    """Plans all blocks; those that are begun, and files to cut, go to workers of their own."""

    def __init__(self, folder: OutputFolder) -> None:
        self._folder = folder

    def process(
        self, request: PlanRequest
    ) -> Iterator[
        BlockSpec
        | beam.pvalue.TaggedOutput[Literal["planned"], PlannedWork]
        | beam.pvalue.TaggedOutput[Literal["begun"], BegunBlocks]
    ]:
        with activity("planning"):
            files = listed_files(request)
            specs = CountedSpecs(plan_blocks(files, request.block_bytes))
            for blocks in begun_blocks(self._folder, specs):
                if isinstance(blocks, BegunBlocks):
                    yield beam.pvalue.TaggedOutput("begun", blocks)
                elif blocks.spread:
                    alone = BegunBlocks([blocks], {blocks.number: []})
                    yield beam.pvalue.TaggedOutput("begun", alone)
                else:
                    yield blocks
        yield beam.pvalue.TaggedOutput("planned", specs.planned(files))


class _Look(beam.DoFn):
    """Reads the block records of an earlier attempt, and cuts files into their parts."""

    def __init__(
        self,
        folder: OutputFolder,
        run: str,
        read_parts: Callable[[BlockSpec], Iterator[ReadPart[Any]]],
    ) -> None:
        self._folder, self._run, self._read_parts = folder, run, read_parts

    def process(
        self, begun: BegunBlocks
    ) -> Iterator[BlockSpec | beam.pvalue.TaggedOutput[Literal["finished"], BlockRecord]]:
        for spec, block_records in finished_blocks(self._folder, self._run, begun):
            yield from (beam.pvalue.TaggedOutput("finished", record) for record in block_records)
            if spec.complete:
                continue
            if not spec.spread:
                yield spec
                continue
            with RedactErrors("read"):
                yield from cut_file(spec, self._read_parts, self._folder)


def listed_files(request: PlanRequest) -> list[InputFile]:
    """The files that the command line listed; InputError if the output holds another listing."""
    listing = read_listing(OutputFolder(request.output))
    if listing is None or listing.digest != request.digest:
        raise InputError(
            f"{request.output} does not hold this run's listing of the input; run the same command "
            "again"
        )
    return listing.files


class CountedSpecs:
    """Counts BlockSpecs while they pass, so that a large plan is never held as a whole."""

    def __init__(self, specs: Iterable[BlockSpec]) -> None:
        self._specs = specs
        self._blocks = 0
        self._read_through: set[int] = set()

    def __iter__(self) -> Iterator[BlockSpec]:
        for spec in self._specs:
            self._blocks += 1
            if spec.read_through:
                self._read_through.add(spec.slices[0].file)
            yield spec

    def planned(self, files: Sequence[InputFile]) -> PlannedWork:
        """What the block records of a complete run must add up to, after all specs have passed."""
        whole = self._read_through
        return PlannedWork(
            blocks=self._blocks,
            stops=tuple(None if n in whole else file.stop for n, file in enumerate(files)),
            paths=tuple(file.info.path for file in files),
        )


def planned_work(files: Sequence[InputFile], specs: Iterable[BlockSpec]) -> PlannedWork:
    """What the block records of a complete run must add up to."""
    counted = CountedSpecs(specs)
    for _ in counted:
        continue
    return counted.planned(files)
