"""Reads the rows of a run one batch after the other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from bert_embed.formats.number_types import output_dtype, stored, stored_width
from bert_embed.formats.output_files import vector_kinds
from bert_embed.formats.result_files import Rows, row_batches, unit_batches
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.arguments import ExportOptions
from bert_embed.pipeline.outputs.places import record_of_run
from bert_embed.results import granular_settings, vector_files
from bert_embed.run_record import RunRecord
from bert_embed.storage.errors import InputError


@dataclass(frozen=True)
class Source:
    """The vectors of one granularity of a run."""

    options: ExportOptions
    record: RunRecord
    settings: dict[str, Any]  # what the run says of its vectors
    # The number type that other programs get: float32 of bfloat16, which few of them read, and of
    # int8, whose vectors have a scale each; float16 and ubinary as they are
    dtype: str
    width: int  # numbers of a vector
    rows: int
    schema: pa.Schema
    files: frozenset[str] | None  # those that count of an unfinished run; None for all

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

    def numbers(self, rows: Rows) -> np.ndarray:
        """float32 or float16 `[rows, width]`, or the packed bits of ubinary, uint8."""
        return stored(rows.vectors, self.dtype).values

    @property
    def numbers_width(self) -> int:
        """How many of `numbers` a vector has."""
        return stored_width(self.dtype, self.width)

    def batches(self) -> Iterator[Rows]:
        """Yields all rows in the input's order."""
        for file, batches in _files(self.options, self.record, self.settings):
            if self.files is None or file in self.files:
                yield from batches


class Cutter:
    """Cuts the batches of a source into runs of rows."""

    def __init__(self, source: Source) -> None:
        self._folder, self._batches = source.options.source, source.batches()
        self._rest: Rows | None = None

    def take(self, rows: int) -> Iterator[Rows]:
        """Yields exactly the next `rows` rows; InputError if there are fewer."""
        while rows:
            batch = self._rest or next(self._batches, None)
            self._rest = None
            if batch is None:
                raise InputError(
                    f"{self._folder} holds fewer rows than its run.json counts; `bert-embed "
                    "verify` lists what is missing"
                )
            if len(batch) > rows:
                self._rest, batch = batch.slice(rows), batch.slice(0, rows)
            rows -= len(batch)
            yield batch


def open_source(options: ExportOptions) -> Source:
    """Finds the vectors to export; UsageError if there are none, or no target takes their shape."""
    folder = options.source
    advice = None if options.partial else ", or export what is finished with --partial"
    record = record_of_run(folder, advice)
    settings = granular_settings(folder, options.granularity)
    dtype = output_dtype(settings)
    shape = settings["shape" if options.granularity == "sentence" else "token_shape"]
    if len(shape) > 1:
        raise UsageError(
            f"{folder} holds a stack of {shape[0]} vectors for each row, export takes one: embed "
            "with another --layer_combine, such as mean or concat"
        )
    is_counted = record.is_done and options.granularity == "sentence"  # by the record
    rows, schema, names = 0, None, set()
    for name, batches in _files(options, record, settings):
        names.add(name)
        for batch in islice(batches, 1 if is_counted else None):
            schema = schema or batch.columns.schema
            rows += len(batch)
        if is_counted and schema is not None:
            written = record.numbers.written
            rows = sum(written[kind].rows for kind in vector_kinds("sentence") if kind in written)
            break
    if schema is None:
        raise UsageError(f"{folder} holds no vectors to export")
    return Source(
        options=options,
        record=record,
        settings=settings,
        dtype="float32" if dtype in ("bfloat16", "int8") else dtype,
        width=math.prod(shape),
        rows=rows,
        schema=schema,
        files=None if record.is_done else frozenset(names),
    )


def _files(
    options: ExportOptions, record: RunRecord, settings: dict[str, Any]
) -> Iterator[tuple[str, Iterator[Rows]]]:
    """Yields the names of the files, and their rows."""
    extra = record.input.extra_columns or {}
    for path in vector_files(options.source, options.granularity, options.partial):
        name = f"{path.parent.name}/{path.name}"
        if options.granularity == "sentence":
            yield name, row_batches(path, settings, columns=None, types=extra)
        else:
            yield name, unit_batches(path, options.granularity, settings)
