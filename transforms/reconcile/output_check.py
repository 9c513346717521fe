"""Compares the files of an output with the reports of the parts that wrote them."""

import gzip
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from bert_embed.formats.tfrecord import unframed
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import checksum, open_raw
from bert_embed.storage.parallel import in_parallel
from bert_embed.storage.plurals import counted
from bert_embed.transforms.activity import activity
from bert_embed.transforms.output_folder import (
    RUN_FILE,
    OutputFile,
    OutputFolder,
    parse_name,
    report_name,
)
from bert_embed.transforms.reconcile.totals import listing_hash, written_counts
from bert_embed.transforms.reconcile.verdict import Verdict
from bert_embed.transforms.records.report import BlockReport, read_report

_LOG = logging.getLogger(__name__)
_MOST_NAMED = 5
_COUNTED = ("records", "embedded", "skipped", "rejected", "parts")
_PIECE = 4 << 20


@dataclass(frozen=True)
class Problem:
    """A file of an output that is not as its run wrote it.

    Attributes:
        name: The file, relative to the output folder.
        what: What is wrong, such as `missing`.
        part: Block and part that must be written again; None if the file belongs to no part.
    """

    name: str
    what: str
    part: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def with_listing(verdict: Verdict, folder: OutputFolder, run: str) -> Verdict:
    """The verdict with the problems that a listing of the output shows, once all is written."""
    with activity("checking the output"):
        found = folder.data_files()
    if listing_hash(found) == verdict.totals.listing:
        return verdict
    reports = {(each.block, each.part): each for each in _reports(folder, run) if each is not None}
    found = _without_leftovers(folder, reports, found)
    problems = list(listing_problems(reports, found))
    lines = [str(each) for each in problems[:_MOST_NAMED]]
    if len(problems) > _MOST_NAMED:
        lines.append(f"and {len(problems) - _MOST_NAMED} further files")
    return replace(verdict, problems=(*verdict.problems, *lines))


def _reports(folder: OutputFolder, run: str) -> Iterator[BlockReport | None]:
    """The reports in the order of `report_parts`; None for one that is damaged."""
    return in_parallel(lambda part: read_report(folder, *part, run), folder.report_parts())


def _without_leftovers(
    folder: OutputFolder, reports: dict[tuple[int, int], BlockReport], found: dict[str, int]
) -> dict[str, int]:
    """Removes files that an attempt wrote before it crashed and the next did not write."""
    again = [name for name in found if _part_of(name) in reports]
    left = [name for name in again if name not in reports[_part_of(name)].files]
    if left:
        _LOG.warning("%d files of a crashed attempt are removed, first %s", len(left), left[0])
        folder.remove_files(left)
    return {name: found[name] for name in found.keys() - left}


def _part_of(name: str) -> tuple[int, int]:
    found = parse_name(name)
    assert found is not None, "listings hold names of this layout only"
    return found.block, found.part


def listing_problems(
    reports: dict[tuple[int, int], BlockReport], found: dict[str, int]
) -> Iterator[Problem]:
    """Compares names and sizes of files with what the reports name."""
    expected: dict[str, OutputFile] = {}
    for report in reports.values():
        expected |= report.files
    for name, file in sorted(expected.items()):
        size = found.get(name)
        if size is None:
            yield Problem(name, "missing", _part_of(name))
        elif size != file.bytes:
            yield Problem(name, f"has {size} bytes, {file.bytes} were written", _part_of(name))
    for name in sorted(found.keys() - expected.keys()):
        yield Problem(name, "no report names it")


def output_problems(folder: OutputFolder, record: RunRecord) -> Iterator[Problem]:
    """Checks every file of a run against its block record, and these against the run's record."""
    parts = folder.report_parts()
    reports: dict[tuple[int, int], BlockReport] = {}
    for part, report in zip(parts, _reports(folder, record.run), strict=True):
        if report is None:
            yield Problem(report_name(*part), "is damaged, or the report of another run", part)
        else:
            reports[part] = report
    found = folder.data_files()
    wrong = list(listing_problems(reports, found))
    yield from wrong
    yield from (Problem(name, "does not belong there") for name in folder.other_files())
    bad = {each.name for each in wrong}
    files = [
        (name, file)
        for report in reports.values()
        for name, file in report.files.items()
        if name not in bad
    ]
    for problem in in_parallel(lambda each: _content_problem(folder, *each), files):
        if problem is not None:
            yield problem
    yield from _count_problems(reports, record)


def _content_problem(folder: OutputFolder, name: str, file: OutputFile) -> Problem | None:
    path = folder.path_of(name)
    try:
        if (crc := checksum(path)) != file.crc32c:
            return Problem(name, f"has crc32c {crc}, {file.crc32c} was written", _part_of(name))
        if (rows := count_rows(path)) != file.rows:
            return Problem(
                name, f"has {counted(rows, 'row')}, {file.rows} were written", _part_of(name)
            )
    except FileNotFoundError:
        return Problem(name, "missing", _part_of(name))
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        return Problem(name, f"cannot be read ({type(error).__name__})", _part_of(name))
    return None


def count_rows(path: str) -> int:
    """Rows of a file of an output; ValueError if it is damaged."""
    if path.endswith(".parquet"):
        import pyarrow.parquet as pq

        with open_raw(path) as file:
            return pq.read_metadata(file).num_rows
    with open_raw(path) as raw, gzip.open(raw) if path.endswith(".gz") else raw as file:
        pieces = iter(lambda: file.read(_PIECE), b"")
        if ".tfrecord" in path.rpartition("/")[2]:
            return sum(map(len, unframed(pieces)))
        return sum(piece.count(b"\n") for piece in pieces)


def _count_problems(
    reports: dict[tuple[int, int], BlockReport], record: RunRecord
) -> Iterator[Problem]:
    """Compares the sums of the reports with the record, and finds parts without a report."""
    numbers: dict[int, set[int]] = {}
    for block, part in reports:
        numbers.setdefault(block, set()).add(part)
    for block in range(record.files.blocks):
        there = numbers.get(block, set())
        gaps = set(range(max(there, default=0) + 1)) - there
        for part in sorted(gaps):
            yield Problem(report_name(block, part), "missing", (block, part))
    if not record.is_done:
        yield Problem(RUN_FILE, f"the run is not complete (status {record.status})")
        return
    sums: Counter = Counter()
    for report in reports.values():
        sums.update(records=report.records, embedded=report.embedded, skipped=report.skipped)
        sums.update(rejected=sum(report.rejected.values()), parts=1)
        sums.update(written_counts(report.files))
    result = record.numbers
    said: dict[Any, int] = {name: getattr(result.counts, name) for name in _COUNTED}
    for kind, written in result.written.items():
        said |= {(kind, name): number for name, number in asdict(written).items()}
    for name in sorted(said.keys() | sums.keys(), key=str):
        if sums[name] != said.get(name, 0):
            what = name if isinstance(name, str) else f"{name[1]} in {name[0]}"
            yield Problem(RUN_FILE, f"counts {said.get(name, 0)} {what}, the reports {sums[name]}")
