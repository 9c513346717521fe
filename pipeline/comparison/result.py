"""Defines Comparison, what `compare` finds out; docs/compare.md says what each figure means."""

from dataclasses import asdict, dataclass
from typing import Any

from bert_embed.search.rankings import Estimate


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
        tokens_per_second: Of the run; None if earlier attempts had computed everything.
        seconds: That the run took.
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
        from bert_embed.pipeline.comparison.command import lines_of

        return "\n".join(lines_of(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same, below the cell of a notebook."""
        printer.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `compare --json` prints them."""
        return asdict(self)
