"""Tells which of several outputs continue others, from the records of their runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_embed.run_record import RunRecord


@dataclass(frozen=True)
class Lineage:
    """A run and those that it continues.

    Attributes:
        run: Its fingerprint, None if it is not known.
        earlier: The fingerprints of the runs that its `--skip_existing` named.
    """

    run: str | None = None
    earlier: frozenset[str] = frozenset()

    @classmethod
    def of_record(cls, record: RunRecord) -> "Lineage":
        """From a run's `run.json`; a BigQuery table, which has no run, is left out."""
        named = record.input.earlier
        return cls(record.run, frozenset(each.run for each in named if each.run is not None))


def later_outputs(lineages: Sequence[Lineage]) -> list[set[int]]:
    """For each output the numbers of those that continue it, directly or not.

    >>> monday, tuesday = Lineage("mon"), Lineage("tue", frozenset({"mon"}))
    >>> later_outputs([monday, tuesday, Lineage("wed", frozenset({"tue"})), Lineage("apart")])
    [{1, 2}, {2}, set(), set()]
    """
    later: list[set[int]] = []
    for lineage in lineages:
        found: set[int] = set()
        runs = {lineage.run}
        while runs:
            new = {number for number, each in enumerate(lineages) if each.earlier & runs} - found
            found |= new
            runs = {lineages[number].run for number in new}
        later.append(found)
    return later
