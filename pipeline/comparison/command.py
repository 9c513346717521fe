"""Runs `compare`: prints its figures as tables or JSON, and writes them into a report."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bert_embed.base.errors import counted
from bert_embed.pipeline.commands.search import excerpt
from bert_embed.pipeline.comparison.compare import compared
from bert_embed.pipeline.comparison.result import ComparedSide, Comparison, Measure
from bert_embed.pipeline.console import answer, warn
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.commands import CompareOptions
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.read import output_folders
from bert_embed.search.rankings import FIRST, Estimate
from bert_embed.storage.files import absolute
from bert_embed.transforms.output_folder import OutputFolder

_EXCERPT = 100  # letters of a text
_CLUSTERS, _CHANGED = 5, 5  # that are printed
_LETTERS = 200  # of a text in a report
_NONE = "-"


def run_compare(options: CompareOptions) -> int:
    """Prints how two outputs differ."""
    comparison = compare_and_report(options)
    if options.json:
        answer(json.dumps(comparison.to_dict(), ensure_ascii=False))
        return ExitCode.DONE
    answer(*lines_of(comparison))
    return ExitCode.DONE


def compare_and_report(options: CompareOptions) -> Comparison:
    """Compares two outputs, and writes the report of the new one where options name a file."""
    if options.output is None:
        return compared(options)
    # These import Beam.
    from bert_embed.pipeline.commands.outputs import check_place
    from bert_embed.pipeline.report.page import write_page

    folders = [absolute(folder) for folder in output_folders(options.new)]
    for folder in [*folders, *map(absolute, output_folders(options.old))]:
        check_place(options.output, folder)
    comparison = compared(options)
    runs = [Run(OutputFolder(folder), record_of_run(folder)) for folder in folders]
    texts_of = partial(sample_texts, runs, tell=warn)
    place = write_page(runs, absolute(options.output), None, texts_of, _for_page(comparison))
    warn(f"wrote {place}")
    return comparison


def _for_page(value: Any) -> Any:
    """The figures as plain values, texts cut as a page shows them."""
    if isinstance(value, Comparison):
        return _for_page(value.to_dict())
    if isinstance(value, dict):
        return {
            name: excerpt(inner, _LETTERS)
            if name == "text" and inner is not None
            else _for_page(inner)
            for name, inner in value.items()
        }
    return [_for_page(inner) for inner in value] if isinstance(value, list | tuple) else value


def lines_of(comparison: Comparison) -> list[str]:
    """The figures, for people."""
    return [
        *_sides(comparison),
        "",
        *_neighbours(comparison),
        "",
        *_relevance(comparison),
        *_costs(comparison.old, comparison.new),
        "",
        *_clusters(comparison),
        *_changed(comparison),
    ]


def _sides(comparison: Comparison) -> Iterator[str]:
    for name, side in (("OLD", comparison.old), ("NEW", comparison.new)):
        shape = f" {list(side.shape)}" if side.shape else ""
        yield (
            f"{name} {', '.join(side.outputs)}: {side.model} ({side.fingerprint[:12]}), "
            f"{side.vectors} {side.output_dtype}{shape}, {side.similarity}"
        )
    old, new = comparison.old, comparison.new
    yield (
        f"{counted(comparison.pool, 'document')} in both; {new.missing:,} only in OLD, "
        f"{old.missing:,} only in NEW, which are not searched"
    )
    for name, side in (("OLD", old), ("NEW", new)):
        if side.rows > side.documents:
            yield (
                f"{name} has {side.rows:,} rows of {counted(side.documents, 'document')}: the best "
                "row of a document counts"
            )
        if side.unusable:
            unusable = counted(side.unusable, "vector")
            yield f"{name} has {unusable} that are missing, zero or not finite"
    if comparison.unusable_queries:
        yield (
            f"{counted(comparison.unusable_queries, 'document')} drawn without a vector on a side: "
            "left out"
        )


def _neighbours(comparison: Comparison) -> Iterator[str]:
    overlaps = (comparison.overlap_at_1, comparison.overlap_at_10, comparison.overlap_at_100)
    rows = [
        (f"overlap of the first {first}", one)
        for first, one in zip(FIRST, overlaps, strict=True)
        if first < comparison.pool  # else it is of all documents, which both have
    ]
    rows.append(("rank correlation of the first 100", comparison.rank_correlation))
    title = f"neighbours of {counted(comparison.queries, 'query', 'queries')}"
    yield from _table(
        [(title, "mean", "95% interval")]
        + [(name, f"{one.mean:.3f}", _interval(one)) for name, one in rows]
    )


def _interval(one: Estimate) -> str:
    return _NONE if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"


def _relevance(comparison: Comparison) -> Iterator[str]:
    found = comparison.relevance
    if found is None:
        return

    def row(name: str, measure: Measure) -> tuple[str, ...]:
        means = f"{measure.old.mean:.4f}", f"{measure.new.mean:.4f}"
        return name, *means, f"{measure.difference.mean:+.4f}", _interval(measure.difference)

    title = f"relevance, {counted(found.queries, 'query', 'queries')}"
    yield from _table(
        [
            (title, "OLD", "NEW", "NEW - OLD", "95% interval"),
            row("nDCG@10", found.ndcg_at_10),
            row("recall@100", found.recall_at_100),
            row("MRR", found.mrr),
        ]
    )
    if found.outside:
        yield (
            f"{counted(found.outside, 'relevant document')} not in both outputs: left out, and "
            f"{counted(found.without, 'query', 'queries')} without any other"
        )
    yield ""


def _costs(old: ComparedSide, new: ComparedSide) -> list[str]:
    def row(name: str, one: Any, other: Any, form: str = ",.0f") -> tuple[str, ...]:
        values = (one, other)
        return name, *(_NONE if value is None else format(value, form) for value in values)

    return _table(
        [
            ("cost and drift", "OLD", "NEW"),
            row("bytes of vectors", old.bytes, new.bytes),
            row("bytes a row", old.bytes_per_row, new.bytes_per_row),
            row("tokens", old.tokens, new.tokens),
            row("tokens a second", old.tokens_per_second, new.tokens_per_second),
            row("seconds", old.seconds, new.seconds, ",.1f"),
            row("median tokens of a document", old.median_tokens, new.median_tokens),
            row("tokens of the longest tenth, from", old.p90_tokens, new.p90_tokens),
            row("share of tokens cut", old.cut_share, new.cut_share, ".1%"),
            row("share of tokens unknown", old.unknown_share, new.unknown_share, ".1%"),
            row("mean norm", old.mean_norm, new.mean_norm, ".4f"),
            row("least norm", old.min_norm, new.min_norm, ".4f"),
            row("greatest norm", old.max_norm, new.max_norm, ".4f"),
        ]
    )


def _clusters(comparison: Comparison) -> Iterator[str]:
    if comparison.clusters is None or comparison.moved is None:
        yield f"clusters: not comparable, {comparison.not_comparable}"
        return
    found = comparison.clusters
    yield (
        f"{counted(len(found), 'cluster')} of OLD: {comparison.moved:.1%} of NEW's rows moved; the "
        "largest changes, with a document of each:"
    )
    for share in found[:_CLUSTERS]:
        yield f"  {share.old:6.1%} to {share.new:6.1%}  {_named(share.example, share.text)}"


def _changed(comparison: Comparison) -> Iterator[str]:
    if not comparison.changed:
        yield "no first ten neighbours changed"
        return
    yield "changed most:"
    for rank, query in enumerate(comparison.changed[:_CHANGED], 1):
        name = query.text or "" if query.id is None else _named(query.id, query.text)
        yield f"{rank:3d}. overlap {query.overlap_at_10:.1f}  {excerpt(name, _EXCERPT)}"
        for side, neighbours in (("OLD", query.lost), ("NEW", query.gained)):
            for one in neighbours:
                yield f"     only {side} {one.rank:2d}  {_named(one.id, one.text)}"


def _named(id: str | int, text: str | None) -> str:
    return str(id) if text is None else f"{id}  {excerpt(text, _EXCERPT)}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, all others to the right.

    >>> _table([("", "OLD"), ("rows", "7")])
    ['      OLD', 'rows    7']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
