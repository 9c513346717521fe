"""Takes a sample of a run's vectors, the same every time, spread over its blocks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bert_embed.formats.first_rows import FirstRows, first_rows
from bert_embed.formats.output_files import VECTOR_ENDINGS, parse_name, vector_kinds
from bert_embed.run_record import RunRecord
from bert_embed.storage.files import join, names_in, open_raw
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder

MOST_ROWS = 20_000
_MOST_BYTES = 64 << 20  # of vectors in memory: wide ones give fewer rows
_MOST_FILES = 128
_TEXT_LETTERS = 500  # of a text that are kept: enough for its most frequent words
_TEXTS = ("text", "content")  # the column of texts, and that of Beam's RAG tables
_PLACES = ("id", "start", "stop", "num_tokens_full")


@dataclass(frozen=True)
class Sample:
    """Documents of a run, or their windows or chunks, with their vectors.

    Attributes:
        vectors: float32 `[rows, width]`.
        ids: The documents' ids.
        files: The name of the file that holds each row, relative to the output.
        starts, stops: The code points of windows and chunks; None for whole documents.
        texts: The beginning of each text; None where the output holds none.
        full_lengths: Tokens of each document if nothing had been cut; None for pieces.
        extra: The extra columns, by name.
        total: Rows in the output, sampled or not.
    """

    vectors: np.ndarray
    ids: list[Any]
    files: list[str]
    starts: list[int] | None = None
    stops: list[int] | None = None
    texts: list[str | None] | None = None
    full_lengths: list[int] | None = None
    extra: dict[str, list[Any]] = field(default_factory=dict)
    total: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def take_sample(folder: OutputFolder, record: RunRecord) -> Sample | None:
    """Reads the first rows of files that are evenly spread over a run's output.

    An output of at most `MOST_ROWS` rows in few files is read whole.

    Returns:
        The sample; None where the run wrote no vectors of texts.

    Raises:
        InputError: A file is damaged.
        OSError: A file cannot be read.
    """
    settings = record.vectors
    if settings is None or "sentence" not in settings["granularity"]:
        return None
    written = record.numbers.written
    kind = next((kind for kind in vector_kinds("sentence") if kind in written), None)
    if kind is None:
        return None
    total = written[kind].rows
    names = [f"{kind}/{name}" for name in names_in(join(folder.path, kind))]
    names = [name for name in names if _holds_vectors(name)]
    names = [names[at] for at in spread(len(names), _MOST_FILES)]
    most = min(MOST_ROWS, _MOST_BYTES // (4 * math.prod(settings["shape"])))
    rows = total if total <= most else max(most // max(len(names), 1), 1)
    extra = list(record.input.extra_columns or ())
    read = partial(_read, folder, settings, max(rows, 1), (*_PLACES, *_TEXTS, *extra))
    return _joined(names, list(in_parallel(read, names)), extra, total)


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, evenly spread.

    >>> spread(3, 10), spread(10, 3)
    ([0, 1, 2], [0, 3, 6])
    """
    chosen = min(count, most)
    return [at * count // chosen for at in range(chosen)]


def _holds_vectors(name: str) -> bool:
    parsed = parse_name(name)
    return parsed is not None and parsed.ending in VECTOR_ENDINGS


def _read(
    folder: OutputFolder,
    settings: Mapping[str, Any],
    rows: int,
    columns: tuple[str, ...],
    name: str,
) -> FirstRows:
    with open_raw(folder.path_of(name)) as file:
        return first_rows(file, name, settings, rows, columns, _TEXT_LETTERS)


def _joined(names: list[str], parts: list[FirstRows], extra: list[str], total: int) -> Sample:
    columns: dict[str, list[Any]] = {}
    for part in parts:
        for name, values in part.columns.items():
            columns.setdefault(name, []).extend(values)
    files = [name for name, part in zip(names, parts, strict=True) for _ in part.vectors]
    texts = next((columns[name] for name in _TEXTS if name in columns), None)
    return Sample(
        vectors=np.concatenate([part.vectors for part in parts] or [np.empty((0, 1), "f4")]),
        ids=columns.get("id", []),
        files=files,
        starts=columns.get("start"),
        stops=columns.get("stop"),
        texts=texts,
        full_lengths=columns.get("num_tokens_full"),
        extra={name: columns[name] for name in extra if name in columns},
        total=total,
    )
