"""Computes the numbers of a finished run and decides whether it succeeded."""

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from bert_embed.pipeline.options import Options
from bert_embed.run_record import (
    Counts,
    Lengths,
    Result,
    RunRecord,
    Surplus,
    Unknown,
    UnknownInFile,
    Written,
)
from bert_embed.storage.plurals import counted, counted_of
from bert_embed.transforms.ledger import EQUAL_BINS, LENGTH_BIN, Distinct, joined, length_end
from bert_embed.transforms.parts import BLANK_LINE
from bert_embed.transforms.reconcile import Totals, Verdict

# Which flags help where much of a text did not reach the model.
ADVICE = {
    "cut": "--long_text window or --chunk tokens reads all, --max_seq_length more",
    "unknown": "choose a --model for these languages",
}
_MOST_FILES = 5  # with most [UNK] that a record lists


def embedded_nothing(record: RunRecord) -> bool:
    """Whether a finished run embedded none of the records that it read and did not skip."""
    return record.is_done and _is_nothing(record.numbers.counts)


def _is_nothing(counts: Counts) -> bool:
    return counts.embedded == 0 and counts.rejected > counts.blank_lines


def judged(verdict: Verdict, allowed: str, truncates: bool) -> Verdict:
    """The verdict of a whole run, refused if more was rejected than `--max_rejected` allows."""
    if verdict.problems:
        return verdict
    totals = verdict.totals
    return replace(verdict, refused=problem(_counts(totals), totals.rejected, allowed, truncates))


def problem_of(record: RunRecord, options: Options) -> str | None:
    """Why a complete run is refused by the options of now; None if it is not."""
    numbers = record.numbers
    return problem(numbers.counts, numbers.rejected, options.max_rejected, options.truncates)


def problem(
    counts: Counts, rejected: Mapping[str, int], allowed: str, truncates: bool
) -> str | None:
    """Why a complete run is refused; None if it is not.

    The records that were rejected are counted against all that were read, blank lines apart from
    both. `allowed` is --max_rejected; `truncates` says whether a table's rows would be replaced.
    """
    blank = counts.blank_lines
    bad, records = counts.rejected - blank, counts.records - blank
    beside = f"(beside {counted(blank, 'blank line')}) " if blank else ""
    were = counted_of(bad, records, "record", f"{beside}was", f"{beside}were")
    is_share = allowed.endswith("%")
    whole = is_share and Decimal(allowed[:-1]) == 100
    if _is_nothing(counts) and not whole and not counts.skipped:
        reasons = Counter(rejected)
        reasons[BLANK_LINE] -= blank
        ((reason, _),) = reasons.most_common(1)
        return (
            f"nothing was embedded: {were} rejected, most for: {reason}; with that "
            "corrected, the same --output can be used again (--max_rejected 100% accepts it)"
        )
    if truncates and counts.embedded == 0 and counts.records:
        return (
            f"nothing of {counted(counts.records, 'record')} was embedded, so nothing was loaded: "
            "--write_disposition truncate would have emptied the table (append leaves it as it is)"
        )
    # In binary fractions, 29% of 100 would be less than 29.
    most = Decimal(allowed[:-1]) * records / 100 if is_share else int(allowed)
    if bad <= most:
        return None
    return (
        f"{were} rejected, --max_rejected allows {allowed}: rejected/ has them with their reasons; "
        f"--max_rejected {bad} accepts the run, whose vectors are kept"
    )


def _counts(totals: Totals) -> Counts:
    counts = totals.counts
    return Counts(
        records=counts["records"],
        embedded=counts["embedded"],
        rejected=sum(totals.rejected.values()),
        skipped=counts["skipped"],
        blank_lines=counts["blank"],
        truncated=counts["truncated"],
        parts=counts["block_records"],
        parts_reused=counts["reused"],
    )


def summary(totals: Totals, elapsed: float) -> Result:
    """The numbers of a run, from the sum of its block records.

    Rates are of what this attempt computed, over its whole time, start-up included; None if that is
    nothing.
    """
    counts = totals.counts
    nothing_new = counts["reused"] > 0 and counts["new_documents"] == 0
    padded = counts["padded_tokens"]
    texts = _surplus(counts["embedded"], totals.texts)
    ids = None if totals.ids is None else _surplus(counts["embedded"], totals.ids)
    return Result(
        counts=_counts(totals),
        written=_written(totals),
        listing=f"{totals.listing:016x}",
        rejected=dict(sorted(totals.rejected.items())),
        tokens=counts["tokens"],
        full_tokens=counts["full_tokens"],
        cut_share=share(counts["full_tokens"] - counts["tokens"], counts["full_tokens"]),
        unknown=_unknown(totals),
        equal_texts=texts,
        equal_ids=ids,
        computed_tokens=counts["computed_tokens"],
        padded_tokens=padded,
        padding_share=share(padded - counts["computed_tokens"], padded),
        batches=counts["batches"],
        compiled_shapes=counts["compiled"],
        lengths=length_statistics(totals.lengths),
        stage_seconds={stage: round(spent, 3) for stage, spent in totals.seconds.items()},
        elapsed_seconds=round(elapsed, 3),
        documents_per_second=None if nothing_new else round(counts["new_documents"] / elapsed, 1),
        tokens_per_second=None if nothing_new else round(counts["new_tokens"] / elapsed, 1),
        unfit=dict(sorted(totals.unfit.items())),
    )


def share(part: float, whole: float) -> float:
    """A share to four decimals; 0.0 of nothing."""
    return round(part / whole, 4) if whole else 0.0


def _surplus(documents: int, hashes: list[Distinct]) -> Surplus:
    """How many documents more there are than different texts, or ids."""
    all_of_them = joined(hashes)
    return Surplus(max(0, documents - all_of_them.count), exact=all_of_them.bits == 0)


def _unknown(totals: Totals) -> Unknown:
    """How many tokens are [UNK], in which files most, of which scripts; how many continue words."""
    unknown, tokens = totals.counts["unknown_tokens"], totals.counts["text_tokens"]
    worst = sorted(totals.unknown_files.items(), key=lambda item: (-item[1][0], item[0]))
    files = [UnknownInFile(file, of_file[0], share(*of_file)) for file, of_file in worst]
    scripts = sorted(totals.unknown_scripts.items(), key=lambda item: (-item[1], item[0]))
    return Unknown(
        tokens=unknown,
        share=share(unknown, tokens),
        files=tuple(files[:_MOST_FILES]),
        scripts=dict(scripts),
        continuing_share=share(totals.counts["continuing_tokens"], tokens),
    )


def length_statistics(counts: list[int]) -> Lengths:
    """A histogram of documents by their tokens, with the upper ends of its percentiles' bins.

    >>> length_statistics([2, 1, 0, 1])
    Lengths(bin_tokens=16, counts=(2, 1, 0, 1), p50=15, p90=63, p99=63, max=63, equal_bins=None)
    """
    sums, tops = list(itertools.accumulate(counts)), {}
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        documents = -(-share * sums[-1] // 100) if sums else 0
        at = bisect.bisect_left(sums, documents)
        tops[name] = length_end(at) if documents else None
    wide = EQUAL_BINS if len(counts) > EQUAL_BINS else None
    return Lengths(LENGTH_BIN, tuple(counts), **tops, equal_bins=wide)


def _written(totals: Totals) -> dict[str, Written]:
    """The files of each kind."""
    kinds = sorted({kind for kind, _ in totals.written})
    return {
        kind: Written(*(totals.written[kind, name] for name in ("files", "bytes", "rows")))
        for kind in kinds
    }
