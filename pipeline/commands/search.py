"""Finds the documents of outputs that are nearest to queries."""

import argparse
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder
from bert_embed.engines.choose import weight_files
from bert_embed.formats.output_files import RUN_FILE, parse_name
from bert_embed.nearest import Hit, ids_among, nearest
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.options import DEFAULTS
from bert_embed.results import granular_settings, read_run
from bert_embed.run_record import RunRecord
from bert_embed.specs import VectorSpec
from bert_embed.storage.files import absolute, is_remote, join, list_files, open_raw, read_bytes
from bert_embed.storage.globs import is_glob
from bert_embed.storage.plurals import counted
from bert_embed.transforms.plan.cut import plan_blocks
from bert_embed.transforms.plan.listing import files_to_read, input_files, listing_digest
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_blocks


def run_search(given: argparse.Namespace) -> int:
    """Prints the hits of each query, best first.

    Args:
        given: As `parse_search` gives it.

    Raises:
        UsageError: As for `search`, or the file of queries is none.
    """
    queries = [given.query] if given.queries is None else read_queries(given.queries)
    if given.query is not None and os.path.isfile(os.path.join(given.query, RUN_FILE)):
        raise UsageError(
            f"--query {given.query} is a run's output: give a query behind it, in quotes"
        )
    folders = output_folders(given.embeddings)
    trusted = bool(given.allow_untrusted_model)
    found = search(folders, queries, given.k, given.model, given.prompt, trusted)
    every = list(itertools.chain.from_iterable(found))
    for folder in folders:
        own = [hit for hit in every if hit.folder == folder]
        problem = output_problem(folder, own, has_hits=bool(own or not every))
        if problem:
            warn(f"note: {problem}")
    for number, (query, hits) in enumerate(zip(queries, found, strict=True), 1):
        if given.json:
            say(_json(query, hits))
            continue
        if given.queries is not None:
            say(f"query {number}: {excerpt(query, 200)}")
        for rank, hit in enumerate(hits, 1):
            source = f"  ({hit.folder})" if len(folders) > 1 else ""
            say(f"{rank:3d}. {hit.score:.4f}  {hit.place}{source}")
            if hit.text is not None:
                say(f"             {excerpt(hit.text, 200)}")
    return ExitCode.DONE


def _json(query: str, hits: Sequence[Hit]) -> str:
    """A query and its hits as one line of JSON; docs/output.md says what is in it."""
    found = []
    for rank, hit in enumerate(hits, 1):
        row = {"rank": rank, "score": hit.score, "id": hit.at.id, "text": hit.text}
        if hit.at.start is not None:
            row |= {"start": hit.at.start, "stop": hit.at.stop}
        found.append(row | {"output": hit.folder, "file": hit.file})
    return json.dumps({"query": query, "hits": found}, ensure_ascii=False)


def output_folders(named: Sequence[str]) -> list[str]:
    """The outputs that were named: folders of runs, folders above them, and globs; each once.

    Raises:
        UsageError: One of several names is no output.
    """
    folders: dict[str, str] = {}  # by where they are
    for name in named:
        path = name.rstrip("/") or name
        with usage_errors():
            found, glob = [path], is_glob(path) and not os.path.exists(path)
            if glob or read_bytes(absolute(join(path, RUN_FILE))) is None:
                pattern = path if glob else join(path, "*")
                below = list_files(absolute(join(pattern, RUN_FILE)))
                found = [file.path.rpartition("/")[0] for file in below] or found
                if not below and len(named) > 1 and not os.path.isdir(path):
                    raise UsageError(
                        f"--embeddings {name} is not the output of a run; the query comes last, in "
                        "quotes"
                    )
        for each in found:
            folders.setdefault(absolute(each), each)
    return list(folders.values())


def read_queries(path: str) -> list[str]:
    r"""The lines of a file, which end with `\n` or `\r\n`; blank ones are skipped with a note.

    Raises:
        UsageError: It cannot be read, or holds no query.
    """
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
class Lineage:
    """A run and those that it continues.

    Attributes:
        run: Its fingerprint, None if it is not known.
        earlier: The fingerprints of the runs that its `--skip_existing` named.
    """

    run: str | None = None
    earlier: frozenset[str] = frozenset()

    @classmethod
    def of_record(cls, record: RunRecord) -> "Lineage":
        """From a run's `run.json`; a BigQuery table, which has no run, is left out."""
        named = record.input.earlier
        return cls(record.run, frozenset(each.run for each in named if each.run is not None))


@dataclass(frozen=True)
class _Output:
    """What is known of an output before its vectors are read."""

    folder: str
    settings: dict[str, Any]
    record: RunRecord | None
    bundle: Bundle
    lineage: Lineage

    @property
    def spec(self) -> VectorSpec:
        """How its vectors were computed."""
        names = [field.name for field in fields(VectorSpec) if field.name in self.settings]
        return VectorSpec.from_dict({name: self.settings[name] for name in names})


def search(
    folders: str | Sequence[str],
    queries: Sequence[str],
    k: int,
    model: str | None = None,
    prompt: str | None = None,
    allow_untrusted: bool = False,
) -> list[list[Hit]]:
    """Finds the documents nearest to each query, exactly, in one pass over the files of vectors.

    Queries are embedded with the model and options that the outputs record. Of a document in
    several outputs that continue each other (`--skip_existing`) only the newest version is found.

    Args:
        folders: Output folder of a run, or of several with vectors of one kind.
        queries: Texts.
        k: Number of hits of each.
        model: Where the model is now; None for its place at the run.
        prompt: The text before a query, or `name:` and one of the model's prompts; None is the
            model's prompt called "query", else its default one.
        allow_untrusted: Whether the model's SavedModel may hold any operation.

    Raises:
        UsageError: There is no output, it has no vectors of whole texts, they come from another
            model, or those of several cannot be compared.
    """
    named = [folders] if isinstance(folders, str) else folders
    outputs = [_opened(folder, model, allow_untrusted) for folder in named]
    _check_comparable(outputs)
    vectors: dict[tuple[int, bool], np.ndarray] = {}
    of_output = []
    for output in outputs:
        with usage_errors():
            settings = output.settings
            key = settings["max_seq_length"], settings["precision"] == "int8"
            if key not in vectors:
                vectors[key] = query_vectors(output, queries, prompt)
            of_output.append(vectors[key])
    found = _newest_hits(outputs, of_output, k)
    best = _best(found, k)
    with_text = []
    for output in outputs:
        own = [[hit for hit in hits if hit.folder == output.folder] for hits in best]
        record = output.record
        with_text.append(own if record is None else _with_texts(own, record, output.folder))
    return _best(with_text, k)


def later_outputs(lineages: Sequence[Lineage]) -> list[set[int]]:
    """For each output the numbers of those that continue it, directly or not.

    >>> monday, tuesday = Lineage("mon"), Lineage("tue", frozenset({"mon"}))
    >>> later_outputs([monday, tuesday, Lineage("wed", frozenset({"tue"})), Lineage("apart")])
    [{1, 2}, {2}, set(), set()]
    """
    later: list[set[int]] = []
    for lineage in lineages:
        found: set[int] = set()
        runs = {lineage.run}
        while runs:
            new = {number for number, each in enumerate(lineages) if each.earlier & runs} - found
            found |= new
            runs = {lineages[number].run for number in new}
        later.append(found)
    return later


def _newest_hits(
    outputs: Sequence[_Output], queries: Sequence[np.ndarray], k: int
) -> list[list[list[Hit]]]:
    """The best hits of each query in each output, without documents that a later output has."""
    later = later_outputs([output.lineage for output in outputs])
    found: list[list[list[Hit]]] = [[] for _ in outputs]
    wanted = dict.fromkeys(range(len(outputs)), k)
    while wanted:
        every = {}
        for number, most in wanted.items():
            output = outputs[number]
            with usage_errors():
                every[number] = nearest(output.folder, output.settings, queries[number], most)
        ids = {
            str(hit.at.id)
            for number, hits in every.items()
            if later[number]
            for hit in itertools.chain.from_iterable(hits)
        }
        again = {}
        for number in set().union(*(later[each] for each in wanted)):
            with usage_errors():
                again[number] = ids_among(outputs[number].folder, outputs[number].settings, ids)
        for number, hits in every.items():
            old = set().union(*(again[each] for each in later[number]))
            found[number] = [[hit for hit in some if str(hit.at.id) not in old] for some in hits]
        best = _best(found, k)
        # Old versions took the places of others that may be among the best.
        wanted = {
            number: 4 * most
            for number, most in wanted.items()
            if any(
                len(left) < k
                and len(hits) == most
                and (len(top) < k or hits[-1].score >= top[-1].score)
                for hits, left, top in zip(every[number], found[number], best, strict=True)
            )
        }
    return found


def _best(found: Sequence[list[list[Hit]]], k: int) -> list[list[Hit]]:
    """The best hits of each query; of equal ones those of the first output."""
    return [
        sorted(itertools.chain.from_iterable(of_query), key=lambda hit: -hit.score)[:k]
        for of_query in zip(*found, strict=True)
    ]


def _opened(folder: str, model: str | None, allow_untrusted: bool) -> _Output:
    """Reads what an output says of its vectors, and finds their model."""
    with usage_errors():
        record = read_run(folder)
        parent = os.path.dirname(folder.rstrip("/"))
        if record is None and parent and read_bytes(f"{absolute(parent)}/{RUN_FILE}") is not None:
            raise UsageError(
                f"--embeddings {folder} is a folder within a run's output; did you mean {parent}?"
            )
        settings = granular_settings(folder, "sentence")
        place = model or (record.model.name if record else DEFAULTS["model"])
        needed = partial(weight_files, precision=query_precision(settings), device="cpu")
        bundle = resolve_model(place, allow_untrusted, needed)
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors "
            f"in {folder} come from {settings['model']} ({settings['model_source']})"
        )
    lineage = Lineage() if record is None else Lineage.of_record(record)
    return _Output(folder, settings, record, bundle, lineage)


def _check_comparable(outputs: Sequence[_Output]) -> None:
    """Refuses outputs whose cosines with a query mean different things."""
    first = outputs[0]
    for output in outputs[1:]:
        same_model = output.settings["model"] == first.settings["model"]
        if not same_model or output.spec != first.spec:
            what = "other layers, pooling or dim" if same_model else "another model"
            raise UsageError(
                f"--embeddings {output.folder} has vectors of {what} than {first.folder}, so "
                "their cosines cannot be compared: search them one by one"
            )


def query_vectors(output: _Output, queries: Sequence[str], prompt: str | None = None) -> np.ndarray:
    """float32 `[queries, width]` of unit length; ValueError if the model has no such prompt."""
    bundle, settings, spec = output.bundle, output.settings, output.spec
    precision, prompt = query_precision(settings), query_prompt(bundle, prompt)
    encoder = Encoder(bundle, spec, prompt=prompt, precision=precision, device="cpu")
    length = settings["max_seq_length"]
    vectors = encoder.encode(list(queries), max_seq_length=length, long_text="truncate")
    vectors = vectors.reshape(len(queries), -1)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def query_precision(settings: Mapping[str, Any]) -> str:
    """The precision of queries for a run's vectors."""
    # This processor may lack the other precisions, which differ by a rounding only.
    return "int8" if settings["precision"] == "int8" else "float32"


def query_prompt(bundle: Bundle, given: str | None) -> str:
    """The text before a query, as in `encode_query` of sentence-transformers."""
    if given is None and "query" in bundle.prompts:
        return bundle.prompts["query"]
    return bundle.prompt_text(given)


def _with_texts(found: list[list[Hit]], record: RunRecord, folder: str) -> list[list[Hit]]:
    """Adds the texts that the output holds (--keep_text), or else those of the run's input."""
    if not record.options.get("keep_text"):
        return with_texts(found, record, folder)
    texts: dict[tuple[str, str, int | None], str | None] = {}
    for name in {hit.file for hit in itertools.chain.from_iterable(found)}:
        if not name.endswith(".parquet"):
            return with_texts(found, record, folder)
        with open_raw(join(absolute(folder), name)) as file:
            reader = pq.ParquetFile(file)
            columns = [
                each for each in ("id", "start", "text") if each in reader.schema_arrow.names
            ]
            if "text" not in columns:
                return with_texts(found, record, folder)
            for row in reader.read(columns).to_pylist():
                key = name, str(row["id"]), row.get("start")
                # Of several rows with one id, none can be told from the others.
                texts[key] = row["text"] if texts.get(key, row["text"]) == row["text"] else None
    return [
        [replace(hit, text=texts.get((hit.file, str(hit.at.id), hit.at.start))) for hit in hits]
        for hits in found
    ]


def with_texts(found: list[list[Hit]], record: RunRecord, folder: str) -> list[list[Hit]]:
    """Adds the documents' texts, by planning and reading their blocks again.

    The plan is the same every time, so a file's name gives its block.
    If the input has changed or is missing, hits have no texts.
    """
    source, cut = record.input, record.files
    try:
        files = input_files(
            source.patterns,
            source.format,
            absolute(folder),
            look_inside=False,
            whole_files=source.document == "file",
        )
        examples = any(file.format == "tfrecord" for file in files)
        if examples or source.read_through or listing_digest(files) != source.listing:
            return found
        files = files_to_read(files, source.text_column, source.limit)
    except (ValueError, OSError):
        return found
    wanted: dict[int, dict[int, set[str]]] = {}  # ids by block and part
    for hit in itertools.chain.from_iterable(found):
        name = parse_name(hit.file)
        if name is not None:
            wanted.setdefault(name.block, {}).setdefault(name.part, set()).add(str(hit.at.id))
    spans = source.span_columns
    columns = Columns(
        source.text_column,
        source.id_column,
        source.text_b_column,
        None if spans is None else (spans[0], spans[1]),
        source.pair_separator,
    )
    texts: dict[tuple[int, int, str], str | None] = {}
    for spec in plan_blocks(files, cut.block_bytes):
        parts = wanted.get(spec.number)
        if parts is None:
            continue
        for block in document_blocks(spec, columns, cut.part_docs, cut.block_bytes, {}):
            ids = parts.get(block.part.number, ())
            for document, text in zip(block.ids.to_pylist(), block.texts, strict=True):
                if document in ids:
                    key = spec.number, block.part.number, document
                    # Of several documents with one id in a part, none can be told from the others.
                    texts[key] = text if texts.get(key, text) == text else None
    return [[replace(hit, text=_shown(texts, hit)) for hit in hits] for hits in found]


def _shown(texts: Mapping[tuple[int, int, str], str | None], hit: Hit) -> str | None:
    name = parse_name(hit.file)
    text = None if name is None else texts.get((name.block, name.part, str(hit.at.id)))
    return None if text is None else text[hit.at.start : hit.at.stop]


def excerpt(text: str, width: int) -> str:
    """A text on one line, cut at a word.

    >>> excerpt("one two\\n three four", 14)
    'one two three…'
    """
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[:width].rsplit(" ", 1)[0][: width - 1] + "…"


def output_problem(folder: str, hits: Sequence[Hit] = (), has_hits: bool = True) -> str | None:
    """Why a folder's output is not complete, or its hits show no text; None if neither.

    `has_hits` is False for one of several outputs, if only others have hits.
    """
    if not os.path.isdir(folder) and not is_remote(folder):
        return None
    record = read_run(folder)
    if record is not None and not record.is_done:
        return f"the run in {folder} is not complete (status {record.status})"
    if not has_hits:
        return None
    if not hits:
        return f"the run in {folder} has no vectors"
    if all(hit.text is None for hit in hits):
        return (
            f"no texts of {folder} are shown: the run's input has changed or is missing, or "
            "several documents of a file have these ids"
        )
    return None
