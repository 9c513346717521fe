"""Tells which of several outputs continue others, from the records of their runs."""

from collections.abc import Mapping, Sequence
from typing import Any


def later_outputs(records: Sequence[Mapping[str, Any] | None]) -> list[set[int]]:
    """For each output the numbers of those that continue it, directly or not.

    A run continues those that its `--skip_existing` named. What it embedded again, of a document
    that an earlier output has, is the newer version.

    Args:
        records: The outputs' `run.json`; None of one without.

    >>> runs = [("mon", []), ("tue", ["mon"]), ("wed", ["tue"]), ("other", [])]
    >>> later_outputs(
    ...     [
    ...         {"run": run, "input": {"skip_existing": [{"run": each} for each in named]}}
    ...         for run, named in runs
    ...     ]
    ... )
    [{1, 2}, {2}, set(), set()]
    """
    named = [_named(record) for record in records]
    later: list[set[int]] = []
    for record in records:
        found: set[int] = set()
        runs = {record["run"]} if record else set()
        while runs:
            new = {number for number, each in enumerate(named) if each & runs} - found
            found |= new
            runs = {each["run"] for number in new if (each := records[number])}
        later.append(found)
    return later


def _named(record: Mapping[str, Any] | None) -> set[str]:
    """The runs that a run's record names as earlier ones; a table is none."""
    earlier = record["input"].get("skip_existing") if record else None
    return {each["run"] for each in earlier or () if each["run"] is not None}
