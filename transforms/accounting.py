"""AccountBlocks: the durable reports in, one Verdict out: is every document accounted for?"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import orjson

from transforms.block_spec import BlockSpec, PlannedWork, part_name
from transforms.dead_letter import count_reasons
from transforms.files import join, read_bytes, size_of
from transforms.part import Part

_FORMAT = 1
LENGTH_BIN = 16  # tokens a bin of the length histogram
_FILE_NAME = re.compile(r"[a-z]+-([0-9]+-[0-9]+)(?:\.[a-z0-9]+)+")
_MOST_NAMED = 5  # problems of one kind that a message lists before it counts the rest


class AccountError(RuntimeError):
    """The reports do not add up to what was planned: documents were lost or doubled."""


@dataclass(frozen=True)
class BlockReport:
    """What became of a part; written last of its files, it is the mark that the part is done.

    Attributes:
        block, part, last, records, covered, end_of_file, seconds: As in `Part`.
        embedded: Documents with a vector in the output.
        skipped: Documents that an earlier output has.
        rejected: How many records each reason refused.
        blank: Blank lines among the rejected.
        truncated: Embedded documents whose text was cut.
        tokens: Tokens of the embedded documents, special tokens included.
        computed_tokens: Tokens the model ran on, each distinct row once.
        padded_tokens: The same with padding.
        batches: Batches the model ran.
        compiled: Shapes of batches that were compiled for it.
        lengths: Embedded documents by length, in bins of 16 tokens.
        files: Names of the part's files, and their bytes.
        reused: Written by an earlier attempt; not kept in the file.
    """

    block: int
    part: int
    last: bool
    records: int
    covered: dict[int, int]
    end_of_file: int | None
    embedded: int = 0
    skipped: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    blank: int = 0
    truncated: int = 0
    tokens: int = 0
    computed_tokens: int = 0
    padded_tokens: int = 0
    batches: int = 0
    compiled: int = 0
    lengths: list[int] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reused: bool = False

    def __post_init__(self) -> None:
        accounted = self.embedded + self.skipped + sum(self.rejected.values())
        if self.records != accounted:
            raise AccountError(
                f"part {part_name(self.block, self.part)}: {self.records} records read, but "
                f"{accounted} embedded, rejected or skipped"
            )


def part_report(part: Part, **counts: Any) -> BlockReport:
    """The report of a part, with the counts that the writer knows."""
    return BlockReport(
        block=part.block,
        part=part.number,
        last=part.last,
        records=part.records,
        covered=part.covered,
        end_of_file=part.end_of_file,
        skipped=part.skipped,
        rejected=count_reasons(part.rejected),
        blank=sum(each.blank for each in part.rejected),
        seconds={room: round(seconds, 6) for room, seconds in part.seconds.items()},
        **counts,
    )


def length_histogram(num_tokens: np.ndarray) -> list[int]:
    """int `[documents]` to counts of bins of 16 tokens.

    >>> length_histogram(np.array([3, 15, 16, 40]))
    [2, 1, 1]
    """
    return np.bincount(num_tokens // LENGTH_BIN).tolist()


def report_path(output: str, block: int, part: int) -> str:
    return join(output, f"blocks/{part_name(block, part)}.json")


def report_bytes(report: BlockReport, run: str) -> bytes:
    row = {"format": _FORMAT, "run": run} | asdict(report)
    del row["reused"]
    return orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)


def read_report(path: str, run: str) -> BlockReport | None:
    """An earlier attempt's report, or None if there is none of this run."""
    data = read_bytes(path)
    report = None if data is None else parse_report(data, run)
    if report is None or not path.endswith(f"/{part_name(report.block, report.part)}.json"):
        return None
    return report


def parse_report(data: bytes, run: str) -> BlockReport | None:
    """The report in a file; None if it is of another run, or is not what `report_bytes` writes.

    A folder may hold what somebody else put there. The files that a report names are looked for,
    so they must have the part's own names, which lead nowhere else.
    """
    try:
        row = orjson.loads(data)
        if row.pop("format") != _FORMAT or row.pop("run") != run:
            return None
        row["covered"] = {int(file): size for file, size in row["covered"].items()}
        report = BlockReport(**row, reused=True)
        counts = [getattr(report, name) for name in ("block", "part", *_SUMMED)]
        counts += [*report.rejected.values(), *report.covered.values(), *report.files.values()]
        counts += [*report.lengths, report.end_of_file or 0]
        whole = all(type(count) is int and count >= 0 for count in counts)
        whole &= all(isinstance(seconds, (int, float)) for seconds in report.seconds.values())
        own = part_name(report.block, report.part)
        found = [_FILE_NAME.fullmatch(name) for name in report.files]
        named = all(match is not None and match[1] == own for match in found)
    except (AccountError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return report if whole and named else None


def finished_parts(
    output: str, run: str, spec: BlockSpec, examples: str | None = None
) -> dict[int, BlockReport]:
    """The reports that a reader of this block has to its credit, by part number.

    A report one of whose files is gone or cut does not count: the part is written again.

    Args:
        output: Folder of the run's output.
        run: Fingerprint of the run.
        spec: What the reader reads.
        examples: Where the run keeps its examples, if that is another folder.
    """
    kept = examples or output
    found: dict[int, BlockReport] = {}
    number = spec.stripe
    while (report := read_report(report_path(output, spec.number, number), run)) is not None:
        places = {n: kept if n.startswith("examples-") else output for n in report.files}
        if all(size_of(join(places[n], n)) == size for n, size in report.files.items()):
            found[number] = report
        if report.last:
            break
        number += spec.stripes
    return found


def is_complete(spec: BlockSpec, done: dict[int, BlockReport]) -> bool:
    """Whether a reader has all its parts, up to the last."""
    last = max(done, default=None)
    if last is None or not done[last].last:
        return False
    return len(done) == (last - spec.stripe) // spec.stripes + 1


@dataclass
class Totals:
    """The sum of reports, and what is needed to check it.

    Attributes:
        counts: Sums of the reports' numbers, by their names.
        rejected: Sums by reason.
        seconds: Sums by room, over all workers.
        lengths: Sum of the histograms.
        covered: Bytes covered of each file.
        parts: Part numbers seen of each block, as bits: an object for each would weigh more than
            all else.
        doubled: Blocks of which a part was seen twice.
        ends: For each block read through: what its readers saw, records a file.
        records: For each block read through: records of its parts.
        lasts: Reports that were their reader's last.
    """

    counts: Counter = field(default_factory=Counter)
    rejected: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    covered: Counter = field(default_factory=Counter)
    parts: dict[int, int] = field(default_factory=dict)
    doubled: set[int] = field(default_factory=set)
    ends: dict[int, list[int]] = field(default_factory=dict)
    records: Counter = field(default_factory=Counter)
    lasts: int = 0


_SUMMED = (
    "records",
    "embedded",
    "skipped",
    "blank",
    "truncated",
    "tokens",
    "computed_tokens",
    "padded_tokens",
    "batches",
    "compiled",
)


class SumReports(beam.CombineFn):
    """Sums BlockReports to Totals; small beside the reports, whatever their number."""

    def create_accumulator(self) -> Totals:
        return Totals()

    def add_input(self, totals: Totals, report: BlockReport) -> Totals:
        totals.counts.update({name: getattr(report, name) for name in _SUMMED})
        totals.counts["reports"] += 1
        totals.counts["files"] += len(report.files)
        totals.counts["bytes"] += sum(report.files.values())
        totals.counts["reused"] += report.reused
        if not report.reused:
            totals.counts["new_documents"] += report.embedded
            totals.counts["new_tokens"] += report.tokens
        totals.rejected.update(report.rejected)
        totals.seconds.update(report.seconds)
        totals.covered.update(report.covered)
        totals.lengths = _added(totals.lengths, report.lengths)
        _add_parts(totals, report.block, 1 << report.part)
        if report.end_of_file is not None:
            totals.ends.setdefault(report.block, []).append(report.end_of_file)
        if not report.covered:
            totals.records[report.block] += report.records
        totals.lasts += report.last
        return totals

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        rest = iter(accumulators)
        merged = next(rest, None) or self.create_accumulator()  # which Beam lets us change
        for each in rest:
            for name in ("counts", "rejected", "seconds", "covered", "records"):
                getattr(merged, name).update(getattr(each, name))
            merged.lengths = _added(merged.lengths, each.lengths)
            for block, parts in each.parts.items():
                _add_parts(merged, block, parts)
            merged.doubled |= each.doubled
            for block, ends in each.ends.items():
                merged.ends.setdefault(block, []).extend(ends)
            merged.lasts += each.lasts
        return merged

    def extract_output(self, totals: Totals) -> Totals:
        return totals


def _add_parts(totals: Totals, block: int, parts: int) -> None:
    seen = totals.parts.get(block, 0)
    totals.parts[block] = seen | parts
    if seen & parts:
        totals.doubled.add(block)


def _added(left: list[int], right: list[int]) -> list[int]:
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    return [n + (shorter[i] if i < len(shorter) else 0) for i, n in enumerate(longer)]


@dataclass(frozen=True)
class Verdict:
    """The account of a run.

    Attributes:
        totals: The sums.
        problems: What does not add up, one sentence each; none if nothing was lost.
    """

    totals: Totals
    problems: tuple[str, ...]


@dataclass
class AccountBlocks(beam.PTransform):
    """BlockReports, against the one PlannedWork, to one Verdict.

    Attributes:
        planned: The PlannedWork of `PlanBlocks`.
    """

    planned: beam.PCollection

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, reports: beam.PCollection[BlockReport]) -> beam.PCollection[Verdict]:
        totals = reports | "Sum" >> beam.CombineGlobally(SumReports())
        return totals | "Check" >> beam.Map(verdict, beam.pvalue.AsSingleton(self.planned))


def verdict(totals: Totals, planned: PlannedWork) -> Verdict:
    """Holds the sum of the reports against the plan."""
    found = [*_missing_parts(totals, planned), *_uncovered(totals, planned), *_unread(totals)]
    return Verdict(totals, tuple(found))


def _missing_parts(totals: Totals, planned: PlannedWork) -> Iterator[str]:
    missing = planned.blocks - len(totals.parts)
    if missing:
        yield f"{missing} of {planned.blocks} planned blocks have no report"
    if totals.lasts != planned.readers:
        yield f"{totals.lasts} readers reported their last part, {planned.readers} were planned"
    gaps = {block for block, parts in totals.parts.items() if parts & (parts + 1)}
    yield from _named(
        (
            f"block {block:07d} has parts missing or doubled"
            for block in sorted(gaps | totals.doubled)
        ),
        "blocks",
    )


def _uncovered(totals: Totals, planned: PlannedWork) -> Iterator[str]:
    """The independent witness: what the lines took up must be the size in the listing."""
    yield from _named(
        (
            f"{path}: its blocks covered {totals.covered[file]} bytes of {stop}"
            for file, (path, stop) in enumerate(zip(planned.paths, planned.stops, strict=True))
            if stop is not None and totals.covered[file] != stop
        ),
        "files",
    )


def _unread(totals: Totals) -> Iterator[str]:
    yield from _named(
        (
            f"block {block:07d}: {totals.records[block]} records in its parts, its readers saw "
            f"{', '.join(map(str, sorted(set(ends))))}"
            for block, ends in sorted(totals.ends.items())
            if set(ends) != {totals.records[block]}
        ),
        "blocks",
    )


def _named(problems: Iterable[str], what: str) -> Iterator[str]:
    listed = list(problems)
    yield from listed[:_MOST_NAMED]
    if len(listed) > _MOST_NAMED:
        yield f"and {len(listed) - _MOST_NAMED} further {what}"
