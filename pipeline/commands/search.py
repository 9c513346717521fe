"""Finds the documents of outputs that are nearest to queries."""

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.bundle.prompts import query_prompt
from bert_embed.encoder import Encoder
from bert_embed.engines.choose import weight_files
from bert_embed.formats.output_files import RUN_FILE
from bert_embed.nearest import Hit, ids_among, nearest
from bert_embed.pipeline.arguments import SearchOptions
from bert_embed.pipeline.commands.texts import with_texts
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.options import DEFAULTS
from bert_embed.results import (
    Output,
    granular_settings,
    later_outputs,
    output_folders,
    read_run,
)
from bert_embed.run_record import run_folders
from bert_embed.specs import VectorSpec
from bert_embed.storage.files import absolute, read_bytes
from bert_embed.storage.plurals import counted
from bert_embed.vectors import unit

_EXCERPT = 200  # letters


def run_search(options: SearchOptions) -> int:
    """Prints the hits of each query, best first."""
    queries = [options.query] if options.queries is None else read_queries(options.queries)
    if options.queries is None and os.path.isfile(os.path.join(options.query, RUN_FILE)):
        raise UsageError(f"{options.query} is a run's output: give a query behind it, in quotes")
    folders = _named_outputs(options.folders)
    hits_of_queries = search(folders, queries, options.k, options.model, options.prompt)
    for number, (query, hits) in enumerate(zip(queries, hits_of_queries, strict=True), 1):
        if options.json:
            say(_json(query, hits))
            continue
        if options.queries is not None:
            say(f"query {number}: {excerpt(query, _EXCERPT)}")
        for rank, hit in enumerate(hits, 1):
            source = f"  ({hit.folder})" if len(folders) > 1 else ""
            say(f"{rank:3d}. {hit.score:.4f}  {hit.place}{source}")
            if hit.text is not None:
                say(f"             {excerpt(hit.text, _EXCERPT)}")
    return ExitCode.DONE


def _json(query: str, hits: Sequence[Hit]) -> str:
    """A query and its hits as one line of JSON; docs/output.md says what is in it."""
    rows = []
    for rank, hit in enumerate(hits, 1):
        row = {"rank": rank, "score": hit.score, "id": hit.id, "text": hit.text}
        if hit.start is not None:
            row |= {"start": hit.start, "stop": hit.stop}
        rows.append(row | {"output": hit.folder, "file": hit.file})
    return json.dumps({"query": query, "hits": rows}, ensure_ascii=False)


def _named_outputs(named: Sequence[str]) -> list[str]:
    """The outputs that were named; UsageError if one of several is none."""
    with usage_errors():
        for name in named:
            if len(named) > 1 and not os.path.isdir(name) and not run_folders(name.rstrip("/")):
                raise UsageError(
                    f"{name} is not the output of a run; the query comes last, in quotes"
                )
        return output_folders(named)


def read_queries(path: str) -> list[str]:
    r"""The lines of a file, which end with `\n` or `\r\n`; blank ones are skipped with a note."""
    with usage_errors():
        data = read_bytes(absolute(path))
    try:
        text = (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"--queries {path} is not UTF-8") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    queries = [line for line in lines if line.strip()]
    if not queries:
        raise UsageError(
            f"--queries {path} must hold one query a line, but it is empty or does not exist"
        )
    if len(queries) < len(lines):
        warn(f"note: {counted(len(lines) - len(queries), 'blank line')} of {path} skipped")
    return queries


@dataclass(frozen=True)
class _Output(Output):
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
        text = query_prompt(self.bundle, self.settings["prompt"]) if text is None else text
        return self.bundle.prompt_text(None) if text is None else text


def search(
    folders: str | Sequence[str],
    queries: Sequence[str],
    k: int,
    model: str | None = None,
    prompt: str | None = None,
) -> list[list[Hit]]:
    """Finds the documents nearest to each query, exactly, in one pass over the files of vectors.

    Queries are embedded with the model and options that the outputs record, and unless `prompt` is
    given with the model's prompt for queries. Of a document in several outputs that continue each
    other (`--skip_existing`) only the newest version is found.
    """
    named = [folders] if isinstance(folders, str) else folders
    outputs = [_opened(folder, model) for folder in named]
    _check_comparable(outputs)
    vectors: dict[tuple[int, str, str], np.ndarray] = {}
    of_output = []
    with usage_errors():
        for output in outputs:
            text = output.query_prompt(prompt)
            key = output.settings["max_seq_length"], _query_precision(output.settings), text
            if key not in vectors:
                vectors[key] = query_vectors(output, queries, text)
            of_output.append(vectors[key])
        best = _newest_hits(outputs, of_output, k)
    with_text = []
    for output in outputs:
        hits = [[hit for hit in hits if hit.folder == output.folder] for hits in best]
        hits, problem = with_texts(hits, output.settings, output.record, output.folder)
        record = output.record
        if record is not None and not record.is_done:
            warn(f"note: the run in {output.folder} is not complete (status {record.status})")
        elif not any(best):
            warn(f"note: {output.folder} has no vectors")
        elif problem is not None:
            warn(f"note: no texts of {output.folder} are shown: {problem}")
        with_text.append(hits)
    return _best(with_text, k)


def _newest_hits(
    outputs: Sequence[_Output], queries: Sequence[np.ndarray], k: int
) -> list[list[Hit]]:
    """The best hits of each query, without documents that a later output has."""
    later = later_outputs(outputs)
    most = k
    while True:
        hits_of = [
            nearest(output.folder, output.settings, vectors, most)
            for output, vectors in zip(outputs, queries, strict=True)
        ]
        ids = {
            str(hit.id)
            for hits, continuing in zip(hits_of, later, strict=True)
            if continuing
            for hit in itertools.chain.from_iterable(hits)
        }
        ids_of = {
            number: ids_among(outputs[number].folder, outputs[number].settings, ids)
            for number in set().union(*later)
        }
        newest = []
        for hits, continuing in zip(hits_of, later, strict=True):
            old = set().union(*(ids_of[number] for number in continuing))
            newest.append([[hit for hit in few if str(hit.id) not in old] for few in hits])
        best = _best(newest, k)
        # Old versions may have taken the places of others that are among the best.
        is_complete = all(
            len(left) >= k or len(few) < most or (len(top) == k and few[-1].score < top[-1].score)
            for hits, without_old in zip(hits_of, newest, strict=True)
            for few, left, top in zip(hits, without_old, best, strict=True)
        )
        if is_complete:
            return best
        most *= 4


def _best(of_outputs: Sequence[list[list[Hit]]], k: int) -> list[list[Hit]]:
    """The best hits of each query; of equal ones those of the first output."""
    return [
        sorted(itertools.chain.from_iterable(of_query), key=lambda hit: -hit.score)[:k]
        for of_query in zip(*of_outputs, strict=True)
    ]


def _opened(folder: str, model: str | None) -> _Output:
    """Reads what an output says of its vectors, and finds their model."""
    with usage_errors():
        record = read_run(folder)
        parent = os.path.dirname(folder.rstrip("/"))
        if record is None and parent and read_bytes(f"{absolute(parent)}/{RUN_FILE}") is not None:
            raise UsageError(f"{folder} is a folder within a run's output; did you mean {parent}?")
        settings = granular_settings(folder, "sentence")
        place = model or (record.model.name if record else DEFAULTS["model"])
        needed = partial(weight_files, precision=_query_precision(settings), device="cpu")
        bundle = resolve_model(place, needed)
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors "
            f"in {folder} come from {settings['model']} ({settings['model_source']})"
        )
    return _Output(folder, settings, record, bundle)


def _check_comparable(outputs: Sequence[_Output]) -> None:
    """Refuses outputs whose cosines with a query mean different things."""
    first = outputs[0]
    for output in outputs[1:]:
        same_model = output.settings["model"] == first.settings["model"]
        if not same_model or output.spec != first.spec:
            what = "other layers, pooling or dim" if same_model else "another model"
            raise UsageError(
                f"{output.folder} has vectors of {what} than {first.folder}, so their cosines "
                "cannot be compared: search them one by one"
            )


def query_vectors(output: _Output, queries: Sequence[str], prompt: str) -> np.ndarray:
    """float32 `[queries, width]` of unit length, with a text before each query."""
    settings = output.settings
    precision = _query_precision(settings)
    encoder = Encoder(output.bundle, output.spec, prompt=prompt, precision=precision, device="cpu")
    length = settings["max_seq_length"]
    vectors = encoder.encode(list(queries), max_seq_length=length, long_text="truncate")
    return unit(vectors.reshape(len(queries), -1))


def _query_precision(settings: dict[str, Any]) -> str:
    # This processor may lack the other precisions, which differ by a rounding only.
    return "int8" if settings["precision"] == "int8" else "float32"


def excerpt(text: str, width: int) -> str:
    """A text on one line, cut at a word.

    >>> excerpt("one two\\n three four", 14)
    'one two three…'
    """
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[:width].rsplit(" ", 1)[0][: width - 1] + "…"
