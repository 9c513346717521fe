"""PlanBlocks: a listing of files in, the BlockSpecs of the run out, the same every time."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import apache_beam as beam

from transforms.accounting import BlockReport
from transforms.block_spec import BlockSpec, Footer, InputFile, PlannedWork, Slice
from transforms.examples import SETTINGS_FILE
from transforms.files import FileInfo, join, list_files
from transforms.finished import complete_readers
from transforms.sources.encoding import check_stored_encoding
from transforms.sources.limit import limit_files
from transforms.sources.parquet_rows import with_footers

_KIB, _MIB = 1 << 10, 1 << 20
# Blocks much larger fault in fresh memory all the time, much smaller ones pad their batches.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 256 * _KIB, _MIB
_BLOCKS_WANTED = 64
_STRIPES_WANTED, _MOST_STRIPES = 64, 16
# Tiny files are shared out by their number, too, so that there are blocks for many workers; a block
# of some dozens takes about as long to finish as to compute.
_FEWEST_FILES, _MOST_FILES = 64, 10_000
_MOST_CUTS = 16  # of a row group: each begins to read at the group's first row

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
}
OTHER_FORMATS = {".avro", ".xlsx", ".pdf", ".docx"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def input_files(
    patterns: Sequence[str],
    input_format: str | None = None,
    output: str | None = None,
    look_inside: bool = True,
) -> list[InputFile]:
    """Lists what the patterns name, sorted by path, each file once.

    Args:
        patterns: Paths, folders and globs.
        input_format: Of all files, None for the suffix's.
        output: What lies below is left out: a run into a folder of its input would read itself.
        look_inside: Whether the first bytes of local files tell if their encoding can be read; a
            listing that is made again, and must be as it was, needs not ask again.

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
    return [_input_file(found[path], input_format, look_inside) for path in sorted(found)]


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


def _input_file(info: FileInfo, input_format: str | None, look_inside: bool) -> InputFile:
    name = info.path.rsplit("/", 1)[-1].lower()
    compression = next((kind for end, kind in COMPRESSIONS.items() if name.endswith(end)), None)
    stem = name.rsplit(".", 1)[0] if compression else name
    suffix = "." + stem.rsplit(".", 1)[1] if "." in stem else ""
    if input_format is None and suffix in OTHER_FORMATS:
        raise ValueError(
            f"--input {info.path}: {suffix} files cannot be read; give text, JSON lines, CSV or "
            "Parquet, or say --input_format text if it holds plain text"
        )
    kind = input_format or FORMATS.get(suffix, "text")
    if kind == "parquet":
        if compression is not None:
            raise ValueError(f"--input {info.path} is compressed as a whole, unpack it: Parquet is")
    elif look_inside and compression is None and kind != "tfrecord":
        check_stored_encoding(info.path)
    return InputFile(info, kind, compression, info.size)


def files_to_read(
    listed: Sequence[InputFile], text_column: str, limit: int | None = None
) -> list[InputFile]:
    """The files of a listing with all that a plan is cut from.

    Args:
        listed: As `input_files` gave them.
        text_column: Whose bytes count in Parquet files.
        limit: Records of a trial run, None for all.

    Raises:
        ValueError: A file is no Parquet, or no CSV.
    """
    files = with_footers(listed, text_column)
    return files if limit is None else limit_files(files, limit)


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
    block, not more of them than `files_of_a_block` says; a compressed file is one block, whose
    parts are spread over `stripes` readers that each decompress all of it and keep their share.
    With `read_through` a large file is such a block, too: only who reads a file from its start
    knows the numbers of its lines. A large CSV file is one always, a Parquet file never: its
    footer tells where rows are.
    """
    uncut = sum(
        file.compression is not None
        or (_reads_through(file, read_through) and _is_large(file, block_bytes))
        for file in files
    )
    stripes = max(1, min(_MOST_STRIPES, _STRIPES_WANTED // max(uncut, 1)))
    most_files = files_of_a_block(sum(not _stands_alone(file, block_bytes) for file in files))
    number = held = 0
    run: list[Slice] = []
    for index, file in enumerate(files):
        small = not _stands_alone(file, block_bytes)
        full = held + file.text_bytes > block_bytes or len(run) >= most_files
        if run and (not small or full or file.format != files[run[0].file].format):
            yield BlockSpec(number, files[run[0].file].format, tuple(run), numbered=read_through)
            number, run, held = number + 1, [], 0
        if small:
            run.append(Slice(index, file.info, 0, file.stop))
            held += file.text_bytes
        elif _reads_through(file, read_through):
            readers = stripes if _is_large(file, block_bytes) else 1
            yield from _striped(index, file, number, readers, read_through)
            number += 1
        else:
            for spec in _cut(index, file, number, block_bytes, read_through):
                yield spec
                number = spec.number + 1
    if run:
        yield BlockSpec(number, files[run[0].file].format, tuple(run), numbered=read_through)


def files_of_a_block(small_files: int) -> int:
    """The most files of one block: of so many small ones there are to be some 64 blocks.

    >>> files_of_a_block(100), files_of_a_block(20_000), files_of_a_block(10_000_000)
    (64, 313, 10000)
    """
    return min(max(-(-small_files // _BLOCKS_WANTED), _FEWEST_FILES), _MOST_FILES)


def _stands_alone(file: InputFile, block_bytes: int) -> bool:
    return not file.can_share or _is_large(file, block_bytes)


def _is_large(file: InputFile, block_bytes: int) -> bool:
    return file.text_bytes >= block_bytes


def _reads_through(file: InputFile, numbered: bool) -> bool:
    return not file.can_be_cut or (numbered and file.format != "parquet")


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
            uncut=file.compression is None,
        )


def _cut(
    index: int, file: InputFile, number: int, block_bytes: int, numbered: bool
) -> Iterator[BlockSpec]:
    starts: Iterable[int] = range(0, file.stop, block_bytes)
    if file.footer is not None:
        starts = [start for start in _row_starts(file.footer, block_bytes) if start < file.stop]
    for count, (start, stop) in enumerate(pairwise([*starts, file.stop])):
        piece = Slice(index, file.info, start, stop)
        yield BlockSpec(number + count, file.format, (piece,), numbered=numbered)


def _row_starts(footer: Footer, block_bytes: int) -> Iterator[int]:
    """The first row of each block: whole row groups, but for those much larger than a block."""
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
    """What the plan is made from; small, so that the job request stays small.

    Attributes:
        patterns: As given by `--input`.
        input_format: As given, None for the suffix's.
        block_bytes: Size of a block.
        limit: Records of a trial run, None for all.
        digest: `listing_digest` of the listing that the command line saw.
        output: The run's folder, which is no part of its input.
        read_through: Whether files are read from their start, so that their lines have numbers.
        text_column: Whose bytes count in Parquet files.
    """

    patterns: tuple[str, ...]
    input_format: str | None
    block_bytes: int
    limit: int | None
    digest: str
    output: str | None = None
    read_through: bool = False
    text_column: str = "text"


@dataclass
class PlanBlocks(beam.PTransform):
    """One PlanRequest to the BlockSpecs of the run, frozen against retries and spread.

    Gives a dict: `specs`, the BlockSpecs that are to do, `finished`, the reports of those that an
    earlier attempt has written, and `planned`, one PlannedWork of all. The listing is made again
    where the plan is made (a plan in the job request would outgrow it) and must equal the one
    that the command line saw.

    Attributes:
        request: What the plan is made from.
        run: Fingerprint of the run, by which its finished blocks are known; "" looks for none.
    """

    request: PlanRequest
    run: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        plan = (
            begin
            | "Request" >> beam.Create([self.request])
            | "Plan"
            >> beam.ParDo(_Plan(self.run)).with_outputs("planned", "finished", main="specs")
        )
        return {
            "specs": plan.specs | "Spread" >> beam.Reshuffle(),
            "finished": plan.finished,
            "planned": plan.planned,
        }


class _Plan(beam.DoFn):
    def __init__(self, run: str) -> None:
        self._run = run

    def process(
        self, request: PlanRequest
    ) -> Iterator[
        BlockSpec
        | beam.pvalue.TaggedOutput[Literal["planned"], PlannedWork]
        | beam.pvalue.TaggedOutput[Literal["finished"], BlockReport]
    ]:
        files = list_again(request)
        specs = CountedSpecs(plan_blocks(files, request.block_bytes, request.read_through))
        if self._run and request.output is not None:
            for spec, reports in complete_readers(request.output, self._run, specs):
                yield from (beam.pvalue.TaggedOutput("finished", each) for each in reports)
                if not reports:
                    yield spec
        else:
            yield from specs
        yield beam.pvalue.TaggedOutput("planned", specs.planned(files))


def list_again(request: PlanRequest) -> list[InputFile]:
    """The listing of the request, if it still is what the command line saw.

    Raises:
        ValueError: A file was added, removed or changed since.
    """
    files = input_files(request.patterns, request.input_format, request.output, look_inside=False)
    if listing_digest(files) != request.digest:
        raise ValueError("the input changed while the job was being started; run it again")
    return files_to_read(files, request.text_column, request.limit)


class CountedSpecs:
    """BlockSpecs in their order, counted as they pass: a large plan is never held as a whole."""

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
        """What the reports of a complete run must add up to, once all have passed."""
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
