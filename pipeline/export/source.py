"""Reads the rows of runs one batch after the other."""

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
from bert_embed.results import NewestRows, Output, open_outputs, vector_files
from bert_embed.run_record import RunRecord
from bert_embed.storage.errors import InputError


@dataclass(frozen=True)
class Source:
    """The vectors of one granularity of runs."""

    options: ExportOptions
    outputs: list[Output]
    records: list[RunRecord]  # of the outputs
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
            "run": " ".join(record.run for record in self.records),
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
        for file, batches in _files(self.options, self.outputs):
            if self.files is None or file in self.files:
                yield from batches

    @property
    def place(self) -> str:
        """The outputs, for messages."""
        return ", ".join(self.options.source)


class Cutter:
    """Cuts the batches of a source into runs of rows."""

    def __init__(self, source: Source) -> None:
        self._place, self._batches = source.place, source.batches()
        self._rest: Rows | None = None

    def take(self, rows: int) -> Iterator[Rows]:
        """Yields exactly the next `rows` rows; InputError if there are fewer."""
        while rows:
            batch = self._rest or next(self._batches, None)
            self._rest = None
            if batch is None:
                raise InputError(
                    f"{self._place} holds fewer rows than its run.json counts; `bert-embed "
                    "verify` lists what is missing"
                )
            if len(batch) > rows:
                self._rest, batch = batch.slice(rows), batch.slice(0, rows)
            rows -= len(batch)
            yield batch


def open_source(options: ExportOptions) -> Source:
    """Finds the vectors to export; UsageError if there are none, or no target takes their shape."""
    advice = None if options.partial else ", or export what is finished with --partial"
    records = [record_of_run(folder, advice) for folder in options.source]
    outputs = open_outputs(options.source, options.granularity)
    settings = outputs[0].settings
    dtype = output_dtype(settings)
    shape = settings["shape" if options.granularity == "sentence" else "token_shape"]
    if len(shape) > 1:
        raise UsageError(
            f"{options.source[0]} holds a stack of {shape[0]} vectors for each row, export takes "
            "one: embed with another --layer_combine, such as mean or concat"
        )
    rows, schema, names = _counted(options, outputs, records)
    if schema is None:
        raise UsageError(f"{', '.join(options.source)} holds no vectors to export")
    return Source(
        options=options,
        outputs=outputs,
        records=records,
        dtype="float32" if dtype in ("bfloat16", "int8") else dtype,
        width=math.prod(shape),
        rows=rows,
        schema=schema,
        files=None if all(record.is_done for record in records) else names,
    )


def _counted(
    options: ExportOptions, outputs: list[Output], records: list[RunRecord]
) -> tuple[int, pa.Schema | None, frozenset[str]]:
    """How many rows there are, their columns, and the names of the files that were read."""
    newest = NewestRows(outputs, options.granularity)
    schemas: dict[str, pa.Schema] = {}
    rows, names = 0, set()
    # By the record, and the ids of an output that others continue.
    is_counted = all(record.is_done for record in records) and options.granularity == "sentence"
    for number, (output, record) in enumerate(zip(outputs, records, strict=True)):
        for name, batches in _files(options, outputs, number):
            names.add(name)
            for batch in islice(batches, 1 if is_counted else None):
                schemas.setdefault(output.folder, batch.columns.schema)
                rows += 0 if is_counted else len(batch)
            if is_counted and output.folder in schemas:
                break
        if is_counted and newest.has_all(number):
            written = record.numbers.written
            rows += sum(written[kind].rows for kind in vector_kinds("sentence") if kind in written)
        elif is_counted:
            rows += sum(int(is_newest.sum()) for _, is_newest in newest.kept(number))
    first = next(iter(schemas), None)
    for folder, schema in schemas.items():
        if first is not None and schema != schemas[first]:
            raise UsageError(
                f"{folder} has the columns {', '.join(schema.names)}, but {first} has "
                f"{', '.join(schemas[first].names)}, or their types differ: export them one by one"
            )
    return rows, schemas[first] if first is not None else None, frozenset(names)


def _files(
    options: ExportOptions, outputs: list[Output], only: int | None = None
) -> Iterator[tuple[str, Iterator[Rows]]]:
    """Yields the names of the files, and their newest rows; of all outputs, or of one."""
    newest = NewestRows(outputs, options.granularity)
    for number, output in enumerate(outputs):
        if only not in (None, number):
            continue
        extra = (output.record.input.extra_columns if output.record else None) or {}
        for path in vector_files(output.folder, options.granularity, options.partial):
            name = f"{path.parent.name}/{path.name}"
            if options.granularity == "sentence":
                batches = row_batches(path, output.settings, columns=None, types=extra)
            else:
                batches = unit_batches(path, options.granularity, output.settings)
            of_newest = (newest.of(number, batch) for batch in batches)
            is_one = len(outputs) == 1
            yield name if is_one else f"{number}/{name}", filter(len, of_newest)
