"""Runs `compare`: searches two outputs with the same queries and says how their rankings differ."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from bert_embed.base.arrays import unit
from bert_embed.base.errors import InputError, SettingError, counted, required
from bert_embed.models.heads.head import Kind
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.models.heads.vectors import joined
from bert_embed.pipeline.console import answer, answer_json
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.commands import COMPARED, CompareOptions
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.pipeline.searched import (
    SearchedOutput,
    opened,
    queries_file,
    query_vectors,
    searchable,
    tell_of_cut,
)
from bert_embed.results.names import kinds_of, output_dtype
from bert_embed.results.outputs import (
    NewestRows,
    Output,
    id_hashes,
    open_outputs,
    output_folders,
    vector_settings,
)
from bert_embed.results.read import read_rows
from bert_embed.search.nearest import nearest
from bert_embed.search.rankings import (
    DEPTH,
    FIRST,
    Estimate,
    estimates,
    ndcg,
    overlap,
    rank_correlation,
    recall,
)
from bert_embed.storage.files import absolute

_MORE = 4  # times as many rows are searched where these are of too few documents
_AT_ONCE = 1000  # queries: a pass over all vectors each, so that few hits are in memory


@dataclass(frozen=True)
class ComparedSide:
    """One of the two outputs, or several that continue each other.

    Attributes:
        outputs: Their folders.
        model: Name of the model.
        vectors: Kind of the vectors that were compared: "dense", "sparse" or "multi".
        output_dtype: Number type that they are stored as.
        documents: Different ids.
        missing: Documents of the other side that this one lacks.
    """

    outputs: tuple[str, ...]
    model: str
    vectors: str
    output_dtype: str
    documents: int
    missing: int


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
        outside: Relevant documents that are not in the pool, of all queries; they do not count.
        ndcg_at_10: Normalized discounted cumulative gain of the first ten, with gains of 0 and 1.
        recall_at_100: Share of the relevant ones among the first hundred.
    """

    queries: int
    outside: int
    ndcg_at_10: Measure
    recall_at_100: Measure


@dataclass(frozen=True)
class Comparison:
    """What `bert_embed.compare` finds out.

    Attributes:
        old: The first output.
        new: The second.
        pool: Documents that both have, among which both search.
        queries: That were searched for on both sides.
        unusable_queries: Drawn documents without a usable vector on a side, which were left out.
        overlap_at_1: Mean share of the first neighbours that both sides have.
        overlap_at_10: Likewise of the first ten.
        overlap_at_100: Likewise of the first hundred.
        rank_correlation: Mean of Spearman's rho of the first hundred.
        relevance: Only where queries name relevant documents.
    """

    old: ComparedSide
    new: ComparedSide
    pool: int
    queries: int
    unusable_queries: int
    overlap_at_1: Estimate
    overlap_at_10: Estimate
    overlap_at_100: Estimate
    rank_correlation: Estimate
    relevance: Relevance | None

    def __str__(self) -> str:
        """The tables that `compare` prints."""
        return "\n".join(_lines(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same, below the cell of a notebook."""
        printer.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `compare --json` prints them."""
        return asdict(self)


def run_compare(options: CompareOptions) -> int:
    """Prints how two outputs differ."""
    comparison = compared(options)
    if options.json:
        answer_json(json.dumps(comparison.to_dict(), ensure_ascii=False))
    else:
        answer(*_lines(comparison))
    return ExitCode.DONE


@dataclass(frozen=True)
class _Queries:
    """What is searched for: texts of a file, or documents of both outputs, by their `ids`."""

    ids: list[str | None]
    relevant: list[frozenset[str]]  # ids
    vectors: list[Any]  # of each side


def compared(options: CompareOptions) -> Comparison:
    """Compares two outputs; InputError, before any work, if they cannot be compared."""
    sides = old, new = _open_side(options.old, options.by), _open_side(options.new, options.by)
    if old.folders == new.folders:
        raise InputError(f"OLD {old.name} and NEW {new.name} are the same output: give two")
    judged = set[str]()
    if options.queries is not None:
        texts, relevant = read_queries(options.queries)
        given = (options.old_model, "old_model"), (options.new_model, "new_model")
        models = [_with_model(side, *model) for side, model in zip(sides, given, strict=True)]
        pool, drawn = _pool(old, new, least=1), len(texts)
        named = sorted(set().union(*relevant))
        judged = {*itertools.compress(named, _is_in(id_hashes(named), pool))}
        if named and not judged:
            raise SettingError(
                "queries",
                f"{options.queries} names {counted(len(named), 'relevant document')}, none of "
                "which both outputs have",
            )
        vectors = []
        for side, model in zip(sides, models, strict=True):
            if side.kind.vectors != "multi":  # whose queries have a length of their own
                tell_of_cut(model, texts, None)
            prompt = model.query_prompt(None)
            vectors.append(query_vectors(model, texts, prompt, side.kind.vectors))
        queries = _Queries([None] * drawn, relevant, vectors)
    else:
        pool = _pool(old, new, least=2)
        drawn = min(options.drawn, len(pool))
        wanted = np.random.default_rng(options.seed).choice(pool, drawn, replace=False)
        queries = _own_queries(sides, np.sort(wanted))
    rankings = (
        side.rankings(vectors, queries.ids, pool)
        for side, vectors in zip(sides, queries.vectors, strict=True)
    )
    pairs = list(zip(*rankings, strict=True))
    values = [
        [*(overlap(one, other, first) for first in FIRST), rank_correlation(one, other)]
        for one, other in pairs
    ]
    at_1, at_10, at_100, correlation = estimates(np.array(values), options.seed)
    return Comparison(
        old=old.described(len(new.documents) - len(pool)),
        new=new.described(len(old.documents) - len(pool)),
        pool=len(pool),
        queries=len(pairs),
        unusable_queries=drawn - len(pairs),
        overlap_at_1=at_1,
        overlap_at_10=at_10,
        overlap_at_100=at_100,
        rank_correlation=correlation,
        relevance=_relevance(queries.relevant, pairs, judged, options.seed),
    )


@dataclass(frozen=True)
class _Side:
    """The outputs of one side, of which of each document the newest version counts."""

    name: str  # as it was given
    outputs: list[Output]
    kind: Kind  # of the vectors that are compared

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(output.folder for output in self.outputs)

    @cached_property
    def newest(self) -> NewestRows:
        return NewestRows(self.outputs, self.kind.name)

    @cached_property
    def documents(self) -> np.ndarray:
        """uint64, in order: the hashes of the ids, each once."""
        return np.unique(self.newest.hashes())

    @property
    def settings(self) -> dict[str, Any]:
        return self.outputs[0].settings

    def described(self, missing: int) -> ComparedSide:
        """What a comparison says of the side."""
        model = required(self.outputs[0].record, "record of the run").model.name
        dtype = output_dtype(self.settings) if self.kind.has_dtype else "float32"
        count = len(self.documents)
        return ComparedSide(self.folders, model, self.kind.vectors, dtype, count, missing)

    def first_rows(self, wanted: np.ndarray) -> tuple[list[str], Any]:
        """The ids and vectors of some documents, each by its first row.

        `wanted` are hashes of ids, uint64 in order, as the result is.
        """
        ids: list[str] = []
        vectors = []
        for batch in read_rows(self.folders, self.kind.name)[1]:
            of_batch = batch.columns["id"].to_pylist()
            chosen = np.flatnonzero(_is_in(id_hashes(of_batch), wanted))
            ids += [str(of_batch[row]) for row in chosen.tolist()]
            vectors.append(batch.take(chosen).vectors)
        _, first = np.unique(id_hashes(ids), return_index=True)
        return [ids[row] for row in first.tolist()], joined(vectors)[first]

    def usable(self, vectors: Any) -> np.ndarray:
        """bool `[rows]`: which vectors can be queries: finite, and not zero or empty."""
        dense = isinstance(vectors, np.ndarray)
        filled = vectors.any(axis=1) if dense else np.diff(vectors.splits) > 0
        finite = required(self.kind.similarity, "similarity")(vectors).finite(vectors)
        return filled & np.isin(np.arange(len(vectors)), finite)

    def rankings(
        self, queries: Any, own: Sequence[str | None], pool: np.ndarray
    ) -> Iterator[list[str]]:
        """The ids of at most `DEPTH` documents of a pool nearest to each query, by their best rows.

        `pool` are hashes of ids, uint64 in order; a query is no neighbour of its `own` id.
        """
        for at in range(0, len(own), _AT_ONCE):
            few = self._neighbours(queries[at : at + _AT_ONCE], min(DEPTH + 1, len(pool)), pool)
            for query, ids in zip(own[at : at + _AT_ONCE], few, strict=True):
                yield [one for one in ids if one != query][:DEPTH]

    def _neighbours(self, queries: Any, k: int, pool: np.ndarray) -> list[list[str]]:
        numbers, most = range(len(self.outputs)), k
        is_whole = len(self.documents) == len(pool) and all(map(self.newest.has_all, numbers))
        while True:
            of_outputs = [
                nearest(
                    *(output.folder, output.settings, queries, most, self.kind.name),
                    among=None if is_whole else partial(self._are_in, number, pool),
                )
                for number, output in enumerate(self.outputs)
            ]
            hits_of = [
                sorted(itertools.chain(*hits), key=lambda hit: -hit.score)[:most]
                for hits in zip(*of_outputs, strict=True)
            ]
            rankings = [[*dict.fromkeys(str(hit.id) for hit in hits)] for hits in hits_of]
            pairs = zip(rankings, hits_of, strict=True)
            if all(len(ids) >= k or len(hits) < most for ids, hits in pairs):
                return [ids[:k] for ids in rankings]
            most *= _MORE

    def _are_in(self, number: int, pool: np.ndarray, ids: Sequence[str | int]) -> np.ndarray:
        return _is_in(id_hashes(ids), pool) & self.newest.are_newest(number, ids)


def _open_side(name: str, by: str | None) -> _Side:
    """Opens a side by the name that was given; InputError if it cannot be compared.

    `by` is a kind of vectors, None for the first that can be searched.
    """
    folders = [absolute(folder) for folder in output_folders(name)]
    records = [record_of_run(folder) for folder in folders]
    settings = vector_settings(folders[0], records[0])
    held, kinds = searchable(settings), " and ".join(kinds_of(settings))
    if not held:
        raise InputError(
            f"{name} holds vectors of {kinds}, which have no similarity: compare outputs of "
            f"{', '.join(COMPARED)} vectors"
        )
    if by not in (None, *held):
        raise SettingError("by", f"{by} asks for vectors that {name} lacks, it holds {kinds}")
    kind = ROW_KINDS[by or held[0]]
    return _Side(name, open_outputs(folders, kind.name), kind)


def _pool(old: _Side, new: _Side, least: int) -> np.ndarray:
    """uint64, in order: the hashes of the ids that both sides have."""
    for side in (old, new):
        if not len(side.documents):
            raise InputError(
                f"{side.name} holds no {side.kind.vectors} vectors: there is nothing to compare"
            )
    pool = np.intersect1d(old.documents, new.documents, assume_unique=True)
    if len(pool) < least:
        raise InputError(
            f"{old.name} and {new.name} have {'only one' if len(pool) else 'no'} id in common (of "
            f"{counted(len(old.documents), 'document')} and {len(new.documents):,}): embed both "
            "from the same input, with the same --id_column"
        )
    return pool


def read_queries(path: str) -> tuple[list[str], list[frozenset[str]]]:
    """The texts of a file of JSON lines, and the ids that each names as relevant."""
    texts, relevant = [], []
    for number, line in enumerate(queries_file(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            text, ids = values["text"], values.get("relevant") or []
            if not (isinstance(ids, list) and {*map(type, ids)} <= {str, int} and text.strip()):
                raise ValueError
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise SettingError(
                "queries",
                f'{path}, line {number}: must be {{"text": …}}, which is not blank, perhaps with a '
                'list of ids as "relevant"',
            ) from error
        texts.append(text)
        relevant.append(frozenset(map(str, ids)))
    if not texts:
        raise SettingError("queries", f"{path} must hold a JSON object a line, but it is empty")
    return texts, relevant


def _with_model(side: _Side, model: str | None, setting: str) -> SearchedOutput:
    """The first output of a side with its model; SettingError names the setting of this model."""
    try:
        output = opened(side.outputs[0].folder, model, side.kind.vectors)
    except InputError as error:
        problem = str(error).removeprefix("--")
        if not problem.startswith("model "):
            raise
        raise SettingError(setting, problem.removeprefix("model ")) from error
    side.settings.setdefault("similarity", output.settings["similarity"])
    return output


def _own_queries(sides: Sequence[_Side], wanted: np.ndarray) -> _Queries:
    """Drawn documents as queries, by their first rows on each side.

    Those are left out whose vector is missing, zero or not finite on a side.
    """
    rows = [side.first_rows(wanted) for side in sides]
    usable = [side.usable(vectors) for side, (_, vectors) in zip(sides, rows, strict=True)]
    chosen = np.flatnonzero(np.logical_and(*usable))
    if not len(chosen):
        raise InputError(
            f"none of {counted(len(wanted), 'document')} drawn from both outputs has a vector "
            "that can be a query: all are missing, zero or not finite"
        )
    vectors = [of_side[chosen] for _, of_side in rows]
    for number, side in enumerate(sides):
        is_dense = side.kind.vectors == "dense"
        if is_dense and side.settings.get("similarity", "cosine") == "cosine":
            vectors[number] = unit(vectors[number])
    ids: list[str | None] = [rows[0][0][row] for row in chosen.tolist()]
    return _Queries(ids, [frozenset()] * len(ids), vectors)


def _is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """bool: which of uint64 `values` are among others, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def _relevance(
    relevant: Sequence[frozenset[str]],
    pairs: Sequence[tuple[list[str], list[str]]],
    judged: set[str],
    seed: int,
) -> Relevance | None:
    """Measures of relevance; None if no query names a relevant document. `judged` are in both."""
    measured = []
    for ids, pair in zip(relevant, pairs, strict=True):
        if ids & judged:
            of_query = [[measure(one, ids & judged) for one in pair] for measure in (ndcg, recall)]
            measured.append([value for old, new in of_query for value in (old, new, new - old)])
    if not measured:
        return None
    figures = estimates(np.array(measured), seed)
    outside = sum(len(ids - judged) for ids in relevant)
    return Relevance(len(measured), outside, Measure(*figures[:3]), Measure(*figures[3:]))


def _lines(comparison: Comparison) -> Iterator[str]:
    """The figures, for people."""
    for name, side in (("OLD", comparison.old), ("NEW", comparison.new)):
        yield f"{name} {', '.join(side.outputs)}: {side.model}, {side.vectors} {side.output_dtype}"
    yield (
        f"{counted(comparison.pool, 'document')} in both; {comparison.new.missing:,} only in OLD, "
        f"{comparison.old.missing:,} only in NEW, which are not searched"
    )
    if comparison.unusable_queries:
        unusable = counted(comparison.unusable_queries, "document")
        yield f"{unusable} drawn without a vector on a side: left out"
    overlaps = (comparison.overlap_at_1, comparison.overlap_at_10, comparison.overlap_at_100)
    figures = {
        f"overlap of the first {first}": one
        for first, one in zip(FIRST, overlaps, strict=True)
        if first < comparison.pool  # else it is of all documents, which both have
    }
    figures["rank correlation of the first 100"] = comparison.rank_correlation
    if (relevance := comparison.relevance) is not None:
        measures = {"nDCG@10": relevance.ndcg_at_10, "recall@100": relevance.recall_at_100}
        for name, one in measures.items():
            sides = {"OLD": one.old, "NEW": one.new, "NEW - OLD": one.difference}
            figures |= {f"{name} of {side}": estimate for side, estimate in sides.items()}
    yield ""
    yield f"{'of ' + counted(comparison.queries, 'query', 'queries'):<35}  mean  95% interval"
    for name, estimate in figures.items():
        known = estimate.low is not None and estimate.high is not None
        interval = f"{estimate.low:.3f} to {estimate.high:.3f}" if known else "-"
        yield f"{name:<33}  {estimate.mean:>6.3f}  {interval}"
    if relevance is not None:
        yield (
            f"relevance is of {counted(relevance.queries, 'query', 'queries')}; "
            f"{counted(relevance.outside, 'relevant document')} not in both outputs: left out"
        )
