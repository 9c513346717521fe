"""Sums the block records of a run and compares the sum with the plan."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import apache_beam as beam

from bert_embed.base.errors import counted
from bert_embed.results.run_record import Changes, Load
from bert_embed.transforms.ledger import SUMMED, BlockRecord, Distinct, joined
from bert_embed.transforms.output_folder import OutputFile
from bert_embed.transforms.parts import PlannedWork

_HASHES = 1 << 64
_MOST_HASHES, _MOST_HELD = 1 << 18, 1000  # held before they are joined
_COUNTERS = (
    *("counts", "rejected", "unfit", "seconds", "covered", "records", "written"),
    "unknown_scripts",
)
_MOST_FILES = 1000  # whose [UNK] are counted; exact up to there, if among the worst of their parts


@dataclass
class Totals:
    """The sum of block records, with what is needed to check it."""

    counts: Counter = field(default_factory=Counter)  # sums of their numbers
    rejected: Counter = field(default_factory=Counter)  # by reason
    unfit: Counter = field(default_factory=Counter)  # values that are null, by extra column
    seconds: Counter = field(default_factory=Counter)  # by stage, over all workers
    lengths: list[int] = field(default_factory=list)
    covered: Counter = field(default_factory=Counter)  # bytes of each file
    parts: dict[int, int] = field(default_factory=dict)  # of a block, bits: sets need more memory
    doubled: set[int] = field(default_factory=set)  # blocks with two records of one part
    ends: dict[int, int] = field(default_factory=dict)  # of blocks read through: a file's records
    records: Counter = field(default_factory=Counter)  # of the parts of blocks read through
    lasts: int = 0  # records that were their block's last
    written: Counter = field(default_factory=Counter)  # files, bytes and `(kind, "rows")`
    listing: int = 0  # `listing_hash` of all files
    unknown_files: dict[str, tuple[int, int]] = field(default_factory=dict)  # worst: [UNK], tokens
    unknown_scripts: Counter = field(default_factory=Counter)  # of sampled [UNK]
    texts: list[Distinct] = field(default_factory=list)
    ids: list[Distinct] | None = field(default_factory=list)  # None: not counted


class SumBlockRecords(beam.CombineFn):
    """Sums BlockRecords to Totals, which stay small for any number of block records."""

    def create_accumulator(self) -> Totals:
        return Totals()

    def add_input(self, totals: Totals, record: BlockRecord) -> Totals:
        totals.counts.update({name: getattr(record, name) for name in SUMMED})
        totals.counts["block_records"] += 1
        totals.written.update(written_counts(record.files))
        sizes = {name: file.bytes for name, file in record.files.items()}
        totals.listing = (totals.listing + listing_hash(sizes)) % _HASHES
        totals.counts["reused"] += record.reused
        if not record.reused:
            totals.counts["new_documents"] += record.embedded
            totals.counts["new_tokens"] += record.tokens
        totals.rejected.update(record.rejected)
        totals.unfit.update(record.unfit)
        totals.seconds.update(record.seconds)
        totals.covered.update(record.covered)
        totals.unknown_files = _worst(totals.unknown_files, record.unknown_files)
        totals.unknown_scripts.update(record.unknown_scripts)
        _add_hashes(totals, record)
        totals.lengths = _added(totals.lengths, record.length_bins)
        _add_parts(totals, record.block, 1 << record.part)
        if record.end_of_file is not None:
            totals.ends[record.block] = record.end_of_file
        if not record.covered:
            totals.records[record.block] += record.records
        totals.lasts += record.last
        return totals

    def merge_accumulators(self, accumulators: Iterable[Totals]) -> Totals:
        rest = iter(accumulators)
        merged = next(rest, None) or self.create_accumulator()  # Beam allows changing it
        for totals in rest:
            merged.listing = (merged.listing + totals.listing) % _HASHES
            for name in _COUNTERS:
                getattr(merged, name).update(getattr(totals, name))
            merged.unknown_files = _worst(merged.unknown_files, totals.unknown_files)
            merged.texts = _held(merged.texts + totals.texts)
            uncounted = merged.ids is None or totals.ids is None
            merged.ids = None if uncounted else _held((merged.ids or []) + (totals.ids or []))
            merged.lengths = _added(merged.lengths, totals.lengths)
            for block, parts in totals.parts.items():
                _add_parts(merged, block, parts)
            merged.doubled |= totals.doubled
            merged.ends |= totals.ends
            merged.lasts += totals.lasts
        return merged

    def extract_output(self, totals: Totals) -> Totals:
        totals.texts = [joined(totals.texts)]
        totals.ids = None if totals.ids is None else [joined(totals.ids)]
        return totals


def _add_hashes(totals: Totals, record: BlockRecord) -> None:
    texts = Distinct.from_text(record.text_hashes, record.hash_bits)
    totals.texts = _held([*totals.texts, texts])
    if totals.ids is None or record.id_hashes is None:
        totals.ids = None
        return
    totals.ids = _held([*totals.ids, Distinct.from_text(record.id_hashes, record.hash_bits)])


def _held(several: list[Distinct]) -> list[Distinct]:
    """The same, joined if there are many: sorting them for every record would take longer."""
    many = sum(len(hashes.hashes) for hashes in several) > _MOST_HASHES or len(several) > _MOST_HELD
    return [joined(several)] if many else several


def _add_parts(totals: Totals, block: int, parts: int) -> None:
    seen = totals.parts.get(block, 0)
    totals.parts[block] = seen | parts
    if seen & parts:
        totals.doubled.add(block)


def listing_hash(sizes: dict[str, int]) -> int:
    """A hash of names and sizes in any order; that of two listings is the sum of theirs."""
    hashes = (
        hashlib.blake2b(f"{name} {size}".encode(), digest_size=8).digest()
        for name, size in sizes.items()
    )
    return sum(int.from_bytes(hash_bytes, "big") for hash_bytes in hashes) % _HASHES


def written_counts(files: dict[str, OutputFile]) -> Counter:
    """Files, bytes and rows of each kind, as `Totals.written`."""
    counts: Counter = Counter()
    for name, file in files.items():
        kind = name.partition("/")[0]
        counts.update({(kind, "files"): 1, (kind, "bytes"): file.bytes, (kind, "rows"): file.rows})
    return counts


def _worst(
    left: dict[str, tuple[int, int]], right: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """The sum of both, for the files with most [UNK]."""
    if not right:
        return left
    added = dict(left)
    for file, (unknown, tokens) in right.items():
        had = added.get(file, (0, 0))
        added[file] = had[0] + unknown, had[1] + tokens
    if len(added) <= _MOST_FILES:
        return added
    return dict(sorted(added.items(), key=lambda item: (-item[1][0], item[0]))[:_MOST_FILES])


def _added(left: list[int], right: list[int]) -> list[int]:
    return [one + other for one, other in zip_longest(left, right, fillvalue=0)]


_MOST_NAMED = 5  # problems of one kind that a message lists before it counts the rest


@dataclass(frozen=True)
class Verdict:
    """The sums of a run, a sentence for each problem, and how each kind of vectors was loaded.

    `refused` says why a run that is whole is not to be loaded: too many records were rejected.
    """

    totals: Totals
    problems: tuple[str, ...]
    refused: str | None = None
    loads: dict[str, Load] = field(default_factory=dict)
    changes: Changes | None = None  # of a run that compares its input with earlier outputs


def with_files(verdict: Verdict, files: dict[str, OutputFile]) -> Verdict:
    """The verdict with further files, which are of no part."""
    totals = verdict.totals
    listing = listing_hash({name: file.bytes for name, file in files.items()})
    totals = replace(
        totals,
        written=totals.written + written_counts(files),
        listing=(totals.listing + listing) % _HASHES,
    )
    return replace(verdict, totals=totals)


def reconcile(
    block_records: beam.PCollection[BlockRecord], planned: beam.PCollection[PlannedWork]
) -> beam.PCollection[Verdict]:
    """Compares BlockRecords with the PlannedWork of `PlanBlocks`; gives one Verdict."""
    totals = block_records | "Sum" >> beam.CombineGlobally(SumBlockRecords())
    return totals | "Reconcile" >> beam.Map(verdict, beam.pvalue.AsSingleton(planned))


def verdict(totals: Totals, planned: PlannedWork) -> Verdict:
    """Compares the sum of the block records with the plan."""
    problems: list[str] = []
    missing = planned.blocks - len(totals.parts)
    if missing:
        problems.append(f"{missing} of {planned.blocks} planned blocks have no block record")
    if totals.lasts != planned.blocks:
        problems.append(
            f"{totals.lasts} blocks reported their last part, {planned.blocks} were planned"
        )
    gaps = {block for block, parts in totals.parts.items() if parts & (parts + 1)}
    doubled = (
        f"block {block:07d} has parts missing or doubled" for block in sorted(gaps | totals.doubled)
    )
    # An independent check: the bytes of all lines must equal the size in the listing.
    uncovered = (
        f"{path}: its blocks covered {totals.covered[file]} bytes of {stop}"
        for file, (path, stop) in enumerate(zip(planned.paths, planned.stops, strict=True))
        if stop is not None and totals.covered[file] != stop
    )
    unread = (
        f"block {block:07d}: {counted(totals.records[block], 'record')} in its parts, its file "
        f"has {end}"
        for block, end in sorted(totals.ends.items())
        if end != totals.records[block]
    )
    problems += [*_named(doubled, "blocks"), *_named(uncovered, "files"), *_named(unread, "blocks")]
    return Verdict(totals, tuple(problems))


def _named(problems: Iterable[str], what: str) -> Iterator[str]:
    listed = list(problems)
    yield from listed[:_MOST_NAMED]
    if len(listed) > _MOST_NAMED:
        yield f"and {len(listed) - _MOST_NAMED} further {what}"
