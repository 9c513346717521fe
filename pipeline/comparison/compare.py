"""Runs `compare`: draws or reads queries, searches both sides in one pool, says what differs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bert_embed.base.arrays import FINE, conditions, unit
from bert_embed.base.errors import InputError, SettingError, counted, required
from bert_embed.bundle.fingerprints import difference
from bert_embed.pipeline.commands.search import excerpt
from bert_embed.pipeline.comparison.result import (
    Changed,
    ClusterShare,
    ComparedSide,
    Comparison,
    Measure,
    Neighbour,
    Relevance,
    lines_of,
)
from bert_embed.pipeline.comparison.sides import Side, Survey, Vector, is_in, open_side
from bert_embed.pipeline.console import answer, answer_json, warn
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.commands import CompareOptions
from bert_embed.pipeline.report.sample import Run
from bert_embed.pipeline.run.output import lies_in, record_of_run
from bert_embed.pipeline.searched import opened, queries_file, query_vectors, tell_of_cut
from bert_embed.pipeline.texts import sample_texts
from bert_embed.results.outputs import Output, id_hashes, output_folders
from bert_embed.search.clusters import Assigner, default_clusters, train
from bert_embed.search.nearest import Hit
from bert_embed.search.rankings import (
    DEPTH,
    FIRST,
    estimates,
    ndcg,
    overlap,
    rank_correlation,
    recall,
    reciprocal_rank,
)
from bert_embed.storage.files import absolute
from bert_embed.transforms.output_folder import OutputFolder

_CHANGED, _SHOWN = 10, 3  # queries that are shown, and neighbours of each on a side
_MOST_CLUSTERS = 32
_SAMPLE_ROWS = 8192  # from which centroids are computed
_SAMPLE_BYTES = 64 << 20
# Settings in which vectors of one space may differ: number types, and how texts are cut.
_SAME_SPACE = (
    *("output_dtype", "precision", "int8_word_scales", "id_type", "granularity", "token_shape"),
    *("max_seq_length", "long_text", "stride", "merge_windows", "word_pooling"),
    *("chunk", "chunk_tokens", "chunk_overlap", "chunk_pooling", "chunk_context"),
    *("vectors", "heads", "top_k"),
    *("min_weight", "pool_factor", "format"),
)
_AT_ONCE = 1000  # queries: a pass over all vectors each, so that few hits are in memory
_TEN = FIRST[1]
_LETTERS = 200  # of a text in a report


def run_compare(options: CompareOptions) -> int:
    """Prints how two outputs differ."""
    comparison = compare_and_report(options)
    if options.json:
        answer_json(json.dumps(comparison.to_dict(), ensure_ascii=False))
    else:
        answer(*lines_of(comparison))
    return ExitCode.DONE


def compare_and_report(options: CompareOptions) -> Comparison:
    """Compares two outputs, and writes the report of the new one where options name a file."""
    if options.output is None:
        return compared(options)
    # These import Beam.
    from bert_embed.pipeline.commands.outputs import check_place
    from bert_embed.pipeline.report.page import changed_texts, write_page

    folders = [absolute(folder) for folder in output_folders(options.new)]
    for folder in [*folders, *map(absolute, output_folders(options.old))]:
        check_place(options.output, folder)
    comparison = compared(options)
    runs = [Run(OutputFolder(folder), record_of_run(folder)) for folder in folders]
    texts_of = partial(sample_texts, runs, tell=warn)
    figures = changed_texts(comparison.to_dict(), _excerpt)
    place = write_page(runs, absolute(options.output), None, texts_of, figures)
    warn(f"wrote {place}")
    return comparison


def _excerpt(row: dict[str, Any]) -> str | None:
    return None if row["text"] is None else excerpt(row["text"], _LETTERS)


@dataclass(frozen=True)
class _Query:
    """A query: a document of the pool, or a text."""

    text: str | None
    document: Hit | None = None
    relevant: frozenset[str] = frozenset()  # ids of the pool
    outside: int = 0  # relevant documents that the pool lacks


@dataclass(frozen=True)
class _Rankings:
    """The neighbours of each query on a side."""

    ids: list[list[str]]  # at most `DEPTH` of each
    first: list[list[Hit]]  # the first ten


@dataclass(frozen=True)
class _Sample:
    """Vectors of OLD from which centroids are computed, and where they are."""

    vectors: np.ndarray  # float32 `[rows, width]`, of unit length
    hits: list[Hit]


def compared(options: CompareOptions) -> Comparison:
    """Compares two outputs; InputError, before any work, if they cannot be compared."""
    named = {"OLD": options.old, "NEW": options.new}
    old, new = (open_side(name, options.by) for name in named.values())
    _check_apart(old, new, options)
    queries = None if options.queries is None else read_queries(options.queries)
    models = []
    if queries is not None:
        models = [
            _with_model(old, options.old_model, "old_model"),
            _with_model(new, options.new_model, "new_model"),
        ]
    pool = _pool(old, new, options, least=1 if queries else 2)
    vectors: list[Any] | None = None
    if queries is not None:
        queries = _within(queries, pool)
        texts = [required(query.text, "text of a query") for query in queries]
        for side, model in zip((old, new), models, strict=True):
            if side.kind.vectors != "multi":
                tell_of_cut(model, texts, None)
        vectors = [
            query_vectors(model, texts, model.query_prompt(None), side.kind.name)
            for side, model in zip((old, new), models, strict=True)
        ]
    return _compared(old, new, pool, queries, vectors, options)


def _check_apart(old: Side, new: Side, options: CompareOptions) -> None:
    """Refuses one and the same output; several days may begin with the same one."""

    def among(outputs: Sequence[Output], others: Sequence[Output]) -> bool:
        return all(
            any(
                lies_in(one.folder, other.folder) and lies_in(other.folder, one.folder)
                for other in others
            )
            for one in outputs
        )

    if among(old.outputs, new.outputs) and among(new.outputs, old.outputs):
        raise InputError(f"OLD {options.old} and NEW {options.new} are the same output: give two")


def _pool(old: Side, new: Side, options: CompareOptions, least: int) -> np.ndarray:
    """uint64, in order: the hashes of the ids that both sides have."""
    for name, side in ((options.old, old), (options.new, new)):
        if not len(side.hashes):
            raise InputError(
                f"{name} holds no {side.kind.vectors} vectors: there is nothing to compare"
            )
    pool = np.intersect1d(old.documents, new.documents, assume_unique=True)
    if len(pool) < least:
        common = "no id" if not len(pool) else "only one id"
        raise InputError(
            f"{options.old} and {options.new} have {common} in common (of "
            f"{counted(len(old.documents), 'document')} and {len(new.documents):,}): embed both "
            "from the same input, with the same --id_column"
        )
    return pool


def read_queries(path: str) -> list[_Query]:
    """The queries of a file of JSON lines, each with `text` and perhaps `relevant` ids."""
    queries = []
    for number, line in enumerate(queries_file(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            queries.append(_query(line, f"{path}, line {number}:"))
    if not queries:
        raise SettingError("queries", f"{path} must hold a JSON object a line, but it is empty")
    return queries


def _query(line: bytes, place: str) -> _Query:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SettingError("queries", f'{place} is not JSON: give {{"text": …}}') from error
    text = values.get("text") if isinstance(values, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise SettingError("queries", f"{place} has no text, a string that is not blank")
    relevant = values.get("relevant") or []
    is_ids = isinstance(relevant, list) and all(type(one) in (str, int) for one in relevant)
    if not is_ids:
        raise SettingError("queries", f"{place} relevant must be a list of ids")
    return _Query(text, relevant=frozenset(map(str, relevant)))


def _with_model(side: Side, model: str | None, setting: str) -> Any:
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


def _compared(
    old: Side,
    new: Side,
    pool: np.ndarray,
    queries: list[_Query] | None,
    vectors: list[Any] | None,
    options: CompareOptions,
) -> Comparison:
    draw = np.random.default_rng(options.seed)
    space = _space(old, new)
    wanted = np.empty(0, np.uint64)
    if queries is None:
        wanted = np.sort(draw.choice(pool, min(options.drawn, len(pool)), replace=False))
    training = wanted[:0] if space is not None else _training(old, draw)
    rows = [side.rows_of(at) for side, at in ((old, np.union1d(wanted, training)), (new, wanted))]
    unusable = 0
    if queries is None:
        queries, vectors, unusable = _own_queries((old, new), rows, wanted.tolist())
        if not queries:
            raise InputError(
                f"none of {counted(len(wanted), 'document')} drawn from both outputs has a vector "
                "that can be a query: all are missing, zero or not finite"
            )
    rankings = [
        _rankings(side, of_queries, queries, pool)
        for side, of_queries in zip((old, new), required(vectors, "queries"), strict=True)
    ]
    pairs = list(zip(rankings[0].ids, rankings[1].ids, strict=True))
    values = np.array(
        [[*(overlap(*pair, first) for first in FIRST), rank_correlation(*pair)] for pair in pairs]
    )
    at_1, at_10, at_100, correlation = estimates(values, options.seed)
    sample = _sampled(rows[0], training)
    clusters, moved, surveys = _drift(old, new, sample, options.seed)
    figures = [
        _figures(side, survey, missing)
        for side, survey, missing in (
            (old, surveys[0], len(new.documents) - len(pool)),
            (new, surveys[1], len(old.documents) - len(pool)),
        )
    ]
    return Comparison(
        old=figures[0],
        new=figures[1],
        pool=len(pool),
        queries=len(queries),
        unusable_queries=unusable,
        seed=options.seed,
        overlap_at_1=at_1,
        overlap_at_10=at_10,
        overlap_at_100=at_100,
        rank_correlation=correlation,
        relevance=_relevance(queries, pairs, options.seed),
        changed=_changed((old, new), queries, [ranking.first for ranking in rankings], values),
        clusters=clusters,
        moved=moved,
        not_comparable=space or (None if clusters else "OLD has no vector with a direction"),
    )


def _rankings(side: Side, vectors: Any, queries: Sequence[_Query], pool: np.ndarray) -> _Rankings:
    """The neighbours of each query on a side; a document is none of its own."""
    rankings = _Rankings([], [])
    with_itself = queries[0].document is not None
    for at in range(0, len(queries), _AT_ONCE):
        hits = side.neighbours(vectors[at : at + _AT_ONCE], DEPTH + with_itself, pool)
        for query, few in zip(queries[at : at + _AT_ONCE], hits, strict=True):
            itself = query.document and str(query.document.id)
            others = [hit for hit in few if str(hit.id) != itself][:DEPTH]
            rankings.ids.append([str(hit.id) for hit in others])
            rankings.first.append(others[:_TEN])
    return rankings


def _own_queries(
    sides: tuple[Side, Side], rows: list[dict[int, tuple[Hit, Vector]]], wanted: list[int]
) -> tuple[list[_Query], list[Any], int]:
    """Drawn documents as queries, each by its own first row; and how many have no vector."""
    usable = [
        document
        for document in wanted
        if all(
            document in of_side and side.is_usable(of_side[document][1])
            for side, of_side in zip(sides, rows, strict=True)
        )
    ]
    if not usable:
        return [], [], len(wanted)
    queries = [_Query(None, rows[1][document][0]) for document in usable]
    vectors = [
        side.queries([of_side[document][1] for document in usable])
        for side, of_side in zip(sides, rows, strict=True)
    ]
    return queries, vectors, len(wanted) - len(usable)


def _within(queries: list[_Query], pool: np.ndarray) -> list[_Query]:
    """Queries of which only those relevant documents count that the pool has."""
    named = sorted(set().union(*(query.relevant for query in queries)))
    in_pool = {one for one, has in zip(named, is_in(id_hashes(named), pool), strict=True) if has}
    if named and not in_pool:
        raise SettingError(
            "queries",
            f"names {counted(len(named), 'relevant document')}, none of which both outputs have",
        )
    return [
        replace(query, relevant=relevant, outside=len(query.relevant - relevant))
        for query in queries
        for relevant in (query.relevant & in_pool,)
    ]


def _relevance(
    queries: Sequence[_Query], pairs: Sequence[tuple[list[str], list[str]]], seed: int
) -> Relevance | None:
    """Measures of relevance; None if no query names a relevant document."""
    judged = [
        (pair, query.relevant) for pair, query in zip(pairs, queries, strict=True) if query.relevant
    ]
    if not judged:
        return None
    values = np.array(
        [
            [
                measure(ranking, relevant)
                for measure in (ndcg, recall, reciprocal_rank)
                for ranking in pair
            ]
            for pair, relevant in judged
        ]
    )
    values = np.hstack([values, values[:, 1::2] - values[:, ::2]])
    bounds = estimates(values, seed)
    measures = [Measure(bounds[2 * at], bounds[2 * at + 1], bounds[6 + at]) for at in range(3)]
    without = sum(1 for query in queries if query.outside and not query.relevant)
    return Relevance(len(judged), without, sum(query.outside for query in queries), *measures)


def _changed(
    sides: tuple[Side, Side],
    queries: Sequence[_Query],
    rankings: list[list[list[Hit]]],
    values: np.ndarray,
) -> tuple[Changed, ...]:
    """The queries whose first ten changed most; of equal ones those of the least correlation."""
    overlaps, correlations = values[:, 1], values[:, -1]
    order = [at for at in np.lexsort((correlations, overlaps)).tolist() if overlaps[at] < 1]
    order = order[:_CHANGED]
    # Of each query the first neighbours on a side that are not among the first of the other
    gone: list[list[list[tuple[int, Hit]]]] = []
    for one, other in ((0, 1), (1, 0)):
        gone.append([])
        for at in order:
            others = {str(hit.id) for hit in rankings[other][at]}
            ranked = enumerate(rankings[one][at], 1)
            new = [(rank, hit) for rank, hit in ranked if str(hit.id) not in others]
            gone[one].append(new[:_SHOWN])
    documents = [queries[at].document for at in order]
    texts = []
    for number, side in enumerate(sides):
        hits = [hit for few in gone[number] for _, hit in few]
        if number:  # queries are rows of NEW
            hits += [hit for hit in documents if hit is not None]
        shown, problem = side.texts(hits)
        if problem is not None:
            warn(f"note: no texts of {side.outputs[0].folder} are shown: {problem}")
        texts.append(shown)

    def neighbours(number: int, place: int) -> tuple[Neighbour, ...]:
        return tuple(
            Neighbour(hit.id, rank, texts[number].get(_place(hit)))
            for rank, hit in gone[number][place]
        )

    return tuple(
        Changed(
            None if document is None else document.id,
            queries[at].text if document is None else texts[1].get(_place(document)),
            float(overlaps[at]),
            float(correlations[at]),
            neighbours(0, place),
            neighbours(1, place),
        )
        for place, (at, document) in enumerate(zip(order, documents, strict=True))
    )


def _place(hit: Hit) -> tuple[str, str, int]:
    return hit.folder, hit.file, hit.row


def _space(old: Side, new: Side) -> str | None:
    """Why clusters of OLD say nothing of NEW's vectors; None if both are of one space."""
    if {old.kind.vectors, new.kind.vectors} != {"dense"}:
        return "clusters are of dense vectors"
    if old.settings["model"] != new.settings["model"]:
        return "the vectors are of different models"
    differs = difference(new.settings, old.settings, _SAME_SPACE)
    return differs and differs.replace(" there", " in NEW").replace(" here", " in OLD")


def _training(old: Side, draw: "np.random.Generator") -> np.ndarray:
    """uint64, in order: documents of OLD from which centroids are computed."""
    width = int(np.prod(old.settings["shape"]))
    most = max(1, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (4 * width), len(old.documents)))
    return np.sort(draw.choice(old.documents, most, replace=False))


def _sampled(rows: Mapping[int, tuple[Hit, Vector]], documents: np.ndarray) -> _Sample | None:
    """The usable rows of some documents; None if there are none."""
    sampled = [rows[document] for document in documents.tolist() if document in rows]
    if not sampled:
        return None
    vectors = np.stack([np.asarray(vector) for _, vector in sampled])
    fine = np.flatnonzero(conditions(vectors) == FINE)
    return _Sample(unit(vectors[fine]), [sampled[at][0] for at in fine.tolist()])


def _drift(
    old: Side, new: Side, sample: _Sample | None, seed: int
) -> tuple[tuple[ClusterShare, ...] | None, float | None, tuple[Survey, Survey]]:
    """Surveys of both sides; with the sample's clusters, and how much their shares moved."""
    assigner = None
    if sample is not None and len(sample.hits):
        clusters = min(_MOST_CLUSTERS, default_clusters(len(sample.hits)))
        centroids = train(sample.vectors, clusters, seed)
        assigner = Assigner(centroids)
    surveys = old.survey(assigner), new.survey(assigner)
    if assigner is None or sample is None:
        return None, None, surveys
    shares = [survey.clusters / max(int(survey.clusters.sum()), 1) for survey in surveys]
    nearest = (sample.vectors @ centroids.T).argmax(axis=0)
    hits = [sample.hits[at] for at in nearest.tolist()]
    texts, _ = old.texts(hits)
    moves = [
        ClusterShare(one, other, hit.id, texts.get(_place(hit)))
        for one, other, hit in zip(*(share.tolist() for share in shares), hits, strict=True)
    ]
    moves.sort(key=lambda share: -abs(share.new - share.old))
    return tuple(moves), float(np.abs(shares[1] - shares[0]).sum()) / 2, surveys


def _figures(side: Side, survey: Survey, missing: int) -> ComparedSide:
    record = side.record
    numbers, settings = record.numbers, side.settings
    size = sum(
        numbers.written[place].bytes for place in side.kind.places if place in numbers.written
    )
    dense = side.kind.vectors == "dense"
    return ComparedSide(
        outputs=tuple(output.folder for output in side.outputs),
        model=record.model.name,
        fingerprint=settings["model"],
        vectors=side.kind.vectors,
        output_dtype=settings["output_dtype"] if side.kind.has_dtype else "float32",
        shape=tuple(settings["shape"]) if dense else (),
        similarity=side.similarity,
        documents=len(side.documents),
        rows=len(side.hashes),
        missing=missing,
        bytes=size,
        bytes_per_row=size / side.written if side.written else None,
        tokens=numbers.tokens,
        tokens_per_second=numbers.tokens_per_second,
        seconds=numbers.elapsed_seconds,
        median_tokens=numbers.lengths.p50,
        p90_tokens=numbers.lengths.p90,
        cut_share=numbers.cut_share,
        unknown_share=numbers.unknown.share,
        mean_norm=survey.total / survey.norms if survey.norms else None,
        min_norm=survey.least if survey.norms else None,
        max_norm=survey.greatest if survey.norms else None,
        unusable=survey.unusable,
    )
