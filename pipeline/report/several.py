"""Sums the results of several runs, as if one run had written all of their outputs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any, TypeVar

from bert_embed.pipeline.outputs.outcome import length_statistics, share
from bert_embed.pipeline.report.sample import Run
from bert_embed.run_record import Counts, Lengths, Result, RunRecord, Surplus, Unknown, Written
from bert_embed.transforms.ledger import EQUAL_BINS, from_equal_bins

_Sum = TypeVar("_Sum", Counts, Written)


def pooled(runs: Sequence[Run]) -> RunRecord:
    """The record of one run, or that of the first of several with the results of all."""
    records = [run.record for run in runs]
    if len(records) == 1:
        return records[0]
    skipped = _added(record.input.skipped_files for record in records)
    return replace(
        records[0],
        input=replace(records[0].input, paths=None, skipped_files=skipped),
        started=min(record.started for record in records),
        ended=max(record.ended or "" for record in records),
        result=_result([record.numbers for record in records]),
    )


def _result(results: Sequence[Result]) -> Result:
    first = results[0]
    whole = {
        name: sum(getattr(result, name) for result in results)
        for name in (
            *("tokens", "full_tokens", "computed_tokens", "padded_tokens", "batches"),
            "elapsed_seconds",
        )
    }
    kinds = sorted({kind for result in results for kind in result.written})
    none = Written(files=0, bytes=0, rows=0)
    return replace(
        first,
        **whole,
        counts=_sum([result.counts for result in results]),
        written={
            kind: _sum([result.written.get(kind, none) for result in results]) for kind in kinds
        },
        rejected=_added(result.rejected for result in results),
        unfit=_added(result.unfit for result in results),
        cut_share=share(whole["full_tokens"] - whole["tokens"], whole["full_tokens"]),
        unknown=_unknown(results),
        equal_texts=Surplus(sum(result.equal_texts.surplus for result in results), exact=False),
        equal_ids=None,
        padding_share=share(
            whole["padded_tokens"] - whole["computed_tokens"], whole["padded_tokens"]
        ),
        lengths=_lengths([result.lengths for result in results]),
        stage_seconds=_added(result.stage_seconds for result in results),
        documents_per_second=_rate(results, "documents_per_second"),
        tokens_per_second=_rate(results, "tokens_per_second"),
    )


def _sum(several: Sequence[_Sum]) -> _Sum:
    """Counts of one kind, field by field."""
    names = [field.name for field in fields(several[0])]
    return replace(
        several[0], **{name: sum(getattr(one, name) for one in several) for name in names}
    )


def _added(several: Iterable[dict[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for values in several:
        total.update(values)
    return dict(total)


def _rate(results: Sequence[Result], name: str) -> float | None:
    """The rate over the time of those runs that computed something."""
    timed = [(getattr(result, name), result.elapsed_seconds) for result in results]
    timed = [(rate, seconds) for rate, seconds in timed if rate is not None]
    seconds = sum(seconds for _, seconds in timed)
    return round(sum(rate * spent for rate, spent in timed) / seconds, 1) if seconds else None


def _unknown(results: Sequence[Result]) -> Unknown:
    tokens = sum(result.tokens for result in results)
    shares = {
        name: share(
            sum(getattr(result.unknown, name) * result.tokens for result in results), tokens
        )
        for name in ("share", "continuing_share")
    }
    files = [file for result in results for file in result.unknown.files]
    return Unknown(
        tokens=sum(result.unknown.tokens for result in results),
        files=tuple(sorted(files, key=lambda file: -file.tokens)),
        scripts=_added(result.unknown.scripts for result in results),
        **shares,
    )


def _lengths(several: Sequence[Lengths]) -> Lengths:
    counts = [equal_bins(lengths).counts for lengths in several]
    return length_statistics([sum(column) for column in zip_longest(*counts, fillvalue=0)])


def equal_bins(lengths: Lengths) -> Lengths:
    """The histogram, of earlier versions in the bins of this one."""
    if lengths.equal_bins is None and len(lengths.counts) > EQUAL_BINS:
        return length_statistics(from_equal_bins(lengths.counts))
    return lengths
