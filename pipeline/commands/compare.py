"""Runs `compare`: searches two outputs with the same queries and says how their rankings differ."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from bert_embed.base.arrays import unit
from bert_embed.base.errors import InputError, SettingError, counted, required
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.models.heads.vectors import joined
from bert_embed.pipeline.commands import search
from bert_embed.pipeline.console import answer, answer_json
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.commands import SAMPLE, CompareOptions
from bert_embed.pipeline.run.output import one_output, record_of_run
from bert_embed.results.names import output_dtype
from bert_embed.results.outputs import NewestRows, Output, id_hashes, vector_settings
from bert_embed.results.read import read_rows
from bert_embed.search.nearest import nearest
from bert_embed.search.rankings import DEPTH, FIRST, Estimate, agreement, estimates, relevance
from bert_embed.storage.files import absolute

_MORE = 4  # times as many rows are searched where these are of too few documents
_AT_ONCE = 1000  # queries: a pass over all vectors each, so that few hits are in memory


@dataclass(frozen=True)
class ComparedSide:
    """One of the two outputs.

    Attributes:
        output: Its folder.
        model: Name of the model.
        vectors: Kind of the vectors that were compared: "dense", "sparse" or "multi".
        precision: Number type of the matrix products that made them.
        output_dtype: Number type that they are stored as.
        documents: Different ids.
        missing: Documents of the other side that this one lacks.
    """

    output: str
    model: str
    vectors: str
    precision: str
    output_dtype: str
    documents: int
    missing: int


@dataclass(frozen=True)
class Measure:
    """A measure of relevance of both sides, and NEW minus OLD, query by query."""

    old: Estimate
    new: Estimate
    difference: Estimate


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `bert_embed.compare` finds out.

    Attributes:
        old: The first output.
        new: The second.
        pool: Documents that both have, among which both search.
        queries: That were searched for on both sides; of documents drawn, those with vectors.
        overlap_at_1: Mean share of the first neighbours that both sides have.
        overlap_at_10: Likewise of the first ten.
        overlap_at_100: Likewise of the first hundred.
        rank_correlation: Mean of Spearman's rho of the first hundred.
        ndcg_at_10: Normalized discounted cumulative gain of the first ten, with gains of 0 and 1,
            over queries that name relevant documents in the pool; None without.
        recall_at_100: Share of the relevant documents among the first hundred, likewise.
        relevant_missing: Relevant documents that are not in the pool, of all queries.
    """

    old: ComparedSide
    new: ComparedSide
    pool: int
    queries: int
    overlap_at_1: Estimate
    overlap_at_10: Estimate
    overlap_at_100: Estimate
    rank_correlation: Estimate
    ndcg_at_10: Measure | None
    recall_at_100: Measure | None
    relevant_missing: int

    def __repr__(self) -> str:
        """The tables that `compare` prints."""
        return "\n".join(_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, as `compare --json` prints them."""
        return asdict(self)


def run_compare(options: CompareOptions) -> int:
    """Prints how two outputs differ."""
    found = compared(options)
    if options.json:
        answer_json(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        answer(*_lines(found))
    return ExitCode.DONE


def compared(options: CompareOptions) -> Comparison:
    """Compares two outputs; InputError, before any work, if they cannot be compared."""
    sides = old, new = _Side(options.old, options.by), _Side(options.new, options.by)
    if old.output.folder == new.output.folder:
        raise InputError(f"OLD {old.name} and NEW {new.name} are the same output: give two")
    texts, relevant = read_queries(options.queries)
    places = (options.old_model, "old_model"), (options.new_model, "new_model")
    models = [one.with_model(*place) for one, place in zip(sides, places, strict=True) if texts]
    pool = np.intersect1d(old.documents, new.documents, assume_unique=True)
    if len(pool) < (1 if texts else 2):
        raise InputError(
            f"{old.name} and {new.name} have {'only one' if len(pool) else 'no'} id in common (of "
            f"{counted(len(old.documents), 'document')} and {len(new.documents):,}): embed both "
            "from the same input, with the same --id_column"
        )
    named = list(set().union(*relevant))
    judged = {*compress(named, _is_in(id_hashes(named), pool))}
    own: Sequence[str | None] = [None] * len(texts)
    queries = [
        search.query_vectors(model, texts, model.query_prompt(None), side.kind.vectors)
        for side, model in zip(sides, models, strict=bool(texts))
    ]
    if not texts:
        draw, number = np.random.default_rng(options.seed), min(options.sample or SAMPLE, len(pool))
        own, *queries = _own_queries(*sides, np.sort(draw.choice(pool, number, replace=False)))
    found = [side.rankings(of, own, pool) for side, of in zip(sides, queries, strict=True)]
    pairs = list(zip(*found, strict=True))
    measures: list[Measure | None] = [None, None]
    if judged:
        of_judged = [
            [relevance(ranking, ids & judged) for ranking in pair]
            for ids, pair in zip(relevant, pairs, strict=True)
            if ids & judged
        ]
        figures = np.array(of_judged)  # [queries, sides, measures]
        figures = np.concatenate([figures, np.diff(figures, axis=1)], axis=1)
        means = estimates(figures.reshape(len(figures), -1), options.seed)
        measures = [Measure(*means[::2]), Measure(*means[1::2])]
    agreements = np.array([agreement(*pair) for pair in pairs])
    at_1, at_10, at_100, correlation = estimates(agreements, options.seed)
    return Comparison(
        old=old.described(len(new.documents) - len(pool)),
        new=new.described(len(old.documents) - len(pool)),
        pool=len(pool),
        queries=len(pairs),
        overlap_at_1=at_1,
        overlap_at_10=at_10,
        overlap_at_100=at_100,
        rank_correlation=correlation,
        ndcg_at_10=measures[0],
        recall_at_100=measures[1],
        relevant_missing=sum(len(ids - judged) for ids in relevant),
    )


class _Side:
    """One of the two outputs, its documents and the vectors that are compared."""

    def __init__(self, name: str, by: str | None) -> None:
        """`name` is as given, `by` a kind of vectors; InputError if it cannot be compared."""
        output = one_output(name, "a side is one")
        record, folder = record_of_run(output), absolute(output)
        settings = vector_settings(folder, record)
        search.check_kinds(name, settings, by)
        kind = by or search.searchable(settings)[0]
        self.name, self.kind, self.model = name, ROW_KINDS[kind], record.model.name
        self.output = Output(folder, settings, record)

    @cached_property
    def documents(self) -> np.ndarray:
        """uint64, in order: the hashes of the ids, each once."""
        return np.unique(NewestRows([self.output], self.kind.name).hashes())

    def described(self, missing: int) -> ComparedSide:
        """What a comparison says of the side."""
        settings = self.output.settings
        dtype = output_dtype(settings) if self.kind.has_dtype else "float32"
        return ComparedSide(
            output=self.output.folder,
            model=self.model,
            vectors=self.kind.vectors,
            precision=settings["precision"],
            output_dtype=dtype,
            documents=len(self.documents),
            missing=missing,
        )

    def with_model(self, model: str | None, setting: str) -> search.SearchedOutput:
        """The output with its model; SettingError names the setting that says where this is."""
        try:
            self.output = output = search.opened(self.output.folder, model, self.kind.vectors)
        except InputError as error:
            if not (said := str(error).removeprefix("--")).startswith("model "):
                raise
            raise SettingError(setting, said.removeprefix("model ")) from error
        return output

    def drawn(self, wanted: np.ndarray) -> tuple[list[str], Any, np.ndarray]:
        """Ids and first vectors of documents, and bool: which of these can be queries.

        `wanted` are hashes of ids, uint64 in order, as the result is. A query is finite, and
        neither zero nor empty.
        """
        ids: list[str] = []
        parts = []
        for batch in read_rows(self.output.folder, self.kind.name)[1]:
            of_batch = batch.columns["id"].to_pylist()
            chosen = np.flatnonzero(_is_in(id_hashes(of_batch), wanted))
            ids += [str(of_batch[row]) for row in chosen.tolist()]
            parts.append(batch.take(chosen).vectors)
        _, first = np.unique(id_hashes(ids), return_index=True)
        vectors = joined(parts)[first]
        is_dense = isinstance(vectors, np.ndarray)
        filled = vectors.any(axis=1) if is_dense else np.diff(vectors.splits) > 0
        finite = required(self.kind.similarity, "similarity")(vectors).finite(vectors)
        usable = filled & np.isin(np.arange(len(vectors)), finite)
        if is_dense and self.output.settings.get("similarity", "cosine") == "cosine":
            vectors = unit(vectors)
        return [ids[row] for row in first.tolist()], vectors, usable

    def rankings(
        self, queries: Any, own: Sequence[str | None], pool: np.ndarray
    ) -> Iterator[list[str]]:
        """The ids of at most `DEPTH` documents of a pool nearest to each query, by their best rows.

        `pool` are hashes of ids, uint64 in order; a query is no neighbour of its `own` id.
        """
        for at in range(0, len(own), _AT_ONCE):
            few = self._nearest(queries[at : at + _AT_ONCE], min(DEPTH + 1, len(pool)), pool)
            for query, ids in zip(own[at : at + _AT_ONCE], few, strict=True):
                yield [one for one in ids if one != query][:DEPTH]

    def _nearest(self, queries: Any, k: int, pool: np.ndarray) -> list[list[str]]:
        is_whole, most = len(self.documents) == len(pool), k
        among = None if is_whole else lambda ids: _is_in(id_hashes(ids), pool)
        while True:
            where = self.output.folder, self.output.settings
            hits = nearest(*where, queries, most, self.kind.name, among)
            ids = [[*dict.fromkeys(str(hit.id) for hit in few)] for few in hits]
            pairs = zip(ids, hits, strict=True)
            if all(len(some) >= k or len(few) < most for some, few in pairs):
                return [some[:k] for some in ids]
            most *= _MORE


def _is_in(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """bool: which of uint64 `values` are among others, which are in order, at least one."""
    return ordered[np.searchsorted(ordered, values) % len(ordered)] == values


def _own_queries(old: _Side, new: _Side, wanted: np.ndarray) -> tuple[list[str], Any, Any]:
    """Drawn documents as queries: their ids, and the vectors of each side."""
    (ids, one, usable), (_, other, of_other) = old.drawn(wanted), new.drawn(wanted)
    chosen = np.flatnonzero(usable & of_other)
    if not len(chosen):
        raise InputError(
            f"none of {counted(len(wanted), 'document')} drawn from both outputs has a vector "
            "that can be a query: all are missing, zero or not finite"
        )
    return [ids[row] for row in chosen.tolist()], one[chosen], other[chosen]


def read_queries(path: str | None) -> tuple[list[str], list[frozenset[str]]]:
    """The texts of a file of JSON lines, and the ids that each names as relevant; none of none."""
    texts, relevant = [], []
    lines = "" if path is None else search.queries_file(path)
    for number, line in enumerate(lines.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            text, ids = values["text"], values.get("relevant") or []
            if not (isinstance(ids, list) and {*map(type, ids)} <= {str, int} and text.strip()):
                raise ValueError
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            said = 'must be {"text": …}, which is not blank, perhaps with a list of ids as'
            raise SettingError("queries", f'{path}, line {number}: {said} "relevant"') from error
        texts.append(text)
        relevant.append(frozenset(map(str, ids)))
    if path is not None and not texts:
        raise SettingError("queries", f"{path} must hold a JSON object a line, but it is empty")
    return texts, relevant


def _lines(found: Comparison) -> Iterator[str]:
    """The figures, for people."""
    for name, side in (("OLD", found.old), ("NEW", found.new)):
        types = f"{side.vectors} {side.output_dtype}, computed in {side.precision}"
        yield f"{name} {side.output}: {side.model}, {types}"
    yield (
        f"{counted(found.pool, 'document')} in both; {found.new.missing:,} only in OLD, "
        f"{found.old.missing:,} only in NEW, which are not searched"
    )
    figures = {
        f"overlap of the first {first}": getattr(found, f"overlap_at_{first}")
        for first in FIRST
        if first < found.pool  # else it is of all documents, which both have
    }
    figures["rank correlation of the first 100"] = found.rank_correlation
    for name, one in (("nDCG@10", found.ndcg_at_10), ("recall@100", found.recall_at_100)):
        if one is not None:
            sides = {"OLD": one.old, "NEW": one.new, "NEW - OLD": one.difference}
            figures |= {f"{name} of {side}": estimate for side, estimate in sides.items()}
    yield ""
    yield f"{'of ' + counted(found.queries, 'query', 'queries'):<35}  mean  95% interval"
    for name, one in figures.items():
        interval = "-" if one.low is None else f"{one.low:.3f} to {one.high:.3f}"
        yield f"{name:<33}  {one.mean:>6.3f}  {interval}"
    if found.ndcg_at_10 is not None:
        yield f"relevance is of {counted(found.ndcg_at_10.old.queries, 'query', 'queries')}"
    if found.relevant_missing:
        yield f"{counted(found.relevant_missing, 'relevant document')} not in both: left out"
