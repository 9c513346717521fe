"""Finds the documents of outputs that are nearest to queries."""

import itertools
import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bert_embed.base.errors import InputError, SettingError, counted, counted_of
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder, relevance_label
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.console import answer, answer_json, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import (
    CANDIDATES,
    RECALL_SAMPLE,
    SEARCHED,
    SearchOptions,
)
from bert_embed.pipeline.searched import (
    SearchedOutput,
    check_comparable,
    opened,
    queries_file,
    queries_of,
    tell_of_cut,
)
from bert_embed.pipeline.texts import with_texts
from bert_embed.results.names import (
    RUN_FILE,
    output_dtype,
    parse_name,
)
from bert_embed.results.outputs import NewestRows, output_folders, read_run
from bert_embed.results.run_record import run_folders
from bert_embed.search.nearest import (
    Hit,
    Place,
    Recall,
    add_vectors,
    nearest,
    place_of,
    rescored,
    spread_rows,
    vectors_at,
)

FUSED = 1000  # hits of each kind that count
_CONSTANT = 60  # of the paper by Cormack, Clarke and Büttcher; what other programs use, too


def fused(rankings: Iterable[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion: a hit's score is the sum of 1 / (60 + rank) over its rankings.

    Ranks begin with 1. Of equal scores, the hit of the earlier ranking comes first.
    """
    scores: dict[tuple[object, ...], float] = {}
    hits: dict[tuple[object, ...], Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            row = _row(hit)
            hits.setdefault(row, hit)
            scores[row] = scores.get(row, 0.0) + 1 / (_CONSTANT + rank)
    order = sorted(scores, key=lambda row: -scores[row])
    return [replace(hits[row], score=scores[row]) for row in order]


def _row(hit: Hit) -> tuple[object, ...]:
    """What a hit shares with the same row's hits by other kinds: parts have the same rows."""
    name = parse_name(hit.file)
    part = hit.file if name is None else (name.block, name.part)
    return hit.folder, part, hit.row


RERANKED = 100  # hits of a query


class Reranker:
    """A model that scores pairs of a query and a text; UsageError if `model` does not."""

    def __init__(self, model: str) -> None:
        try:
            bundle = resolve_model(model)
            relevance_label(bundle)
        except SettingError as error:
            problem = str(error).removeprefix(f"{error.setting} ")
            raise UsageError(f"--rerank {model} {problem}") from error
        self._encoder = Encoder(bundle, device="cpu")

    def __call__(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits, all of which have texts, with the model's scores, best first."""
        texts = [hit.text or "" for hit in hits]
        if not texts:
            return []
        scores = self._encoder.score([(query, text) for text in texts], long_text="truncate")
        scored = [
            replace(hit, score=score)
            for hit, score in zip(hits, np.asarray(scores, np.float64).tolist(), strict=True)
        ]
        return sorted(scored, key=operator.attrgetter("score"), reverse=True)


_EXCERPT = 200  # letters


def run_search(options: SearchOptions) -> int:
    """Prints the hits of each query, best first."""
    queries = [options.query] if options.queries is None else read_queries(options.queries)
    if options.queries is None and os.path.isfile(os.path.join(options.query, RUN_FILE)):
        raise UsageError(f"{options.query} is a run's output: give a query behind it, in quotes")
    folders = _named_outputs(options.folders)
    hits_of_queries = search(folders, queries, options)
    for number, (query, hits) in enumerate(zip(queries, hits_of_queries, strict=True), 1):
        if options.json:
            answer_json(_json(query, hits))
            continue
        if options.queries is not None:
            answer(f"query {number}: {excerpt(query, _EXCERPT)}")
        for rank, hit in enumerate(hits, 1):
            source = f"  ({hit.folder})" if len(folders) > 1 else ""
            answer(f"{rank:3d}. {hit.score:.4f}  {hit.place}{source}")
            if hit.text is not None:
                answer(f"             {excerpt(hit.text, _EXCERPT)}")
    return ExitCode.DONE


def _json(query: str, hits: Sequence[Hit]) -> str:
    """A query and its hits as one line of JSON; docs/search.md says what is in it."""
    rows = []
    for rank, hit in enumerate(hits, 1):
        row = {"rank": rank, "score": hit.score, "id": hit.id, "text": hit.text}
        if hit.start is not None:
            row |= {"start": hit.start, "stop": hit.stop}
        rows.append(row | {"output": hit.folder, "file": hit.file})
    return json.dumps({"query": query, "hits": rows}, ensure_ascii=False)


def _named_outputs(named: Sequence[str]) -> list[str]:
    """The outputs that were named; UsageError if one of several is none."""
    for name in named:
        if len(named) > 1 and not os.path.isdir(name) and not run_folders(name.rstrip("/")):
            raise UsageError(f"{name} is not the output of a run; the query comes last, in quotes")
    return output_folders(named)


def read_queries(path: str) -> list[str]:
    r"""The lines of a file, which end with `\n` or `\r\n`; blank ones are skipped with a note."""
    try:
        text = queries_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"--queries {path} is not UTF-8") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    queries = [line for line in lines if line.strip()]
    if not queries:
        raise UsageError(f"--queries {path} must hold one query a line, but it is empty")
    if len(queries) < len(lines):
        warn(f"note: {counted(len(lines) - len(queries), 'blank line')} of {path} skipped")
    return queries


def search(
    folders: Sequence[str], queries: Sequence[str], options: SearchOptions
) -> list[list[Hit]]:
    """Finds the documents nearest to each query, exactly, in one pass over the files of vectors.

    Queries are embedded with the model and options that the outputs record, and unless a prompt is
    given with the model's prompt for queries. Of a document in several outputs that continue each
    other (`--skip_existing`) only the newest version is found. A cross-encoder scores the first
    hundred hits again. A note says where a run is not complete, or why no texts are shown.

    With candidates, so many hits of each query are found by the signs of ubinary vectors, or else
    by the vectors of the outputs, and scored by their vectors, or by those of other outputs. A note
    says which share of the exact hits that finds, for a sample of documents as queries.
    """
    if not queries:
        return []
    k, prompt = options.k, options.prompt
    outputs = [opened(folder, options.model, options.by) for folder in folders]
    kinds = _kinds(outputs, options.by)
    check_comparable(outputs, kinds)
    if kinds != ("multi",):  # whose queries have a length of their own
        tell_of_cut(outputs[0], queries, prompt)
    stages = None
    if options.candidates is not None or options.rescore_with is not None:
        named = options.rescore_with
        larger = [] if named is None else _larger(named, outputs, options.model)
        stages = _Stages(outputs, larger, options.candidates or CANDIDATES, prompt)
        stages.check(kinds, k)
    reranker = None if options.rerank is None else Reranker(options.rerank)
    wanted = k if reranker is None else max(k, RERANKED)
    most = wanted if len(kinds) == 1 else max(wanted, FUSED)
    if stages is not None:
        sample = RECALL_SAMPLE if options.recall_sample is None else options.recall_sample
        rankings = [stages.search(queries, wanted, k, sample)]
    else:
        rankings = [
            _newest_hits(
                NewestRows(outputs, ROW_KINDS[kind].name),
                queries_of(outputs, queries, prompt, kind),
                most,
            )
            for kind in kinds
        ]
    best = rankings[0]
    if len(kinds) > 1:
        best = [fused(of_query)[:wanted] for of_query in zip(*rankings, strict=True)]
    with_text = []
    for output in outputs:
        hits = [[hit for hit in hits if hit.folder == output.folder] for hits in best]
        hits, problem = with_texts(hits, output.settings, output.record, output.folder)
        if reranker is not None:
            _check_texts(hits, problem, output)
        record = output.record
        if record is not None and not record.is_done:
            so_far = "" if any(best) else ", and has no vectors yet"
            warn(
                f"note: the run in {output.folder} is not complete (status {record.status}){so_far}"
            )
        elif not any(best):
            why = "{} has no vectors"
            if "sparse" in kinds and (record is None or record.numbers.counts.embedded):
                why = "no vector of {} has an entry of the query"
            warn(f"note: {why.format(output.folder)}")
        elif problem is not None:
            warn(f"note: no texts of {output.folder} are shown: {problem}")
        with_text.append(hits)
    if reranker is None:
        return _best(with_text, k)
    of_queries = zip(queries, _best(with_text, wanted), strict=True)
    return [reranker(query, hits)[:k] for query, hits in of_queries]


def _kinds(outputs: Sequence[SearchedOutput], by: str | None) -> tuple[str, ...]:
    """The kinds of vectors to compare, which all outputs hold."""
    if by is not None:
        return SEARCHED[by]
    for kind in outputs[0].kinds:
        if all(kind in output.kinds for output in outputs):
            return (kind,)
    raise UsageError(
        f"{outputs[0].folder} and the others hold no kind of vectors in common: search them one "
        "by one"
    )


def _check_texts(
    hits: Sequence[Sequence[Hit]], problem: str | None, output: SearchedOutput
) -> None:
    """Refuses hits without texts, which no cross-encoder can score."""
    if problem is None and all(hit.text is not None for hit in itertools.chain(*hits)):
        return
    problem = problem or "several documents of a part have one id"
    raise UsageError(
        f"--rerank requires the texts of {output.folder}, but {problem}: embed with --keep_text"
    )


def _larger(
    named: str, outputs: Sequence[SearchedOutput], model: str | None
) -> list[SearchedOutput]:
    """The outputs whose vectors score candidates again; UsageError if theirs mean others."""
    larger = []
    for folder in _named_outputs([named]):
        record = read_run(folder)
        fingerprint = None if record is None else record.model.fingerprint
        same = fingerprint == outputs[0].settings["model"]
        larger.append(opened(folder, model if same else None, "dense"))
    check_comparable(larger, ("dense",))
    return larger


@dataclass(frozen=True)
class _Stages:
    """Search by candidates, which small vectors find and larger ones score."""

    outputs: Sequence[SearchedOutput]
    # Empty: the vectors of `outputs`, of which signs find the candidates.
    larger: Sequence[SearchedOutput]
    candidates: int
    prompt: str | None

    @property
    def by_signs(self) -> bool:
        """Whether the signs of the outputs' vectors find the candidates."""
        return all(output_dtype(output.settings) == "ubinary" for output in self.outputs)

    def check(self, kinds: Sequence[str], k: int) -> None:
        """Refuses what has no small vectors, or nothing larger to score them again."""
        flag = "--rescore_with" if self.larger else "--candidates"
        if kinds != ("dense",):
            raise UsageError(f"{flag} is for dense vectors, and conflicts with {','.join(kinds)}")
        if not self.larger and not self.by_signs:
            dtype = output_dtype(self.outputs[0].settings)
            raise UsageError(
                f"--candidates is for ubinary vectors, but {self.outputs[0].folder} holds {dtype} "
                "ones, which are compared as they are; --rescore_with names larger vectors"
            )
        if self.candidates < k:
            raise UsageError(f"--candidates must be at least --k, {k}, got {self.candidates}")

    def search(self, queries: Sequence[str], most: int, k: int, sample: int) -> list[list[Hit]]:
        """The `most` best hits of each query; says how many of `k` so many documents would miss."""
        asked, problem = self._sample(sample)
        texts = [*queries, *(hit.text or "" for hit in asked)]
        vectors = queries_of(self.outputs, texts, self.prompt, "dense")
        hits = _newest_hits(self._newest, vectors, self.candidates, self.by_signs)
        hits = self._scored(hits, texts, len(queries))
        if asked:
            self._tell_recall(asked, hits[len(queries) :], k)
        elif sample:
            warn(f"note: the recall of {self._candidates} is not measured: {problem}")
        return [few[:most] for few in hits[: len(queries)]]

    @property
    def _candidates(self) -> str:
        return f"{self.candidates} candidates by {output_dtype(self.outputs[0].settings)} vectors"

    def _scored(
        self, hits: Sequence[Sequence[Hit]], texts: Sequence[str], count: int
    ) -> list[list[Hit]]:
        """The candidates by their larger vectors; says how many of the first queries have none."""
        if not self.larger:
            again = [[hit.by_whole_vector for hit in few] for few in hits]
            return [sorted(few, key=lambda hit: -hit.score) for few in again]
        wanted = {place_of(hit) for few in hits for hit in few}
        at_places = _newest_vectors(self._newest_larger, wanted)
        shown = {place_of(hit) for few in hits[:count] for hit in few}
        if shown and not shown & at_places.keys():
            raise InputError(
                f"{self._names} has none of the {counted(len(shown), 'candidate')}: rescore with "
                "an output of the same documents or chunks, by their ids"
            )
        if missing := len(shown - at_places.keys()):
            lacking = counted_of(missing, len(shown), "candidate", "is", "are")
            warn(f"note: {lacking} not in {self._names}, and left out")
        # Of several texts with one id nothing says which of them the larger vector is of.
        unclear = _of_several(at_places) | _of_several(_newest_vectors(self._newest, wanted))
        vectors = {at: one for at, one in at_places.items() if one is not None}
        vectors = {at: one for at, one in vectors.items() if at not in unclear}
        if shared := len(shown & unclear & at_places.keys()):
            having = counted_of(shared, len(shown), "candidate", "has", "have")
            warn(f"note: {having} the id of several texts in {self._all_names}: left out")
        queries = queries_of(self.larger, texts, self.prompt, "dense")[0]
        return rescored(hits, vectors, queries, self.larger[0].settings["similarity"])

    # Each reads the ids of its outputs once, whatever asks for them.
    @cached_property
    def _newest(self) -> NewestRows:
        return NewestRows(self.outputs, "sentence")

    @cached_property
    def _newest_larger(self) -> NewestRows:
        return NewestRows(self.larger, "sentence")

    @property
    def _names(self) -> str:
        return " and ".join(output.folder for output in self.larger or self.outputs)

    @property
    def _all_names(self) -> str:
        return " or ".join(output.folder for output in (*self.larger, *self.outputs))

    def _sample(self, count: int) -> tuple[list[Hit], str | None]:
        """Evenly spread rows of the largest output with their texts, or why there are none."""
        output = max(
            self.outputs,
            key=lambda one: (
                one.record.numbers.counts.embedded if one.record and one.record.is_done else 0
            ),
        )
        if not count:
            return [], None
        if output.record is None or not output.record.is_done:
            return [], "no complete run says what its input is"
        hits = spread_rows(output.folder, output.settings, count)
        [found], problem = with_texts([hits], output.settings, output.record, output.folder)
        asked = [hit for hit in found if hit.text and not hit.text.isspace()]
        return asked, problem or f"no document of {output.folder} has a text to ask with"

    def _tell_recall(self, asked: Sequence[Hit], found: Sequence[Sequence[Hit]], k: int) -> None:
        """Says which share of the nearest by exact search is among the hits, without the asked."""
        outputs = self.larger or self.outputs
        queries = queries_of(outputs, [hit.text or "" for hit in asked], self.prompt, "dense")
        exact = _newest_hits(self._newest_larger if self.larger else self._newest, queries, k + 1)
        others = [
            [
                [place for place in map(place_of, few) if place != place_of(own)][:k]
                for few, own in zip(hits, asked, strict=True)
            ]
            for hits in (found, exact)
        ]
        recall = Recall.of(*others)
        dtype = output_dtype(outputs[0].settings)
        warn(
            f"recall@{k} {recall.share:.3f} ± {recall.error:.3f}: the share of the {k} nearest by "
            f"exact search of {self._names} ({dtype}) that {self._candidates} hold, for "
            f"{counted(recall.queries, 'document')} of {asked[0].folder} as queries"
        )


def _newest_hits(
    newest: NewestRows, queries: Sequence[Any], k: int, by_signs: bool = False
) -> list[list[Hit]]:
    """The best hits of each query, without documents that a later output has or deletes."""
    most = k
    while True:
        hits_of = [
            nearest(
                *(output.folder, output.settings, vectors, most, newest.granularity),
                by_signs=by_signs,
                finished=output.finished,
            )
            for output, vectors in zip(newest.outputs, queries, strict=True)
        ]
        left = [
            [list(itertools.compress(few, newest.are_newest(number, _ids(few)))) for few in hits]
            for number, hits in enumerate(hits_of)
        ]
        best = _best(left, k)
        # Old versions may have taken the places of others that are among the best.
        is_complete = all(
            len(new) >= k or len(few) < most or (len(top) == k and few[-1].score < top[-1].score)
            for hits, without_old in zip(hits_of, left, strict=True)
            for few, new, top in zip(hits, without_old, best, strict=True)
        )
        if is_complete:
            return best
        most *= 4


def _ids(hits: Sequence[Hit]) -> list[str | int]:
    return [hit.id for hit in hits]


def _newest_vectors(newest: NewestRows, wanted: set[Place]) -> dict[Place, np.ndarray | None]:
    """What `vectors_at` finds of the newest versions in some outputs."""
    vectors: dict[Place, np.ndarray | None] = {}
    for number, output in enumerate(newest.outputs):
        found = vectors_at(output, wanted)
        are_newest = newest.are_newest(number, [place[0] for place in found])
        add_vectors(vectors, dict(itertools.compress(found.items(), are_newest)))
    return vectors


def _of_several(vectors: Mapping[Place, np.ndarray | None]) -> set[Place]:
    return {at for at, one in vectors.items() if one is None}


def _best(of_outputs: Sequence[list[list[Hit]]], k: int) -> list[list[Hit]]:
    """The best hits of each query; of equal ones those of the first output."""
    return [
        sorted(itertools.chain.from_iterable(of_query), key=lambda hit: -hit.score)[:k]
        for of_query in zip(*of_outputs, strict=True)
    ]


def excerpt(text: str, width: int) -> str:
    """A text on one line, cut at a word.

    >>> excerpt("one two\\n three four", 14)
    'one two three…'
    """
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[:width].rsplit(" ", 1)[0][: width - 1] + "…"
