"""Opens outputs to search, and finds their documents that are nearest to queries."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import orjson

from bert_embed.backends.choose import weight_files
from bert_embed.base.arrays import unit
from bert_embed.base.errors import SettingError, counted
from bert_embed.bundle.bundle import Bundle, query_prompt
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.console import answer, answer_json, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import SearchOptions
from bert_embed.pipeline.run.output import check_model
from bert_embed.pipeline.texts import texts_of_input
from bert_embed.results.names import RUN_FILE, kinds_of, vectors_of
from bert_embed.results.outputs import (
    NewestRows,
    Output,
    check_holds,
    output_folders,
    read_run,
    vector_settings,
)
from bert_embed.results.run_record import run_folders
from bert_embed.search.nearest import Hit, nearest
from bert_embed.settings import VectorSpec
from bert_embed.storage.files import absolute, read_bytes


@dataclass(frozen=True)
class SearchedOutput(Output):
    """An output with the model of its vectors."""

    bundle: Bundle

    @property
    def spec(self) -> VectorSpec:
        """How its vectors were computed."""
        names = [field.name for field in fields(VectorSpec) if field.name in self.settings]
        return VectorSpec.from_dict({name: self.settings[name] for name in names})

    def query_prompt(self, prompt: str | None) -> str:
        """The text before a query; SettingError if the model has no prompt of this name."""
        if prompt is not None:
            return self.bundle.prompt_text(prompt)
        text = self.settings.get("query_prompt")
        return query_prompt(self.bundle, self.settings["prompt"]) if text is None else text


def opened(folder: str, model: str | None, by: str | None) -> SearchedOutput:
    """Reads what an output says of its vectors, and finds their model."""
    record = read_run(folder)
    settings = vector_settings(folder, record)
    check_kinds(folder, settings, by)
    needed = partial(weight_files, precision=_query_precision(settings), device="cpu")
    bundle = resolve_model(model or record.model.name, needed)
    check_model(bundle, settings, folder)
    # Runs name it only if it is not the cosine.
    settings = {"similarity": bundle.similarity, **settings}
    return SearchedOutput(folder, settings, record, bundle)


def check_kinds(folder: str, settings: dict[str, Any], by: str | None) -> None:
    """Refuses an output whose vectors cannot be searched, or not by what was asked."""
    held = searchable(settings)
    if by is not None and by not in held and held:
        raise SettingError(
            "by",
            f"{by} requires {by} vectors, but {folder} holds {' and '.join(held)} ones: embed with "
            f"`--vectors {by}` and a model that makes them, such as BAAI/bge-m3",
        )
    made = [] if held else [kind for kind in vectors_of(settings) if kind != "dense"]
    if made:
        raise UsageError(
            f"{folder} holds {' and '.join(made)} vectors, which have no similarity: take an "
            "output of `--vectors dense`"
        )
    if not held:
        check_holds(folder, settings, "sentence")  # says how to read what there is


def searchable(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of an output's vectors that can be searched, dense first."""
    return tuple(
        name
        for name, kind in ROW_KINDS.items()
        if kind.similarity is not None and kind.name in kinds_of(settings)
    )


def check_comparable(outputs: Sequence[SearchedOutput], kind: str) -> None:
    """Refuses outputs whose scores with a query mean different things."""
    first = outputs[0]
    for output in outputs[1:]:
        same_model = output.settings["model"] == first.settings["model"]
        same_score = output.settings["similarity"] == first.settings["similarity"]
        same_dense = output.spec == first.spec and same_score
        if not same_model or (kind == "dense" and not same_dense):
            what = "other layers, pooling or dim" if same_model else "another model"
            scores = "cosines" if kind == "dense" else "scores"
            raise UsageError(
                f"{output.folder} has vectors of {what} than {first.folder}, so their {scores} "
                "cannot be compared: search them one by one"
            )


def queries_file(path: str) -> str:
    """The text of a file of queries; SettingError if there is none."""
    try:
        data = read_bytes(absolute(path))
        if data is not None:
            return data.decode("utf-8-sig")
    except IsADirectoryError as error:
        raise SettingError("queries", f"{path} is a folder, give a file") from error
    except UnicodeDecodeError as error:
        raise SettingError("queries", f"{path} is not UTF-8") from error
    stdin = "; stdin is /dev/stdin" if path == "-" else ""
    raise SettingError("queries", f"{path} does not exist{stdin}")


def queries_of(
    outputs: Sequence[SearchedOutput], queries: Sequence[str], prompt: str | None, kind: str
) -> list[Any]:
    """The vectors of the queries for each output, computed once for equal settings."""
    vectors: dict[tuple[int, str, str], Any] = {}
    of_output = []
    for output in outputs:
        text = output.query_prompt(prompt)
        key = output.settings["max_seq_length"], _query_precision(output.settings), text
        if key not in vectors:
            vectors[key] = query_vectors(output, queries, text, kind)
        of_output.append(vectors[key])
    return of_output


def query_vectors(output: SearchedOutput, queries: Sequence[str], prompt: str, kind: str) -> Any:
    """What `nearest` takes of a kind, with a text before each query; notes how many are cut."""
    settings = output.settings
    precision, texts = _query_precision(settings), list(queries)
    encoder = Encoder(output.bundle, output.spec, prompt=prompt, precision=precision, device="cpu")
    asked: dict[str, Any] = {"kind": kind, "long_text": "truncate"}
    if kind != "multi":  # whose queries have a length of their own
        asked["max_seq_length"] = most = settings["max_seq_length"]
        if cut := sum(len(encoder.tokenizer.encode(prompt + text)) > most for text in texts):
            total, were = counted(len(texts), "query", "queries"), "is" if cut == 1 else "are"
            folder = output.folder  # as whose texts their ends are lost
            warn(f"note: {cut:,} of {total} {were} cut at {most} tokens, as texts of {folder}")
    if kind != "dense":
        return encoder.encode_query(texts, prompt=prompt, **asked)
    vectors = encoder.encode(texts, **asked).reshape(len(texts), -1)
    if empty := int(np.count_nonzero(~vectors.any(axis=1))):
        total = counted(len(texts), "query", "queries")
        warn(
            f"note: {empty:,} of {total} without a known token: no order of its hits means anything"
        )
    return unit(vectors) if settings["similarity"] == "cosine" else vectors


def _query_precision(settings: dict[str, Any]) -> str:
    # This processor may lack the other precisions, which differ by a rounding only.
    return "int8" if settings["precision"] == "int8" else "float32"


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
