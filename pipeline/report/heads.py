"""Describes sparse vectors, multi-vectors and scores by a sample of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_embed.bundle.find import resolve_model
from bert_embed.formats.result_files import Rows, row_batches
from bert_embed.heads.vectors import SparseVectors
from bert_embed.pipeline.report.health import histogram
from bert_embed.pipeline.report.sample import MOST_FILES, TEXT_COLUMNS, some_files
from bert_embed.run_record import RunRecord
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import open_raw
from bert_embed.tokenization.tokenizer import load_tokenizer
from bert_embed.transforms.output_folder import OutputFolder

_MOST_ROWS = 20_000
_BATCH = 256
_MOST_TERMS, _MOST_LABELS, _EXAMPLES = 30, 50, 3
_LETTERS = 80  # of an example


def head_content(folder: OutputFolder, record: RunRecord, texts: bool) -> list[dict[str, Any]]:
    """What the page shows of each head of a run: lengths, terms, distributions, examples."""
    heads: Mapping[str, Any] = record.settings.get("heads", {})
    shown = {"sparse": _sparse, "multi": _multi, "scores": _scores}
    return [
        {"kind": kind} | shown[kind](record, _sampled(folder, record, kind, texts))
        for kind in heads
        if kind in record.numbers.written
    ]


def _sampled(folder: OutputFolder, record: RunRecord, kind: str, texts: bool) -> Iterator[Rows]:
    """The first rows of files, evenly spread over the output."""
    names = some_files(folder.path, kind, MOST_FILES)
    limit = max(1, _MOST_ROWS // max(1, len(names)))
    wanted = ("id", *(TEXT_COLUMNS if texts else ()))
    for name in names:
        with open_raw(folder.path_of(name)) as file:
            yield from row_batches(
                name,
                record.settings,
                kind=kind,
                columns=wanted,
                rows=_BATCH,
                limit=limit,
                file=file,
            )


def _sparse(record: RunRecord, batches: Iterable[Rows]) -> dict[str, Any]:
    entries = record.settings["heads"]["sparse"]["entries"]
    documents, weights = np.zeros(entries, np.int64), np.zeros(entries)
    lengths: list[np.ndarray] = []
    for batch in batches:
        vectors: SparseVectors = batch.vectors
        documents += np.bincount(vectors.indices, minlength=entries)
        weights += np.bincount(vectors.indices, vectors.values, minlength=entries)
        lengths.append(np.diff(vectors.splits))
    most = np.argsort(-weights, kind="stable")[:_MOST_TERMS]
    most = most[weights[most] > 0]
    words = _words(record, most)
    rows = [
        [word, f"{int(documents[index]):,}", f"{weights[index] / documents[index]:.3g}"]
        for word, index in zip(words, most.tolist(), strict=True)
    ]
    return {
        "title": "Sparse vectors",
        "rows": sum(map(len, lengths)),
        "histograms": [["Weights above 0 of a vector", histogram(np.concatenate(lengths))]],
        "table": {"titles": ["largest in sum", "vectors", "mean weight"], "rows": rows},
    }


def _words(record: RunRecord, indices: np.ndarray) -> list[str]:
    """Entries of the model's vocabulary; their numbers where the model is not found."""
    try:
        vocabulary = load_tokenizer(resolve_model(record.options.get("model", "minilm"))).vocab
        return [vocabulary[index] for index in indices.tolist()]
    except (InputError, OSError, IndexError):
        return list(map(str, indices.tolist()))


def _multi(record: RunRecord, batches: Iterable[Rows]) -> dict[str, Any]:
    # The lengths alone: the vectors of 20,000 passages are two gigabytes.
    lengths = np.concatenate([np.diff(batch.vectors.splits) for batch in batches])
    return {
        "title": "Multi-vectors",
        "rows": len(lengths),
        "histograms": [["Tokens that are kept of a document", histogram(lengths)]],
        "table": None,
    }


def _scores(record: RunRecord, batches: Iterable[Rows]) -> dict[str, Any]:
    labels = record.settings["heads"]["scores"]["labels"][:_MOST_LABELS]
    names: list[str] = []
    of_batches: list[np.ndarray] = []
    for batch in batches:
        of_batches.append(batch.vectors)
        held = batch.columns.column_names
        column = next((name for name in TEXT_COLUMNS if name in held), "id")
        names += [str(value)[:_LETTERS] for value in batch.columns[column].to_pylist()]
    scores = np.concatenate(of_batches)
    rows = []
    for number, label in enumerate(labels):
        of_label = scores[:, number]
        first = np.argsort(-of_label, kind="stable")[:_EXAMPLES].tolist()
        examples = " · ".join(f"{names[at]} ({of_label[at]:.3g})" for at in first)
        rows.append([label, f"{of_label.mean():.3g}", examples])
    return {
        "title": "Scores",
        "rows": len(scores),
        "histograms": [[label, histogram(scores[:, at])] for at, label in enumerate(labels[:8])],
        "table": {"titles": ["label", "mean", "highest"], "rows": rows},
    }
