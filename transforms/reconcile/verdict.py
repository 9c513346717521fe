"""Compares the sum of the block records with the plan."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import apache_beam as beam

from bert_embed.run_record import Load
from bert_embed.storage.plurals import counted
from bert_embed.transforms.reconcile.totals import SumBlockRecords, Totals
from bert_embed.transforms.records.block_record import BlockRecord
from bert_embed.transforms.records.spec import PlannedWork

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
