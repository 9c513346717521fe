"""The last steps of a run: sum its block records, compare them with the plan, record the result."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.base.errors import InputError, required, step_message
from bert_embed.results.run_record import RunRecord, change_record
from bert_embed.transforms.ledger import (
    BlockRecord,
    ReconcileError,
    Totals,
    Verdict,
    judged,
    listing_hash,
    of_parts,
    result_of,
    uncovered,
    verdict,
)
from bert_embed.transforms.output_check import sum_problems
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import PlannedWork
from bert_embed.transforms.steps import activity


class _SumBundle(beam.DoFn):
    """Sums the BlockRecords of a bundle where they are made."""

    def start_bundle(self) -> None:
        self._totals = Totals()

    def process(self, record: BlockRecord) -> None:
        self._totals.add(record)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._totals.counts:
            yield GlobalWindows.windowed_value_at_end_of_window((_ALL, self._totals))


_ALL = 0  # the one key of what is gathered


def reconcile(
    block_records: Sequence[beam.PCollection[BlockRecord]],
    planned: beam.PCollection[PlannedWork],
) -> beam.PCollection[Verdict]:
    """Compares BlockRecords with the PlannedWork of `PlanBlocks`; gives one Verdict.

    Records of several collections are summed before they are joined, as runners hold what they
    join: a kilobyte a part.
    """
    numbered = enumerate(block_records)
    sums = [one | f"SumBundles{n}" >> beam.ParDo(_SumBundle()) for n, one in numbered]
    plan = planned | "Key plan" >> beam.Map(lambda planned: (_ALL, planned))
    gathered = (*sums, plan) | "All" >> beam.Flatten() | "Gather" >> beam.GroupByKey()
    return gathered | "Reconcile" >> beam.MapTuple(_compared)


def _compared(_: int, gathered: Iterable[Any]) -> Verdict:
    """The verdict of one PlannedWork and Totals, in any order."""
    planned, totals = None, Totals()
    for one in gathered:
        if isinstance(one, PlannedWork):
            planned = one
        else:
            totals.add(one)
    return verdict(required(planned, "plan"), totals)


def checked(
    verdict: Verdict, folder: OutputFolder, run: str, allowed: str, truncates: bool
) -> Verdict:
    """The verdict once all is written: of what is there, and of how much was rejected."""
    return judged(_with_listing(verdict, folder, run), allowed, truncates)


def _with_listing(verdict: Verdict, folder: OutputFolder, run: str) -> Verdict:
    """The verdict with the problems that a listing of the output shows, once all is written.

    What was counted must be there, not only what is there be whole: files that vanished together
    with their block record leave nothing behind that names them.
    """
    with activity("checking the output"):
        files, recorded = folder.listed()
    sizes, totals = of_parts(files), verdict.totals
    verdict = replace(verdict, deleted_before=tuple(files.keys() - sizes.keys()))
    lost = uncovered(totals.parts, recorded)
    if not lost and listing_hash(sizes) == totals.listing:
        return verdict
    lines = sum_problems(folder, run, sizes, totals)
    return replace(verdict, problems=(*verdict.problems, *lines))


def recorded(
    verdict: Verdict,
    output: str,
    record: RunRecord,
    started: float,
    older: OutputFolder | None,
    keeps_texts: bool,
) -> Iterator[RunRecord]:
    """Writes run.json from the verdict.

    Fails the job if the counts do not add up, or if too much was rejected: where no command waits,
    as for a template, its state is all that a scheduler sees.
    """
    yield finish(output, record, verdict, started, older, keeps_texts)
    if verdict.problems or verdict.refused:
        raise ReconcileError(step_message("; ".join(verdict.problems)) or verdict.refused)


def finish(
    output: str,
    record: RunRecord,
    verdict: Verdict,
    started: float,
    older: OutputFolder | None = None,
    keeps_texts: bool = True,
) -> RunRecord:
    """Writes the result: `done`, `refused`, or `failed` with the counts that do not add up.

    Removes the keys that an `older` run kept, once this one has them. An equal job that ended well
    is not made `failed`. ReconcileError, and nothing is written, if the folder is another run's by
    now.
    """
    error = step_message("; ".join(verdict.problems)) or None
    result = result_of(verdict.totals, time.time() - started, verdict.changes)

    def finished(present: RunRecord | None) -> RunRecord | None:
        if present is not None and present.run != record.run:
            raise ReconcileError(f"{output} holds another run now, which replaced this one")
        if present is not None and present.is_done and error is not None:
            return None
        job = record.job if present is None else present.job or record.job
        return replace(record, job=job).finished(result, verdict.loads, error, verdict.refused)

    OutputFolder(output).sync()  # no power cut may leave `done` and take a part
    written = required(change_record(output, finished), "record")
    if error is None:
        if keeps_texts:
            OutputFolder(output).remove_texts()
        if older is not None:
            with suppress(OSError, InputError):  # perhaps it may only be read
                older.remove_keys()
    return written
