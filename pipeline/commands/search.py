"""Finds the documents of an output that are nearest to a query."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bert.bundle.bundle import Bundle
from bert.bundle.find import resolve_model
from bert.encoder import Encoder
from bert.formats.output_files import parse_name
from bert.formats.result_files import read_sentences
from bert.results import granular_settings, read_run, vector_files
from bert.specs import VectorSpec
from pipeline.console import say, warn
from pipeline.errors import ExitCode, UsageError, usage_errors
from pipeline.options import DEFAULTS
from pipeline.parser import Once, Parser, add_flag
from pipeline.resolve.example_input import are_examples
from storage.files import absolute, is_remote
from transforms.plan.cut import plan_blocks
from transforms.plan.listing import files_to_read, input_files, listing_digest
from transforms.read.columns import Columns
from transforms.read.reader import document_blocks


@dataclass(frozen=True)
class Hit:
    """A document, or a window of one where windows were kept, that is near the query.

    Attributes:
        score: Cosine of its vector and the query's.
        id: The document's id.
        file: Name of the file that holds its vector, below the folder.
        text: The document or window, None where the input has changed.
        start: Code point of the document where the window begins, None for a whole document.
        stop: Code point after the window's last one, likewise.
    """

    score: float
    id: str
    file: str
    text: str | None = None
    start: int | None = None
    stop: int | None = None

    @property
    def place(self) -> str:
        """The id, and the code points of a window.

        >>> Hit(0.5, "a", "f").place, Hit(0.5, "a", "f", None, 120, 240).place
        ('a', 'a 120:240')
        """
        return self.id if self.start is None else f"{self.id} {self.start}:{self.stop}"


def run_search(arguments: Sequence[str]) -> int:
    """Prints the hits of a query, best first.

    Raises:
        UsageError: The arguments are wrong, or as for `search`.
    """
    parser = Parser("search", "Prints the documents whose vectors are nearest to a query's.")
    parser.add_argument(
        "--embeddings", required=True, metavar="DIR", action=Once, help="a run's output"
    )
    parser.add_argument("--query", required=True, metavar="TEXT", action=Once)
    parser.add_argument("--k", type=int, default=10, help="number of hits (default: 10)")
    parser.add_argument("--model", help="where the model is, if it was moved")
    parser.add_argument("--prompt", help="before the query (default: the model's query prompt)")
    add_flag(parser, "allow_untrusted_model")
    given = parser.parse_args(arguments)
    if given.k < 1:
        parser.error(f"--k must be at least 1, got {given.k}")
    if not given.query.strip():
        parser.error("--query must not be blank")
    trusted = bool(given.allow_untrusted_model)
    hits = search(given.embeddings, given.query, given.k, given.model, given.prompt, trusted)
    problem = output_problem(given.embeddings, hits)
    if problem:
        warn(f"note: {problem}")
    for rank, hit in enumerate(hits, 1):
        say(f"{rank:3d}. {hit.score:.4f}  {hit.place}")
        if hit.text is not None:
            say(f"             {excerpt(hit.text, 200)}")
    return ExitCode.DONE


def search(
    folder: str,
    query: str,
    k: int,
    model: str | None = None,
    prompt: str | None = None,
    allow_untrusted: bool = False,
) -> list[Hit]:
    """Finds the documents nearest to a query, exactly, one file of vectors at a time.

    The query is embedded with the model and options that the output records.

    Args:
        folder: Output folder of a run.
        query: Text.
        k: Number of hits.
        model: Where the model is now; None for its place at the run.
        prompt: The text before the query, or `name:` and one of the model's prompts; None is the
            model's prompt called "query", else its default one.
        allow_untrusted: Whether the model's SavedModel may hold any operation.

    Raises:
        UsageError: There is no output, it has no vectors of whole texts, or they come from another
            model.
    """
    with usage_errors():
        settings, record = granular_settings(folder, "sentence"), read_run(folder)
        place = model or (record or {}).get("model", {}).get("name") or DEFAULTS["model"]
        bundle = resolve_model(place, allow_untrusted)
    try:
        return _found(folder, settings, record, bundle, (query, prompt), k)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{folder}/run.json is not the record of a run: {error!r}") from error


def _found(
    folder: str,
    settings: dict[str, Any],
    record: dict[str, Any] | None,
    bundle: Bundle,
    query: tuple[str, str | None],
    k: int,
) -> list[Hit]:
    """The hits of a query and its prompt."""
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors in "
            f"{folder} come from {settings['model']} ({settings['model_source']})"
        )
    with usage_errors():
        vector = query_vector(bundle, settings, *query)
        hits = nearest(folder, settings, vector, k)
    return with_texts(hits, record, folder) if record is not None else hits


def query_vector(
    bundle: Bundle, settings: dict[str, Any], query: str, prompt: str | None = None
) -> np.ndarray:
    """float32 `[width]` of unit length; ValueError if the model has no prompt of that name."""
    names = [field.name for field in fields(VectorSpec) if field.name in settings]
    spec = VectorSpec.from_dict({name: settings[name] for name in names})
    # This processor may lack the other precisions, which differ by a rounding only.
    precision = "int8" if settings.get("precision") == "int8" else "float32"
    prompt = query_prompt(bundle, prompt)
    encoder = Encoder(bundle, spec, prompt=prompt, precision=precision, device="cpu")
    return _unit(encoder.encode([query], max_seq_length=settings["max_seq_length"]))[0]


def query_prompt(bundle: Bundle, given: str | None) -> str:
    """The text before a query, as in `encode_query` of sentence-transformers."""
    if given is None and "query" in bundle.prompts:
        return bundle.prompts["query"]
    return bundle.prompt_text(given)


def nearest(folder: str, settings: dict[str, Any], vector: np.ndarray, k: int) -> list[Hit]:
    """The `k` best cosines; of equal ones the first in the input's order.

    Args:
        folder: Output folder of a run.
        settings: The description of its vectors.
        vector: float32 `[width]`, the query's, of unit length.
        k: Number of hits.
    """
    hits: list[Hit] = []
    for path in vector_files(folder, partial=True):
        found = read_sentences(path, settings)
        scores = _unit(found.vectors) @ vector
        for row in np.argsort(-scores, kind="stable")[:k]:
            hit = Hit(float(scores[row]), str(found.ids[row]), f"{path.parent.name}/{path.name}")
            if found.starts is not None and found.stops is not None:
                hit = replace(hit, start=int(found.starts[row]), stop=int(found.stops[row]))
            hits.append(hit)
        hits = sorted(hits, key=lambda hit: -hit.score)[:k]
    return hits


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def with_texts(hits: Sequence[Hit], record: dict[str, Any], folder: str) -> list[Hit]:
    """Adds the documents' texts, by planning and reading their blocks again.

    An output holds no text; the plan is the same every time, so a file's name gives its block.
    If the input has changed or is missing, hits have no texts.
    """
    source, cut = record["input"], record["files"]
    try:
        files = input_files(
            source["patterns"], source["format"], absolute(folder), look_inside=False
        )
        if listing_digest(files) != source["listing"] or are_examples(files):
            return list(hits)
        files = files_to_read(files, source["text_column"], source["limit"])
    except (ValueError, OSError):
        return list(hits)
    ids: dict[int, set[str]] = {}
    for hit in hits:
        found = parse_name(hit.file)
        if found is not None:
            ids.setdefault(found.block, set()).add(hit.id)
    spans = source["span_columns"]
    columns = Columns(
        source["text_column"],
        source["id_column"],
        source["text_b_column"],
        spans and (spans[0], spans[1]),
        source["pair_separator"],
    )
    texts: dict[str, str] = {}
    for spec in plan_blocks(files, cut["block_bytes"], source["read_through"]):
        if spec.number not in ids:
            continue
        for block in document_blocks(spec, columns, cut["part_docs"], cut["block_bytes"], {}):
            for document, text in zip(block.ids.to_pylist(), block.texts, strict=True):
                if document in ids[spec.number]:
                    texts.setdefault(document, text)
    return [replace(hit, text=_shown(texts.get(hit.id), hit)) for hit in hits]


def _shown(text: str | None, hit: Hit) -> str | None:
    return None if text is None else text[hit.start : hit.stop]


def excerpt(text: str, width: int) -> str:
    """A text on one line, cut at a word.

    >>> excerpt("one two\\n three four", 14)
    'one two three…'
    """
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    return line[:width].rsplit(" ", 1)[0][: width - 1] + "…"


def output_problem(folder: str, hits: Sequence[Hit] = ()) -> str | None:
    """Why a folder's output is not complete, or its hits show no text; None if neither."""
    if not os.path.isdir(folder) and not is_remote(folder):
        return None
    record = read_run(folder)
    if record is not None and record["status"] != "done":
        return f"the run in {folder} is not complete (status {record['status']})"
    if not hits:
        return f"the run in {folder} has no vectors"
    if all(hit.text is None for hit in hits):
        return "no texts are shown: the run's input has changed or is missing"
    return None
