"""Takes a sample of a run's vectors, the same every time, spread over its blocks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bert_embed.formats.output_files import holds_vectors, kinds_of, vector_kinds
from bert_embed.formats.result_files import row_batches
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import join, names_in, open_raw
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder

MOST_ROWS = 20_000
_MOST_BYTES = 64 << 20  # of vectors in memory: wide ones give fewer rows
MOST_FILES = 128
_BATCH = 256  # rows that are read at a time: their whole texts are in memory until they are cut
_TEXT_LETTERS = 500  # of a text that are kept: enough for its most frequent words
TEXT_COLUMNS = ("text", "content")  # the column of texts, and that of Beam's RAG tables
_PLACES = ("id", "start", "stop", "num_tokens_full")


@dataclass(frozen=True)
class Sample:
    """Documents of a run, or their windows or chunks, with their vectors."""

    vectors: np.ndarray  # float32 `[rows, width]`
    ids: list[Any]  # the documents' ids
    files: list[str]  # the name of the file that holds each row, relative to the output
    # starts, stops: The code points of windows and chunks; None for whole documents
    starts: list[int] | None = None
    stops: list[int] | None = None
    # The beginning of each text; None where the output holds none
    texts: list[str | None] | None = None
    # Tokens of each document if nothing had been cut; None for pieces
    full_lengths: list[int] | None = None
    extra: dict[str, list[Any]] = field(default_factory=dict)  # the extra columns, by name
    total: int = 0  # rows in the output, sampled or not

    def __len__(self) -> int:
        return len(self.ids)


def take_sample(folder: OutputFolder, record: RunRecord) -> Sample | None:
    """The first rows of files, evenly spread over a run's output; None: no vectors of texts."""
    settings = record.vectors
    if settings is None or "sentence" not in kinds_of(settings):
        return None
    written = record.numbers.written
    kind = next((kind for kind in vector_kinds("sentence") if kind in written), None)
    if kind is None:
        return None
    total = written[kind].rows
    names = [f"{kind}/{name}" for name in names_in(join(folder.path, kind))]
    names = [name for name in names if holds_vectors(name)]
    names = [names[at] for at in spread(len(names), MOST_FILES)]
    most = min(MOST_ROWS, _MOST_BYTES // (4 * math.prod(settings["shape"])))
    rows = total if total <= most else max(most // max(len(names), 1), 1)
    extra = record.input.extra_columns or {}
    read = partial(_read, folder, settings, max(rows, 1), extra)
    return _joined(names, list(in_parallel(read, names)), extra, total)


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, evenly spread.

    >>> spread(3, 10), spread(10, 3)
    ([0, 1, 2], [0, 3, 6])
    """
    chosen = min(count, most)
    return [at * count // chosen for at in range(chosen)]


def _read(
    folder: OutputFolder,
    settings: Mapping[str, Any],
    rows: int,
    extra: Mapping[str, str],
    name: str,
) -> tuple[list[np.ndarray], dict[str, list[Any]]]:
    """Vectors and columns of the first rows of a file; of whole texts few are in memory."""
    vectors: list[np.ndarray] = []
    columns: dict[str, list[Any]] = {}
    wanted = (*_PLACES, *TEXT_COLUMNS, *extra)
    with open_raw(folder.path_of(name)) as file:
        for batch in row_batches(
            name, settings, columns=wanted, rows=_BATCH, limit=rows, types=extra, file=file
        ):
            vectors.append(batch.vectors)
            for column in batch.columns.column_names:
                values = batch.columns[column].to_pylist()
                columns.setdefault(column, []).extend(map(_cut, values))
    return vectors, columns


def _cut(value: Any) -> Any:
    return value[:_TEXT_LETTERS] if isinstance(value, str) else value


def _joined(
    names: list[str],
    parts: list[tuple[list[np.ndarray], dict[str, list[Any]]]],
    extra: Mapping[str, str],
    total: int,
) -> Sample:
    columns: dict[str, list[Any]] = {}
    for _, part in parts:
        for column, values in part.items():
            columns.setdefault(column, []).extend(values)
    vectors = [batch for batches, _ in parts for batch in batches]
    return Sample(
        vectors=np.concatenate(vectors or [np.empty((0, 1), np.float32)]),
        ids=columns.get("id", []),
        files=[
            name for name, (_, part) in zip(names, parts, strict=True) for _ in part.get("id", ())
        ],
        starts=columns.get("start"),
        stops=columns.get("stop"),
        texts=next((columns[name] for name in TEXT_COLUMNS if name in columns), None),
        full_lengths=columns.get("num_tokens_full"),
        extra={name: columns[name] for name in extra if name in columns},
        total=total,
    )
