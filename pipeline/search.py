"""Search: a query and a run's output in, the nearest documents out."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bert.bundle import Bundle
from bert.encoder import Encoder
from bert.resolve import resolve_model
from bert.result_files import read_sentences
from bert.results import granular_settings, read_run, vector_files
from bert.vector_spec import VectorSpec
from pipeline.example_input import are_examples
from pipeline.options import UsageError
from transforms.blocks import files_to_read, input_files, listing_digest, plan_blocks
from transforms.files import absolute, is_remote
from transforms.sources import document_blocks
from transforms.sources.columns import Columns


@dataclass(frozen=True)
class Hit:
    """A document, or a window of one where windows were kept, that is near the query.

    Attributes:
        score: Cosine of its vector and the query's.
        id: The document's id.
        file: Name of the file that holds its vector.
        text: The document or the window of it, None where the input is not as it was.
        start: Code point of the document where the window begins, None for a whole document.
        stop: Code point after its last, likewise.
    """

    score: float
    id: str
    file: str
    text: str | None = None
    start: int | None = None
    stop: int | None = None

    @property
    def place(self) -> str:
        """The id, of a window with its code points.

        >>> Hit(0.5, "a", "f").place, Hit(0.5, "a", "f", None, 120, 240).place
        ('a', 'a 120:240')
        """
        return self.id if self.start is None else f"{self.id} {self.start}:{self.stop}"


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
        k: Number of documents wanted.
        model: Where the model is now; None for where it was.
        prompt: What stands before the query, or `name:` and one of the model's prompts; None is
            the model's prompt called "query", else its default one.
        allow_untrusted: Whether the model's SavedModel may hold any operation.

    Raises:
        UsageError: No output, none of whole texts, or another model than the one that made the
            vectors.
    """
    try:
        settings, record = granular_settings(folder, "sentence"), read_run(folder)
        place = model or (record or {}).get("model", {}).get("name") or "minilm"
        bundle = resolve_model(place, allow_untrusted)
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        return _found(folder, settings, record, bundle, (query, prompt), k)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"{folder}/run.json is not the record of a run: {error!r}") from error


def _found(
    folder: str,
    settings: dict[str, Any],
    record: dict[str, Any] | None,
    bundle: Bundle,
    asked: tuple[str, str | None],
    k: int,
) -> list[Hit]:
    """The hits of `asked`, a query and its prompt."""
    if bundle.fingerprint != settings["model"]:
        raise UsageError(
            f"--model {bundle.path} has the fingerprint {bundle.fingerprint}, but the vectors in "
            f"{folder} were made by {settings['model']} ({settings['model_source']})"
        )
    try:
        vector = query_vector(bundle, settings, *asked)
        hits = nearest(folder, settings, vector, k)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return with_texts(hits, record, folder) if record is not None else hits


def query_vector(
    bundle: Bundle, settings: dict[str, Any], query: str, prompt: str | None = None
) -> np.ndarray:
    """float32 `[width]` of unit length; ValueError if the model has no prompt of that name."""
    names = [field.name for field in fields(VectorSpec) if field.name in settings]
    spec = VectorSpec.from_dict({name: settings[name] for name in names})
    # The other precisions need a processor that may not be this one, and differ by a rounding.
    precision = "int8" if settings.get("precision") == "int8" else "float32"
    prompt = query_prompt(bundle, prompt)
    encoder = Encoder(bundle, spec, prompt=prompt, precision=precision, device="cpu")
    return _unit(encoder.encode([query], max_seq_length=settings["max_seq_length"]))[0]


def query_prompt(bundle: Bundle, asked: str | None) -> str:
    """What stands before a query, as `encode_query` of sentence-transformers has it."""
    if asked is None and "query" in bundle.prompts:
        return bundle.prompts["query"]
    return bundle.prompt_text(asked)


def nearest(folder: str, settings: dict[str, Any], vector: np.ndarray, k: int) -> list[Hit]:
    """The `k` best cosines; of equal ones the first in the input's order.

    Args:
        folder: Output folder of a run.
        settings: What it says of its vectors.
        vector: float32 `[width]`, the query's, of unit length.
        k: Number of hits wanted.
    """
    hits: list[Hit] = []
    for path in vector_files(folder):
        found = read_sentences(path, settings)
        scores = _unit(found.vectors) @ vector
        for row in np.argsort(-scores, kind="stable")[:k]:
            hit = Hit(float(scores[row]), found.ids[row], path.name)
            if found.starts is not None and found.stops is not None:
                hit = replace(hit, start=int(found.starts[row]), stop=int(found.stops[row]))
            hits.append(hit)
        hits = sorted(hits, key=lambda hit: -hit.score)[:k]
    return hits


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def with_texts(hits: Sequence[Hit], record: dict[str, Any], folder: str) -> list[Hit]:
    """Adds the documents' texts, by planning and reading their blocks once more.

    An output holds no text; the plan is the same every time, so a file's name tells its block.
    An input that is gone or has changed gives hits without texts.
    """
    asked, cut = record["input"], record["files"]
    try:
        files = input_files(asked["patterns"], asked["format"], absolute(folder))
        if listing_digest(files) != asked["listing"] or are_examples(files):
            return list(hits)
        files = files_to_read(files, asked["text_column"], asked["limit"])
    except (ValueError, OSError):
        return list(hits)
    wanted = {int(hit.file.split("-")[1]): set[str]() for hit in hits}
    for hit in hits:
        wanted[int(hit.file.split("-")[1])].add(hit.id)
    spans = asked["span_columns"]
    columns = Columns(
        asked["text_column"],
        asked["id_column"],
        asked["text_b_column"],
        spans and (spans[0], spans[1]),
        asked["pair_separator"],
    )
    texts: dict[str, str] = {}
    for spec in plan_blocks(files, cut["block_bytes"], asked["read_through"]):
        if spec.number not in wanted:
            continue
        for block in document_blocks(spec, columns, cut["part_docs"], cut["block_bytes"], {}):
            for document, text in zip(block.ids.to_pylist(), block.texts, strict=True):
                if document in wanted[spec.number]:
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
        return "no texts are shown, the run's input has changed since or is gone"
    return None
