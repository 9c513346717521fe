"""PlanBlocks: a listing of files in, the BlockSpecs of the run out, the same every time."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import apache_beam as beam

from transforms.block_spec import BlockSpec, InputFile, PlannedWork, Slice
from transforms.examples import SETTINGS_FILE
from transforms.files import FileInfo, join, list_files
from transforms.sources.encoding import check_stored_encoding
from transforms.sources.lines import limit_files

_KIB, _MIB = 1 << 10, 1 << 20
# Blocks much larger fault in fresh memory all the time, much smaller ones pad their batches.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 256 * _KIB, _MIB
_BLOCKS_WANTED = 64
_STRIPES_WANTED, _MOST_STRIPES = 64, 16
_MOST_FILES = 10_000  # of one block of tiny files

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tfrecord": "tfrecord"}
OTHER_FORMATS = {".csv", ".tsv", ".parquet", ".avro", ".xlsx", ".pdf", ".docx"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def input_files(
    patterns: Sequence[str], input_format: str | None = None, output: str | None = None
) -> list[InputFile]:
    """Lists what the patterns name, sorted by path, each file once.

    What lies below `output` is left out: a run into a folder of its input would read itself.

    Raises:
        ValueError: A pattern that names no file, or a file whose format or encoding cannot be
            read.
    """
    found: dict[str, FileInfo] = {}
    for pattern in patterns:
        files = without_records(list_files(pattern))
        if output is not None:
            files = [each for each in files if not each.path.startswith(join(output, ""))]
        if not files:
            raise ValueError(f"--input {pattern} names no file")
        found.update((each.path, each) for each in files)
    return [_input_file(found[path], input_format) for path in sorted(found)]


def without_records(files: list[FileInfo]) -> list[FileInfo]:
    """Leaves out what a run that wrote examples keeps beside them: its record, its reports."""
    ends = "/" + SETTINGS_FILE
    folders = tuple(
        each.path.removesuffix(SETTINGS_FILE) for each in files if each.path.endswith(ends)
    )
    return [
        each
        for each in files
        if ".tfrecord" in each.path.rsplit("/", 1)[-1] or not each.path.startswith(folders)
    ]


def _input_file(info: FileInfo, input_format: str | None) -> InputFile:
    name = info.path.rsplit("/", 1)[-1].lower()
    compression = next((kind for end, kind in COMPRESSIONS.items() if name.endswith(end)), None)
    stem = name.rsplit(".", 1)[0] if compression else name
    suffix = "." + stem.rsplit(".", 1)[1] if "." in stem else ""
    if input_format is None and suffix in OTHER_FORMATS:
        raise ValueError(
            f"--input {info.path}: {suffix} files cannot be read; give text or JSON lines, "
            "or say --input_format text if it holds plain text"
        )
    read_as = input_format or FORMATS.get(suffix, "text")
    if compression is None and read_as != "tfrecord":
        check_stored_encoding(info.path)
    return InputFile(info, read_as, compression, info.size)


def listing_digest(files: Iterable[InputFile]) -> str:
    """A hash of names, sizes and times: another listing is another run."""
    digest = hashlib.sha256()
    for file in files:
        row = (file.info.path, file.info.size, repr(file.info.modified), file.format)
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def default_block_bytes(total: int) -> int:
    """Bytes of text a block holds: some 64 blocks a run, within what sorts and spreads well.

    >>> default_block_bytes(1_000), default_block_bytes(40 << 20), default_block_bytes(1 << 40)
    (262144, 655360, 1048576)
    """
    return min(max(total // _BLOCKS_WANTED, _SMALLEST_BLOCK), _LARGEST_BLOCK)


def plan_blocks(
    files: Sequence[InputFile], block_bytes: int, read_through: bool = False
) -> Iterator[BlockSpec]:
    """Cuts the files into blocks, in their order, from sizes alone.

    A large file gives blocks of `block_bytes`; neighbouring small files of one format share a
    block; a compressed file is one block, whose parts are spread over `stripes` readers that each
    decompress all of it and keep their share. With `read_through` a large file is such a block,
    too: only who reads a file from its start knows the numbers of its lines.
    """
    uncut = sum(
        not file.can_be_cut or (read_through and file.stop >= block_bytes) for file in files
    )
    stripes = max(1, min(_MOST_STRIPES, _STRIPES_WANTED // max(uncut, 1)))
    number = 0
    run: list[Slice] = []
    for index, file in enumerate(files):
        small = file.can_be_cut and file.stop < block_bytes
        if run and not (small and _joins(run, files, file, block_bytes)):
            yield BlockSpec(number, files[run[0].file].format, tuple(run), numbered=read_through)
            number, run = number + 1, []
        if small:
            run.append(Slice(index, file.info, 0, file.stop))
        elif read_through or not file.can_be_cut:
            readers = stripes if file.stop >= block_bytes else 1
            yield from _striped(index, file, number, readers, read_through)
            number += 1
        else:
            for spec in _cut(index, file, number, block_bytes):
                yield spec
                number = spec.number + 1
    if run:
        yield BlockSpec(number, files[run[0].file].format, tuple(run), numbered=read_through)


def _joins(run: list[Slice], files: Sequence[InputFile], file: InputFile, block_bytes: int) -> bool:
    return (
        file.format == files[run[0].file].format
        and sum(each.stop for each in run) + file.stop <= block_bytes
        and len(run) < _MOST_FILES
    )


def _striped(
    index: int, file: InputFile, number: int, readers: int, numbered: bool
) -> Iterator[BlockSpec]:
    for stripe in range(readers):
        yield BlockSpec(
            number,
            file.format,
            slices=(Slice(index, file.info, 0, file.stop),),
            compression=file.compression,
            stripe=stripe,
            stripes=readers,
            records=file.records,
            numbered=numbered,
            uncut=file.can_be_cut,
        )


def _cut(index: int, file: InputFile, number: int, block_bytes: int) -> Iterator[BlockSpec]:
    for count, start in enumerate(range(0, file.stop, block_bytes)):
        piece = Slice(index, file.info, start, min(start + block_bytes, file.stop))
        yield BlockSpec(number + count, file.format, (piece,))


@dataclass(frozen=True)
class PlanRequest:
    """What the plan is made from; small, so that the job request stays small.

    Attributes:
        patterns: As given by `--input`.
        input_format: As given, None for the suffix's.
        block_bytes: Size of a block.
        limit: Records of a trial run, None for all.
        digest: `listing_digest` of the listing that the command line saw.
        output: The run's folder, which is no part of its input.
        read_through: Whether files are read from their start, so that their lines have numbers.
    """

    patterns: tuple[str, ...]
    input_format: str | None
    block_bytes: int
    limit: int | None
    digest: str
    output: str | None = None
    read_through: bool = False


@dataclass
class PlanBlocks(beam.PTransform):
    """One PlanRequest to the BlockSpecs of the run, frozen against retries and spread.

    Gives a dict: `specs`, the BlockSpecs, and `planned`, one PlannedWork. The listing is made
    again where the plan is made (a plan in the job request would outgrow it) and must equal the
    one that the command line saw.
    """

    request: PlanRequest

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        plan = (
            begin
            | "Request" >> beam.Create([self.request])
            | "Plan" >> beam.ParDo(_Plan()).with_outputs("planned", main="specs")
        )
        return {"specs": plan.specs | "Spread" >> beam.Reshuffle(), "planned": plan.planned}


class _Plan(beam.DoFn):
    def process(
        self, request: PlanRequest
    ) -> Iterator[BlockSpec | beam.pvalue.TaggedOutput[Literal["planned"], PlannedWork]]:
        files = list_again(request)
        specs = list(plan_blocks(files, request.block_bytes, request.read_through))
        yield from specs
        yield beam.pvalue.TaggedOutput("planned", planned_work(files, specs))


def list_again(request: PlanRequest) -> list[InputFile]:
    """The listing of the request, if it still is what the command line saw.

    Raises:
        ValueError: A file was added, removed or changed since.
    """
    files = input_files(request.patterns, request.input_format, request.output)
    if listing_digest(files) != request.digest:
        raise ValueError("the input changed while the job was being started; run it again")
    return files if request.limit is None else limit_files(files, request.limit)


def planned_work(files: Sequence[InputFile], specs: Sequence[BlockSpec]) -> PlannedWork:
    """What the reports of a complete run must add up to."""
    counted = {spec.slices[0].file for spec in specs if spec.read_through}
    return PlannedWork(
        readers=len(specs),
        blocks=len({spec.number for spec in specs}),
        stops=tuple(None if n in counted else file.stop for n, file in enumerate(files)),
        paths=tuple(file.info.path for file in files),
    )
