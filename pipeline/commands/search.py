"""Finds the documents of outputs that are nearest to queries."""

import itertools
import json
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from bert_embed.base.errors import counted
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.console import answer, answer_json, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import SearchOptions
from bert_embed.pipeline.searched import (
    SearchedOutput,
    check_comparable,
    opened,
    queries_file,
    queries_of,
    searchable,
)
from bert_embed.pipeline.texts import texts_of_input
from bert_embed.results.names import RUN_FILE
from bert_embed.results.outputs import NewestRows, output_folders
from bert_embed.results.run_record import run_folders
from bert_embed.search.nearest import Hit, nearest

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
            if hit.columns:
                shown = "; ".join(f"{name}: {value}" for name, value in hit.columns.items())
                answer(f"             {excerpt(shown, _EXCERPT)}")
            if hit.text is not None:
                answer(f"             {excerpt(hit.text, _EXCERPT)}")
    return ExitCode.DONE


def _json(query: str, hits: Sequence[Hit]) -> str:
    """A query and its hits as one line of JSON; docs/search.md says what is in it."""
    rows = []
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"rank": rank, "score": hit.score, "id": hit.id, "text": hit.text}
        if hit.start is not None:
            row |= {"start": hit.start, "stop": hit.stop}
        if hit.columns:  # NaN, which is no JSON, becomes null
            columns = orjson.dumps(hit.columns, str, orjson.OPT_PASSTHROUGH_DATETIME)
            row["columns"] = orjson.loads(columns)
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
    text = queries_file(path).removesuffix("\n")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
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
    other (`--skip_existing`) only the newest version is found. A note says where a run is not
    complete, or why no texts are shown.
    """
    if not queries:
        return []
    outputs = [opened(folder, options.model, options.by) for folder in folders]
    kind = options.by or _common_kind(outputs)
    check_comparable(outputs, kind)
    vectors = queries_of(outputs, queries, options.prompt, kind)
    newest = NewestRows(outputs, ROW_KINDS[kind].name)
    warn(*(f"note: {overlap}" for overlap in newest.overlaps()))
    best = _newest_hits(newest, vectors, options.k)
    return _best([_with_texts(output, best, kind) for output in outputs], options.k)


def _common_kind(outputs: Sequence[SearchedOutput]) -> str:
    """The first kind of vectors that all outputs hold, dense before others."""
    for kind in searchable(outputs[0].settings):
        if all(kind in searchable(output.settings) for output in outputs):
            return kind
    raise UsageError(
        f"{outputs[0].folder} and the others hold no kind of vectors in common: search them one "
        "by one"
    )


def _with_texts(
    output: SearchedOutput, best: Sequence[Sequence[Hit]], kind: str
) -> list[list[Hit]]:
    """An output's own hits among the best, with their texts; notes what it lacks."""
    hits = [[hit for hit in hits if hit.folder == output.folder] for hits in best]
    record, problem = output.record, None
    if not output.settings.get("keep_text"):
        hits, problem = texts_of_input(hits, record, output.folder)
    if not record.is_done:
        so_far = "" if any(best) else ", and has no vectors yet"
        warn(f"note: the run in {output.folder} is not complete (status {record.status}){so_far}")
    elif not any(best):
        why = "{} has no vectors"
        if kind == "sparse" and record.numbers.counts.embedded:
            why = "no vector of {} has an entry of the query"
        warn(f"note: {why.format(output.folder)}")
    elif problem is not None:
        warn(f"note: no texts of {output.folder} are shown: {problem}")
    return hits


def _newest_hits(newest: NewestRows, queries: Sequence[Any], k: int) -> list[list[Hit]]:
    """The best hits of each query, without documents that a later output has or deletes."""
    hits_of = []
    for number, (output, vectors) in enumerate(zip(newest.outputs, queries, strict=True)):
        among = None if newest.has_all(number) else partial(newest.are_newest, number)
        if among is not None:
            among(())  # the ids of later outputs are read here, not by each thread
        hits_of.append(
            nearest(
                *(output.folder, output.settings, vectors, k, newest.granularity),
                among=among,
                finished=output.finished,
                extra=output.record.input.extra_columns or {},
            )
        )
    return _best(hits_of, k)


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
