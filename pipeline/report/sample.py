"""Takes a sample of the vectors of runs, the same every time, spread over their blocks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bert_embed.formats.kinds import KINDS
from bert_embed.formats.output_files import holds_vectors, kinds_of
from bert_embed.formats.result_files import Rows, row_batches
from bert_embed.results import NewestRows, Output
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
class Run:
    """A finished run that a report is about."""

    folder: OutputFolder
    record: RunRecord

    @property
    def place(self) -> str:
        """The folder's path."""
        return self.folder.path


@dataclass(frozen=True)
class Sample:
    """Documents of runs, or their windows or chunks, with their vectors."""

    vectors: np.ndarray  # float32 `[rows, width]`
    ids: list[Any]  # the documents' ids
    # outputs, files: Which output holds each row, and its file there
    outputs: list[int]
    files: list[str]
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


def take_sample(runs: Sequence[Run]) -> Sample | None:
    """The first rows of files, evenly spread over outputs; None: no vectors of texts.

    Of documents in several outputs that continue each other only the newest version is taken.
    """
    settings = runs[0].record.vectors
    if settings is None or "sentence" not in kinds_of(settings):
        return None
    written = [_written(run.record) for run in runs]
    total = sum(rows for _, rows in written)
    if not any(kind for kind, _ in written):
        return None
    most = min(MOST_ROWS, _MOST_BYTES // (4 * math.prod(settings["shape"])))
    newest = NewestRows([Output(run.place, settings, run.record) for run in runs], "sentence")
    names: list[tuple[int, str]] = []
    limits: list[int] = []
    extra: dict[str, str] = {}
    for number, (run, (kind, rows)) in enumerate(zip(runs, written, strict=True)):
        chosen = some_files(run.place, kind, max(MOST_FILES // len(runs), 1)) if kind else []
        share = most * rows // max(total, 1)  # of the sample
        limit = rows if total <= most else share // max(len(chosen), 1)
        names += [(number, name) for name in chosen]
        limits += [max(limit, 1)] * len(chosen)
        extra |= run.record.input.extra_columns or {}

    def read(item: tuple[tuple[int, str], int]) -> tuple[list[np.ndarray], dict[str, list[Any]]]:
        (number, name), limit = item
        return _read(runs[number], name, limit, partial(newest.of, number))

    parts = list(in_parallel(read, zip(names, limits, strict=True)))
    return _joined(names, parts, extra, total if total > most else None)


def _written(record: RunRecord) -> tuple[str, int]:
    """The kind of a run's vectors of texts, "" if it wrote none, and their rows."""
    written = record.numbers.written
    kind = next((kind for kind in KINDS["sentence"].places if kind in written), "")
    return kind, written[kind].rows if kind else 0


def some_files(place: str, kind: str, most: int) -> list[str]:
    """The names of up to `most` files of one kind of vectors, evenly spread over an output."""
    names = [f"{kind}/{name}" for name in names_in(join(place, kind))]
    names = list(filter(holds_vectors, names))
    return [names[at] for at in spread(len(names), most)]


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, evenly spread.

    >>> spread(3, 10), spread(10, 3)
    ([0, 1, 2], [0, 3, 6])
    """
    chosen = min(count, most)
    return [at * count // chosen for at in range(chosen)]


def _read(
    run: Run, name: str, rows: int, newest: Callable[[Rows], Rows]
) -> tuple[list[np.ndarray], dict[str, list[Any]]]:
    """Vectors and columns of the first rows of a file; of whole texts few are in memory."""
    vectors: list[np.ndarray] = []
    columns: dict[str, list[Any]] = {}
    extra = run.record.input.extra_columns or {}
    wanted = (*_PLACES, *TEXT_COLUMNS, *extra)
    with open_raw(join(run.place, name)) as file:
        for read in row_batches(
            *(name, run.record.settings),
            columns=wanted,
            rows=_BATCH,
            limit=rows,
            types=extra,
            file=file,
        ):
            batch = newest(read)
            vectors.append(batch.vectors)
            for column in batch.columns.column_names:
                values = batch.columns[column].to_pylist()
                columns.setdefault(column, []).extend(map(_cut, values))
    return vectors, columns


def _cut(value: Any) -> Any:
    return value[:_TEXT_LETTERS] if isinstance(value, str) else value


def _joined(
    names: list[tuple[int, str]],
    parts: list[tuple[list[np.ndarray], dict[str, list[Any]]]],
    extra: Mapping[str, str],
    total: int | None,
) -> Sample:
    """The rows of all files; `total` is None if these are all rows."""
    columns: dict[str, list[Any]] = {}
    counts = [len(part.get("id", ())) for _, part in parts]
    present = dict.fromkeys(column for _, part in parts for column in part)
    for column in present:
        for count, (_, part) in zip(counts, parts, strict=True):
            columns.setdefault(column, []).extend(part.get(column, [None] * count))
    vectors = [batch for batches, _ in parts for batch in batches]
    of_rows = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    return Sample(
        vectors=np.concatenate(vectors or [np.empty((0, 1), np.float32)]),
        ids=columns.get("id", []),
        outputs=[number for number, _ in of_rows],
        files=[name for _, name in of_rows],
        starts=columns.get("start"),
        stops=columns.get("stop"),
        texts=next((columns[name] for name in TEXT_COLUMNS if name in columns), None),
        full_lengths=columns.get("num_tokens_full"),
        extra={name: columns[name] for name in extra if name in columns},
        total=len(of_rows) if total is None else total,
    )
