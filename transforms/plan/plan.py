"""Plans the blocks of a run."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import apache_beam as beam

from bert_embed.storage.errors import InputError
from bert_embed.transforms.activity import activity
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.plan.cut import plan_blocks
from bert_embed.transforms.plan.listing import files_to_read, input_files, listing_digest
from bert_embed.transforms.records.finished import complete_readers
from bert_embed.transforms.records.report import BlockReport
from bert_embed.transforms.records.spec import (
    READ_THROUGH_FORMATS,
    BlockSpec,
    InputFile,
    PlannedWork,
)
from bert_embed.transforms.records.step import Step


@dataclass(frozen=True)
class PlanRequest:
    """From what a run is planned; small, so that the job request stays small.

    Attributes:
        patterns: As given by `--input`.
        input_format: As given, None for the suffix's.
        block_bytes: Size of a block.
        limit: Records of a trial run, None for all.
        digest: `listing_digest` of the listing that the command line saw.
        output: The run's folder, which its input excludes.
        read_through: Whether files are read from their start, so that their lines have numbers.
        text_column: Whose bytes count in Parquet files.
        whole_files: Whether each text file is one document.
    """

    patterns: tuple[str, ...]
    input_format: str | None
    block_bytes: int
    limit: int | None
    digest: str
    output: str | None = None
    read_through: bool = False
    text_column: str = "text"
    whole_files: bool = False


@dataclass
class PlanBlocks(Step):
    """Plans the BlockSpecs of a run and distributes them to workers; retries get the same plan.

    Gives a dict: `specs`, the BlockSpecs that are not finished; `shared`, tuples of such specs, the
    several readers of one file, for `CutFiles`; `finished`, the reports that an earlier attempt
    wrote; and `planned`, one PlannedWork of all. Workers list the input again, as
    a plan would be too large for the job request; the listing must equal that of the command line.

    Attributes:
        request: From what the run is planned.
        run: Fingerprint of the run, which its finished blocks have; "" looks for none.
        examples: Where the run keeps its examples, if that is another folder.
    """

    request: PlanRequest
    run: str = ""
    examples: str | None = None

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        plan = (
            begin
            | "Request" >> beam.Create([self.request])
            | "Plan"
            >> beam.ParDo(_Plan(self.run, self.examples)).with_outputs(
                "planned", "finished", "shared", main="specs"
            )
        )
        return {
            "specs": plan.specs | "Spread" >> beam.Reshuffle(),
            "shared": plan.shared,
            "finished": plan.finished,
            "planned": plan.planned,
        }


class _Plan(beam.DoFn):
    def __init__(self, run: str, examples: str | None) -> None:
        self._run, self._examples = run, examples

    def process(
        self, request: PlanRequest
    ) -> Iterator[
        BlockSpec
        | beam.pvalue.TaggedOutput[Literal["planned"], PlannedWork]
        | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]
        | beam.pvalue.TaggedOutput[Literal["shared"], tuple[BlockSpec, ...]]
    ]:
        with activity("planning"):
            files = list_again(request)
        specs = CountedSpecs(plan_blocks(files, request.block_bytes, request.read_through))
        readers: Iterable[tuple[BlockSpec, tuple[BlockReport, ...]]] = (
            (each, ()) for each in specs
        )
        if self._run and request.output is not None:
            folder = OutputFolder(request.output, self._examples)
            readers = complete_readers(folder, self._run, specs)
        for _, block in groupby(readers, lambda reader: reader[0].number):
            unfinished = []
            for spec, reports in block:
                yield from (beam.pvalue.TaggedOutput("finished", each) for each in reports)
                if not reports:
                    unfinished.append(spec)
            if len(unfinished) > 1 and unfinished[0].format not in READ_THROUGH_FORMATS:
                yield beam.pvalue.TaggedOutput("shared", tuple(unfinished))
            else:
                yield from unfinished
        yield beam.pvalue.TaggedOutput("planned", specs.planned(files))


def list_again(request: PlanRequest) -> list[InputFile]:
    """Lists the input again and checks that it is what the command line listed.

    Raises:
        ValueError: A file was added, removed or changed since.
    """
    files = input_files(
        request.patterns,
        request.input_format,
        request.output,
        look_inside=False,
        whole_files=request.whole_files,
    )
    if listing_digest(files) != request.digest:
        raise InputError(
            "the input changed after the command listed it: bring it back as it was, or run the "
            "command again with --overwrite"
        )
    return files_to_read(files, request.text_column, request.limit)


class CountedSpecs:
    """Counts BlockSpecs while they pass, so that a large plan is never held as a whole."""

    def __init__(self, specs: Iterable[BlockSpec]) -> None:
        self._specs = specs
        self._readers = self._blocks = 0
        self._read_through: set[int] = set()

    def __iter__(self) -> Iterator[BlockSpec]:
        for spec in self._specs:
            self._readers += 1
            self._blocks = spec.number + 1
            if spec.read_through:
                self._read_through.add(spec.slices[0].file)
            yield spec

    def planned(self, files: Sequence[InputFile]) -> PlannedWork:
        """What the reports of a complete run must add up to, after all specs have passed."""
        whole = self._read_through
        return PlannedWork(
            readers=self._readers,
            blocks=self._blocks,
            stops=tuple(None if n in whole else file.stop for n, file in enumerate(files)),
            paths=tuple(file.info.path for file in files),
        )


def planned_work(files: Sequence[InputFile], specs: Iterable[BlockSpec]) -> PlannedWork:
    """What the reports of a complete run must add up to."""
    counted = CountedSpecs(specs)
    for _ in counted:
        continue
    return counted.planned(files)
