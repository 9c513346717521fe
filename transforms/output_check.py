"""Compares the files of an output with the block records of the parts that wrote them."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any

from bert_embed.base.errors import InputError, counted
from bert_embed.base.threads import in_parallel
from bert_embed.results.files import deleted_batches, format_of
from bert_embed.results.names import BLOCK_RECORDS, DELETED, part_of
from bert_embed.results.run_record import RunRecord, Written
from bert_embed.storage.files import checksum, open_raw
from bert_embed.transforms.ledger import (
    BlockRecord,
    Totals,
    first_of,
    of_parts,
    read_block_record,
    uncovered,
    written_counts,
)
from bert_embed.transforms.output_folder import (
    RUN_FILE,
    OutputFile,
    OutputFolder,
    block_record_name,
)

_LOG = logging.getLogger(__name__)
_MOST_GAPS = 1000  # block records that are named as missing; the rest are counted
_SUMMED = ("records", "embedded", "skipped")
_COUNTED = ("records", "embedded", "skipped", "rejected", "parts")


@dataclass(frozen=True)
class Problem:
    """A file of an output that is not as its run wrote it."""

    name: str  # relative
    what: str
    part: tuple[int, int] | None = None  # block and part to write again; None: of none

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def sum_problems(
    folder: OutputFolder, run: str, sizes: dict[str, int], totals: Totals
) -> list[str]:
    """What speaks against the sums of a run that is written, in some lines, by its block records.

    What was counted must be there, not only what is there be whole: files that vanished together
    with their block record leave nothing behind that names them. `sizes` are those of `of_parts`.
    """
    read = _read_block_records(folder, run)
    block_records = {(record.block, record.part): record for record in read if record is not None}
    # Files that an attempt wrote before it crashed and the next did not write are removed.
    again = [name for name in sizes if part_of(name) in block_records]
    left = [name for name in again if name not in block_records[part_of(name)].files]
    if left:
        _LOG.warning("%d files of an earlier attempt are removed, first %s", len(left), left[0])
        folder.remove_files(left)
    sizes = {name: sizes[name] for name in sizes.keys() - left}
    lost = uncovered(totals.parts, block_records)
    gone = "is missing or damaged, and was counted: was it removed, or the folder moved, meanwhile?"
    problems = [Problem(block_record_name(*part), gone, part) for part in lost]
    problems += listing_problems(block_records, sizes)
    if not problems:  # another attempt may have written a part, but not of other documents
        there = {name: sum(vars(one)[name] for one in block_records.values()) for name in _SUMMED}
        problems += [
            Problem(BLOCK_RECORDS, f"count {count} {name}, {totals.counts[name]} were counted")
            for name, count in there.items()
            if count != totals.counts[name]
        ]
    return [*first_of(map(str, problems), "files")]


def _read_block_records(folder: OutputFolder, run: str) -> Iterator[BlockRecord | None]:
    """The block records in the order of `recorded_parts`; None for one that is damaged."""
    return in_parallel(lambda part: read_block_record(folder, *part, run), folder.recorded_parts())


def listing_problems(
    block_records: dict[tuple[int, int], BlockRecord], sizes: dict[str, int]
) -> Iterator[Problem]:
    """Compares names and sizes of files with what the block records name."""
    expected: dict[str, OutputFile] = {}
    for block_record in block_records.values():
        expected |= block_record.files
    for name, file in sorted(expected.items()):
        size = sizes.get(name)
        if size is None:
            yield Problem(name, "missing", part_of(name))
        elif size != file.bytes:
            yield Problem(name, f"has {size} bytes, {file.bytes} were written", part_of(name))
    for name in sorted(sizes.keys() - expected.keys()):
        yield Problem(name, "no block record names it: it counts for nothing and may be removed")


def output_problems(folder: OutputFolder, record: RunRecord) -> Iterator[Problem]:
    """Checks every file of a run against its block record, and these against the run's record."""
    parts = folder.recorded_parts()
    block_records: dict[tuple[int, int], BlockRecord] = {}
    for part, block_record in zip(parts, _read_block_records(folder, record.run), strict=True):
        if block_record is None:
            what = "is damaged, or the block record of another run"
            yield Problem(block_record_name(*part), what, part)
        else:
            block_records[part] = block_record
    present = folder.data_files()
    sizes = of_parts(present)
    wrong = list(listing_problems(block_records, sizes))
    yield from wrong
    strange = "does not belong there: no run wrote it, and it may be removed"
    yield from (Problem(name, strange) for name in folder.other_files())
    bad = {problem.name for problem in wrong}
    written = chain.from_iterable(record.files.items() for record in block_records.values())
    files = [(name, file) for name, file in written if name not in bad]
    found = in_parallel(lambda file: _content_problem(folder, *file), files)
    yield from (problem for problem in found if problem is not None)
    deleted = {name: size for name, size in present.items() if name not in sizes}
    yield from _deleted_problems(folder, record, deleted)
    yield from _count_problems(block_records, record)


def _deleted_problems(
    folder: OutputFolder, record: RunRecord, sizes: Mapping[str, int]
) -> Iterator[Problem]:
    """Reads the files of deleted ids, by names and sizes, and compares them with run.json."""
    there = Written(len(sizes), sum(sizes.values()), rows=0)
    for name in sizes:
        try:
            rows = sum(len(batch) for batch in deleted_batches(folder.path_of(name)))
        except InputError:
            yield Problem(name, "is damaged")
            return
        there = replace(there, rows=there.rows + rows)
    result = record.result
    wrote = Written(0, 0, 0) if result is None else result.written.get(DELETED, Written(0, 0, 0))
    if record.is_done and there != wrote:
        holds, written = (
            f"{counted(one.files, 'file')} of {counted(one.bytes, 'byte')} and "
            f"{counted(one.rows, 'row')}"
            for one in (there, wrote)
        )
        yield Problem(DELETED, f"holds {holds}, the run wrote {written}")


def _content_problem(folder: OutputFolder, name: str, file: OutputFile) -> Problem | None:
    path = folder.path_of(name)
    try:
        if (crc := checksum(path)) != file.crc32c:
            return Problem(name, f"has crc32c {crc}, {file.crc32c} was written", part_of(name))
        with open_raw(path) as raw:
            rows = format_of(path).count(raw)  # ValueError if it is damaged
        if rows != file.rows:
            what = f"has {counted(rows, 'row')}, {file.rows} were written"
            return Problem(name, what, part_of(name))
    except FileNotFoundError:
        return Problem(name, "missing", part_of(name))
    except (ValueError, EOFError) as error:
        return Problem(name, f"cannot be read ({type(error).__name__})", part_of(name))
    return None


def _gap_problems(recorded: Iterable[tuple[int, int]], blocks: int) -> Iterator[Problem]:
    """Finds parts without a block record, and records of blocks that the run does not have.

    Both numbers, of blocks and of a part, are data: no loop is as long as they say.
    """
    parts_of: dict[int, set[int]] = {}
    for block, part in recorded:
        parts_of.setdefault(block, set()).add(part)
    planned = {block: parts for block, parts in parts_of.items() if block < blocks}
    gaps = (
        (block, part)
        for block in range(blocks)
        for part in range(max(planned.get(block, ()), default=0) + 1)
        if part not in planned.get(block, ())
    )
    for gap in islice(gaps, _MOST_GAPS):
        yield Problem(block_record_name(*gap), "missing", gap)
    missing = blocks - len(planned)
    missing += sum(max(parts) + 1 - len(parts) for parts in planned.values())
    if missing > _MOST_GAPS:
        yield Problem(BLOCK_RECORDS, f"{missing - _MOST_GAPS} further block records are missing")
    for block in sorted(parts_of.keys() - planned.keys()):
        part = min(parts_of[block])
        what = f"is of no block of the run, {RUN_FILE} says {counted(blocks, 'block')}"
        yield Problem(block_record_name(block, part), what, (block, part))


def _count_problems(
    block_records: dict[tuple[int, int], BlockRecord], record: RunRecord
) -> Iterator[Problem]:
    """Compares the sums of the block records with run.json; finds parts without."""
    yield from _gap_problems(block_records, record.plan.blocks)
    if not record.is_done:
        yield Problem(RUN_FILE, f"the run is not complete (status {record.status})")
        return
    sums: Counter = Counter()
    for block_record in block_records.values():
        sums.update({name: getattr(block_record, name) for name in _SUMMED})
        sums.update(rejected=sum(block_record.rejected.values()), parts=1)
        sums.update(written_counts(block_record.files))
    result = record.numbers
    said: dict[Any, int] = {name: getattr(result.counts, name) for name in _COUNTED}
    for kind, written in result.written.items():
        if kind == DELETED:
            continue
        said |= {(kind, name): number for name, number in asdict(written).items()}
    for name in sorted(said.keys() | sums.keys(), key=str):
        if sums[name] != (count := said.get(name, 0)):
            what = name if isinstance(name, str) else f"{name[1]} in {name[0]}"
            yield Problem(RUN_FILE, f"counts {count} {what}, the block records {sums[name]}")
