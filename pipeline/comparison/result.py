"""Defines Comparison, what `compare` finds out, and its tables (docs/compare.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bert_embed.base.errors import counted
from bert_embed.pipeline.commands.search import excerpt
from bert_embed.search.rankings import FIRST, Estimate

_EXCERPT = 100  # letters of a text
_CLUSTERS, _CHANGED = 5, 5  # that are printed
_NONE = "-"


@dataclass(frozen=True)
class ComparedSide:
    """One of the two outputs, or several that continue each other.

    Attributes:
        outputs: Their folders.
        model: Name of the model.
        fingerprint: Of the model.
        vectors: Kind of the vectors that were compared: "dense", "sparse" or "multi".
        output_dtype: Number type that they are stored as.
        shape: Of a vector; empty where rows have no fixed width.
        similarity: What they are compared by: "cosine", "dot", …, of multi-vectors "maxsim".
        documents: Different ids.
        rows: Rows of the newest versions: documents, or their windows or chunks.
        missing: Documents of the other side that this one lacks.
        bytes: Of the files of these vectors.
        bytes_per_row: Of a row of them; None without rows.
        tokens: Of all embedded documents.
        tokens_per_second: Of the last attempt; None if earlier ones had computed everything.
        seconds: That the last attempt took.
        median_tokens: Of a document; None without documents.
        p90_tokens: Nine of ten documents have at most so many, likewise.
        cut_share: Share of the tokens of all texts that was cut.
        unknown_share: Share of the tokens that the model does not know, [UNK].
        mean_norm: Mean length of the vectors, of multi-vectors those of tokens; None without any.
        min_norm: The least, likewise.
        max_norm: The greatest, likewise.
        unusable: Rows whose vector is missing, zero or not finite.
    """

    outputs: tuple[str, ...]
    model: str
    fingerprint: str
    vectors: str
    output_dtype: str
    shape: tuple[int, ...]
    similarity: str
    documents: int
    rows: int
    missing: int
    bytes: int
    bytes_per_row: float | None
    tokens: int
    tokens_per_second: float | None
    seconds: float
    median_tokens: int | None
    p90_tokens: int | None
    cut_share: float
    unknown_share: float
    mean_norm: float | None
    min_norm: float | None
    max_norm: float | None
    unusable: int


@dataclass(frozen=True)
class Measure:
    """A measure of relevance of both sides, and NEW minus OLD, query by query."""

    old: Estimate
    new: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Relevance:
    """How well both sides find the documents that queries name as relevant.

    Attributes:
        queries: With relevant documents in the pool; the measures are of these.
        without: Queries that name relevant documents, none of which is in the pool.
        outside: Relevant documents that are not in the pool, of all queries; they do not count.
        ndcg_at_10: Normalized discounted cumulative gain of the first ten, with gains of 0 and 1.
        recall_at_100: Share of the relevant ones among the first hundred.
        mrr: Mean of 1 / the rank of the first relevant one; 0 beyond the first hundred.
    """

    queries: int
    without: int
    outside: int
    ndcg_at_10: Measure
    recall_at_100: Measure
    mrr: Measure


@dataclass(frozen=True)
class Neighbour:
    """A document near a query, with its rank from 1 on the side that has it there."""

    id: str | int
    rank: int
    text: str | None


@dataclass(frozen=True)
class Changed:
    """A query whose neighbours changed.

    Attributes:
        id: Of the document that is the query; None where queries were given.
        text: Of the query; None where it is not known.
        overlap_at_10: Share of the first ten that both sides have.
        rank_correlation: Spearman's rho of the first hundred.
        lost: The first of OLD's first ten that are not among NEW's, at most three.
        gained: The first of NEW's first ten that are not among OLD's, at most three.
    """

    id: str | int | None
    text: str | None
    overlap_at_10: float
    rank_correlation: float
    lost: tuple[Neighbour, ...]
    gained: tuple[Neighbour, ...]


@dataclass(frozen=True)
class ClusterShare:
    """A cluster of OLD's vectors, and the share of each side's rows in it.

    Attributes:
        old: Share of OLD's rows.
        new: Share of NEW's rows.
        example: Id of OLD's document nearest to the centroid, among those that clusters come from.
        text: Of this document; None where it is not known.
    """

    old: float
    new: float
    example: str | int
    text: str | None


@dataclass(frozen=True)
class Comparison:
    """What `bert_embed.compare` finds out.

    Attributes:
        old: The first output.
        new: The second.
        pool: Documents that both have, among which both search.
        queries: That were searched for on both sides.
        unusable_queries: Drawn documents without a usable vector on a side, which were left out.
        seed: Of the drawing of documents and of the intervals.
        overlap_at_1: Mean share of the first neighbours that both sides have.
        overlap_at_10: Likewise of the first ten.
        overlap_at_100: Likewise of the first hundred.
        rank_correlation: Mean of Spearman's rho of the first hundred.
        relevance: Only where queries name relevant documents.
        changed: The queries with the least overlap of the first ten, least first.
        clusters: Of OLD's vectors by k-means; None where the vectors are not of one space.
        moved: Share of NEW's rows that would have to change cluster for OLD's shares.
        not_comparable: Why there are no clusters; None if there are.
    """

    old: ComparedSide
    new: ComparedSide
    pool: int
    queries: int
    unusable_queries: int
    seed: int
    overlap_at_1: Estimate
    overlap_at_10: Estimate
    overlap_at_100: Estimate
    rank_correlation: Estimate
    relevance: Relevance | None
    changed: tuple[Changed, ...]
    clusters: tuple[ClusterShare, ...] | None
    moved: float | None
    not_comparable: str | None

    def __str__(self) -> str:
        """The tables that `compare` prints."""
        return "\n".join(lines_of(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same, below the cell of a notebook."""
        printer.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `compare --json` prints them."""
        return asdict(self)


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
    relevance = comparison.relevance
    if relevance is None:
        return

    def row(name: str, measure: Measure) -> tuple[str, ...]:
        means = f"{measure.old.mean:.4f}", f"{measure.new.mean:.4f}"
        return name, *means, f"{measure.difference.mean:+.4f}", _interval(measure.difference)

    title = f"relevance, {counted(relevance.queries, 'query', 'queries')}"
    yield from _table(
        [
            (title, "OLD", "NEW", "NEW - OLD", "95% interval"),
            row("nDCG@10", relevance.ndcg_at_10),
            row("recall@100", relevance.recall_at_100),
            row("MRR", relevance.mrr),
        ]
    )
    if relevance.outside:
        yield (
            f"{counted(relevance.outside, 'relevant document')} not in both outputs: left out, and "
            f"{counted(relevance.without, 'query', 'queries')} without any other"
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
            row("tokens a second, last attempt", old.tokens_per_second, new.tokens_per_second),
            row("seconds, last attempt", old.seconds, new.seconds, ",.1f"),
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
    shares = comparison.clusters
    yield (
        f"{counted(len(shares), 'cluster')} of OLD: {comparison.moved:.1%} of NEW's rows moved; "
        "the largest changes, with a document of each:"
    )
    for share in shares[:_CLUSTERS]:
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
