"""The steps that sum the block records of a run and compare the sum with the plan."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.transforms.ledger import (
    HASHES,
    SUMMED,
    BlockRecord,
    Totals,
    Verdict,
    listing_hash,
    verdict,
    written_counts,
)
from bert_embed.transforms.parts import PlannedWork

_COUNTERS = ("counts", "rejected", "unfit", "seconds", "covered", "records", "written")


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
        totals.lengths = _added(totals.lengths, record.length_bins)
        totals.norms = _ends(totals.norms + record.norms)
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
            merged.lengths = _added(merged.lengths, totals.lengths)
            merged.norms = _ends(merged.norms + totals.norms)
            for block, parts in totals.parts.items():
                _add_parts(merged, block, parts)
            merged.doubled |= totals.doubled
            merged.ends |= totals.ends
            merged.lasts += totals.lasts
        return merged

    def extract_output(self, totals: Totals) -> Totals:
        return totals


def _add_parts(totals: Totals, block: int, parts: int) -> None:
    seen = totals.parts.get(block, 0)
    totals.parts[block] = seen | parts
    if seen & parts:
        totals.doubled.add(block)


def _added(left: list[int], right: list[int]) -> list[int]:
    return [one + other for one, other in zip_longest(left, right, fillvalue=0)]


def _ends(numbers: list[float]) -> list[float]:
    return [min(numbers), max(numbers)] if numbers else []


class _SumBundle(beam.DoFn):
    """Sums the BlockRecords of a bundle where they are made."""

    def start_bundle(self) -> None:
        self._sum, self._totals = SumBlockRecords(), Totals()

    def process(self, record: BlockRecord) -> None:
        self._totals = self._sum.add_input(self._totals, record)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._totals.counts:
            window = GlobalWindow()
            yield WindowedValue(self._totals, window.max_timestamp(), [window])


class _SumTotals(SumBlockRecords):
    """Sums Totals."""

    def add_input(self, totals: Totals, more: Any) -> Totals:
        return self.merge_accumulators([totals, more])


def reconcile(
    block_records: beam.PCollection[BlockRecord] | Sequence[beam.PCollection[BlockRecord]],
    planned: beam.PCollection[PlannedWork],
) -> beam.PCollection[Verdict]:
    """Compares BlockRecords with the PlannedWork of `PlanBlocks`; gives one Verdict.

    Records of several collections are summed before they are joined, as runners hold what they
    join: a kilobyte a part.
    """
    several = [block_records] if isinstance(block_records, beam.PCollection) else block_records
    sums = [
        records | f"SumBundles{number}" >> beam.ParDo(_SumBundle())
        for number, records in enumerate(several)
    ]
    every = sums | "Sums" >> beam.Flatten()
    totals = every | "Sum" >> beam.CombineGlobally(_SumTotals()).as_singleton_view()
    return planned | "Reconcile" >> beam.Map(verdict, totals)
