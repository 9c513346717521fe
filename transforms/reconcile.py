"""The steps that sum the block records of a run and compare the sum with the plan."""

from collections.abc import Iterable
from itertools import zip_longest

import apache_beam as beam

from bert_embed.transforms.ledger import (
    HASHES,
    SUMMED,
    BlockRecord,
    Distinct,
    Totals,
    Verdict,
    joined,
    listing_hash,
    verdict,
    written_counts,
)
from bert_embed.transforms.parts import PlannedWork

_MOST_HASHES, _MOST_HELD = 1 << 18, 1000  # held before they are joined
_COUNTERS = (
    *("counts", "rejected", "unfit", "seconds", "covered", "records", "written"),
    "unknown_scripts",
)
_MOST_FILES = 1000  # whose [UNK] are counted; exact up to there, if among the worst of their parts


class SumBlockRecords(beam.CombineFn):
    """Sums BlockRecords to Totals, which stay small for any number of block records."""

    def create_accumulator(self) -> Totals:
        return Totals()

    def add_input(self, totals: Totals, record: BlockRecord) -> Totals:
        totals.counts.update({name: getattr(record, name) for name in SUMMED})
        totals.counts["block_records"] += 1
        totals.written.update(written_counts(record.files))
        sizes = {name: file.bytes for name, file in record.files.items()}
        totals.listing = (totals.listing + listing_hash(sizes)) % HASHES
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
            merged.listing = (merged.listing + totals.listing) % HASHES
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


def reconcile(
    block_records: beam.PCollection[BlockRecord], planned: beam.PCollection[PlannedWork]
) -> beam.PCollection[Verdict]:
    """Compares BlockRecords with the PlannedWork of `PlanBlocks`; gives one Verdict."""
    totals = block_records | "Sum" >> beam.CombineGlobally(SumBlockRecords()).as_singleton_view()
    return planned | "Reconcile" >> beam.Map(verdict, totals)
