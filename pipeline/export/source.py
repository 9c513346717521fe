"""Reads the rows of a run one batch after the other, from any place on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from bert_embed.formats.number_types import output_dtype
from bert_embed.formats.output_files import vector_kinds
from bert_embed.formats.result_files import Rows, row_batches, unit_batches
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.options import ExportOptions
from bert_embed.results import granular_settings, read_run, vector_files
from bert_embed.run_record import RunRecord

_SEED = 20


class Position(NamedTuple):
    """A place between two rows.

    Attributes:
        file: Name of the file that holds the next row, or of the one that ended.
        row: How many of its rows are before the place.
    """

    file: str = ""
    row: int = 0


START = Position()


@dataclass(frozen=True)
class Source:
    """The vectors of one granularity of a run.

    Attributes:
        options: What is asked for.
        record: The run's record.
        settings: What the run says of its vectors.
        dtype: The number type they are stored as.
        width: Numbers of a vector.
        rows: How many rows there are.
        schema: Their columns.
        files: Names of the files that count, as an unfinished run may write more; None for all.
    """

    options: ExportOptions
    record: RunRecord
    settings: dict[str, Any]
    dtype: str
    width: int
    rows: int
    schema: pa.Schema
    files: frozenset[str] | None

    @property
    def wanted_rows(self) -> int:
        """How many rows are exported."""
        return min(self.rows, self.options.sample or self.rows)

    @property
    def identity(self) -> dict[str, Any]:
        """What an export continues only if it is the same."""
        names = None if self.files is None else " ".join(sorted(self.files)).encode()
        return {
            "run": self.record.run,
            "granularity": self.options.granularity,
            "rows": self.rows,
            "files": names and xxh3_64_hexdigest(names),
        }

    def check_added(self, *columns: str) -> None:
        """Refuses columns that the target adds and the output has."""
        for name in columns:
            if name in self.schema.names:
                raise UsageError(
                    f"--to {self.options.target} writes a column {name}, which the output has from "
                    "--extra_columns: choose another target, or give the column another name in "
                    "the input"
                )

    def batches(self, start: Position = START) -> Iterator[tuple[Rows, Position]]:
        """Yields rows in the input's order, each batch with the position after it.

        The batches of a file are the same wherever the reading starts, but for the first one.
        """
        for file, batches in _files(self.options, self.record, self.settings, start.file):
            if self.files is not None and file not in self.files:
                continue
            row = 0
            for batch in batches:
                skipped = min(max(start.row - row, 0), len(batch)) if file == start.file else 0
                row += len(batch)
                if skipped < len(batch):
                    yield batch.slice(skipped), Position(file, row)

    def sampled(self, size: int) -> Iterator[Rows]:
        """Yields at most `size` rows that are spread evenly over all, the same every time."""
        chosen = spread_rows(self.rows, size)
        first = 0
        for batch, _ in self.batches():
            inside = np.searchsorted(chosen, [first, first + len(batch)])
            rows = chosen[inside[0] : inside[1]] - first
            if len(rows):
                yield batch if len(rows) == len(batch) else batch.take(rows)
            first += len(batch)


def open_source(options: ExportOptions) -> Source:
    """Finds the vectors that are to be exported.

    Raises:
        UsageError: The folder is not the output of a run, or has no such vectors, or their shape
            is one that no target takes.
        InputError: The run is not complete, or a file is damaged.
    """
    folder = options.source
    record = read_run(folder)
    if record is None:
        raise UsageError(f"{folder} is not the output of a run: it holds no run.json")
    settings = granular_settings(folder, options.granularity)
    if not record.is_done and not options.partial:
        raise UsageError(
            f"{folder}: the run is not complete (status {record.status}); run its command "
            "again, or export what is finished with --partial"
        )
    shape = settings["shape" if options.granularity == "sentence" else "token_shape"]
    if len(shape) > 1:
        raise UsageError(
            f"{folder} holds a stack of {shape[0]} vectors for each row, export takes one: embed "
            "with another --layer_combine, such as mean or concat"
        )
    rows, schema, files = _extent(options, record, settings)
    if schema is None:
        raise UsageError(f"{folder} holds no vectors to export")
    return Source(
        options=options,
        record=record,
        settings=settings,
        dtype=output_dtype(settings),
        width=math.prod(shape),
        rows=rows,
        schema=schema,
        files=files,
    )


def _extent(
    options: ExportOptions, record: RunRecord, settings: dict[str, Any]
) -> tuple[int, pa.Schema | None, frozenset[str] | None]:
    """How many rows there are, their columns, and the names of their files, None for all.

    The record of a complete run counts the vectors of texts; others are read to be counted.
    """
    done = record.is_done
    counted = done and options.granularity == "sentence"
    rows, schema, names = 0, None, set()
    for name, batches in _files(options, record, settings, ""):
        names.add(name)
        for batch in batches:
            schema = schema or batch.columns.schema
            rows += len(batch)
            if counted:
                written = record.numbers.written
                kinds = [kind for kind in vector_kinds("sentence") if kind in written]
                return sum(written[kind].rows for kind in kinds), schema, None
    return rows, schema, None if done else frozenset(names)


def _files(
    options: ExportOptions, record: RunRecord, settings: dict[str, Any], first: str
) -> Iterator[tuple[str, Iterator[Rows]]]:
    """Yields the names of the files from `first` on, and their rows."""
    extra = record.input.extra_columns or {}
    for path in vector_files(options.source, options.granularity, options.partial, first):
        name = f"{path.parent.name}/{path.name}"
        if options.granularity == "sentence":
            yield name, row_batches(path, settings, columns=None, types=extra)
        else:
            yield name, unit_batches(path, options.granularity, settings)


def spread_rows(total: int, size: int) -> np.ndarray:
    """Returns the numbers of at most `size` of `total` rows, one of each of as many equal ranges.

    They are the same every time, rising, and fall on no regular distance.

    >>> spread_rows(3, 5).tolist(), len(spread_rows(1000, 7)), spread_rows(7, 7).tolist()
    ([0, 1, 2], 7, [0, 1, 2, 3, 4, 5, 6])
    """
    size = min(size, total)
    if size == 0:
        return np.empty(0, np.int64)
    edges = np.arange(size + 1, dtype=np.int64) * total // size
    inside = np.random.default_rng(_SEED).random(size)
    return edges[:-1] + (inside * np.diff(edges)).astype(np.int64)
