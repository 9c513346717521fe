"""Opens the vectors of runs to export them: which there are, and the newest rows of several."""

import math
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from bert_embed.base.errors import InputError, counted
from bert_embed.models.heads.head import EMBEDDING, PIECES, SCALE
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.commands import TARGETS, ExportOptions
from bert_embed.pipeline.run.output import record_of_run
from bert_embed.results.files import Rows, row_batches
from bert_embed.results.names import output_dtype, stored, stored_width, vectors_of
from bert_embed.results.outputs import (
    NewestRows,
    Output,
    checked_files,
    columns_of_files,
    deleted_rows,
    files_of,
    open_outputs,
    vector_settings,
)
from bert_embed.results.run_record import EarlierRun, RunRecord

# Arrow's types of columns, for JSON lines
_FACTS = {"num_tokens": "int32", "num_tokens_full": "int32", "truncated": "bool"}
_INT8 = {EMBEDDING: "list<item: int8>", SCALE: "float"}


@dataclass(frozen=True)
class ExportSource:
    """The vectors of the texts of runs, of each kind that the target takes."""

    options: ExportOptions
    outputs: list[Output]
    newest: NewestRows  # of the outputs, by the first kind
    records: list[RunRecord]  # of the outputs
    # The number type that other programs get: float32 of bfloat16, which few of them read, and of
    # int8, whose vectors have a scale each; float16 and ubinary as they are
    dtype: str
    kinds: tuple[str, ...]  # of the vectors, dense first
    width: int  # numbers of a dense vector, or of one of several vectors; 0: there are none
    rows: int
    schema: pa.Schema

    @property
    def identity(self) -> dict[str, Any]:
        """What an export continues only if it is the same."""
        return {
            "run": " ".join(record.run for record in self.records),
            "rows": self.rows,
            "kinds": self.kinds,
            "similarity": self.similarity,
        }

    @property
    def continued(self) -> list[EarlierRun]:
        """The runs that these continue and that are not among them: an increment has some."""
        runs = {record.run for record in self.records}
        earlier = (one for of_output in self.newest.continued for one in of_output)
        return list({one.output: one for one in earlier if one.run not in runs}.values())

    def deleted(self) -> Iterator[pa.RecordBatch]:
        """Yields what an increment marks as deleted, as `deleted_rows`, and does not hold itself.

        Of several increments a later one may hold again what an earlier one deletes.
        """
        if not self.continued:
            return
        held = self.row_keys() if len(self.outputs) > 1 else np.empty(0, np.uint64)
        for output in self.outputs:
            for batch in deleted_rows(output):
                is_gone = ~np.isin(_keys(batch), held)
                yield batch.filter(pa.array(is_gone))

    def row_keys(self) -> np.ndarray:
        """uint64 `[rows]`: a hash of the name of each row, which is read without its vector."""
        keys = [np.empty(0, np.uint64)]
        granularity = self.newest.granularity
        for number, output in enumerate(self.outputs):
            for _, batches in columns_of_files(output, granularity, ("id", *PIECES)):
                for columns in batches:
                    is_newest = self.newest.are_newest(number, columns["id"].to_pylist())
                    keys.append(_keys(columns)[is_newest])
        return np.concatenate(keys)

    @property
    def similarity(self) -> str:
        """How dense vectors are compared, one of `SIMILARITIES`."""
        return str(self.outputs[0].settings.get("similarity", "cosine"))

    def vectors(self, rows: Rows) -> dict[str, Any]:
        """The vectors of each kind; of the first one decoded, as `Rows` has them."""
        return {self.kinds[0]: rows.vectors, **rows.others}

    def numbers(self, rows: Rows) -> np.ndarray:
        """float32 or float16 `[rows, width]`, or the packed bits of ubinary, uint8."""
        return stored(rows.vectors, self.dtype).values

    @property
    def numbers_width(self) -> int:
        """How many of `numbers` a vector has."""
        return stored_width(self.dtype, self.width)

    def batches(self) -> Iterator[Rows]:
        """Yields all rows in the input's order."""
        for number in range(len(self.outputs)):
            yield from _rows_of(self.options, self.newest, self.kinds, number)

    def cut(self, most: int) -> Iterator[tuple[int, Iterator[Rows]]]:
        """Yields for each file of at most so many rows how many it has, and these.

        InputError if there are fewer than the runs count.
        """
        batches = self.batches()
        rest: Rows | None = None

        def taken(rows: int) -> Iterator[Rows]:
            nonlocal rest
            while rows:
                batch = rest or next(batches, None)
                if batch is None:
                    raise InputError(
                        f"{self.place} holds fewer rows than its run.json counts; `bert-embed "
                        "verify` lists what is missing"
                    )
                rest = batch.slice(rows) if len(batch) > rows else None
                batch = batch.slice(0, rows)
                rows -= len(batch)
                yield batch

        for first in range(0, self.rows, most):
            rows = min(most, self.rows - first)
            of_file = taken(rows)
            yield rows, of_file
            for _ in of_file:  # of a file that is there: read, not written
                pass

    @property
    def parts(self) -> list[str]:
        """The column that numbers the rows of a document; none if it has one row."""
        return [name for name in PIECES if name in self.schema.names]

    def said(self, is_new: bool) -> str:
        """What an export says of its rows."""
        what = f"{self.options.dim or self.width} numbers"
        if self.kinds != ("dense",):
            what = f"{' and '.join(self.kinds)} vectors"
        return f"{counted(self.rows, 'row')} of {what}" + ("" if is_new else ", nothing to do")

    @property
    def place(self) -> str:
        """The outputs, for messages."""
        return ", ".join(self.options.source)


def _with_int8_last(batch: Rows) -> Rows:
    """The rows with their stored vectors in the place and type that they have in any format."""
    table, width = batch.columns, batch.vectors.shape[1]
    vectors = table[EMBEDDING].cast(pa.list_(pa.int8(), width))
    rest = table.drop_columns([EMBEDDING, SCALE])
    columns = rest.append_column(EMBEDDING, vectors).append_column(SCALE, table[SCALE])
    return replace(batch, columns=columns)


def row_names(columns: pa.RecordBatch | pa.Table) -> list[str]:
    """The id of each document, or `DOCUMENT#NUMBER` of its windows or chunks."""
    ids = map(str, columns["id"].to_pylist())
    part = next((name for name in PIECES if name in columns.schema.names), None)
    if part is None:
        return list(ids)
    return [f"{name}#{number}" for name, number in zip(ids, columns[part].to_pylist(), strict=True)]


def _keys(columns: pa.RecordBatch | pa.Table) -> np.ndarray:
    """uint64 `[rows]`: a hash of the name of each row."""
    return np.array([key_of(name) for name in row_names(columns)], np.uint64)


def key_of(name: str) -> int:
    """The hash of the name of a row, as `ExportSource.row_keys` has it."""
    return xxh3_64_intdigest(name.encode())


def open_source(options: ExportOptions) -> ExportSource:
    """Finds the vectors to export; UsageError if there are none, or no target takes their shape."""
    records = [record_of_run(folder) for folder in options.source]
    kinds = _kinds(options, records[0])
    first = ROW_KINDS[kinds[0]]
    outputs = open_outputs(options.source, first.name)
    settings = outputs[0].settings
    dtype = options.output_dtype or output_dtype(settings)
    shapes = (ROW_KINDS[kind].shape(settings) for kind in kinds)
    shape = next((shape for shape in shapes if math.prod(shape)), [0])  # of the first with a width
    if len(shape) > 1 and options.to != "parquet":
        raise UsageError(
            f"{options.source[0]} holds a stack of {shape[0]} vectors for each row, export takes "
            "one: embed with another --layer_combine, such as mean or concat"
        )
    newest = NewestRows(outputs, first.name)
    rows, schema = _counted(options, newest, kinds, records)
    is_increment = any(record.input.skip_existing for record in records)
    if schema is None and (options.to == "faiss" or not is_increment):
        raise UsageError(f"{', '.join(options.source)} holds no vectors to export")
    return ExportSource(
        options=options,
        outputs=outputs,
        newest=newest,
        records=records,
        dtype="float32" if options.to != "parquet" and dtype in ("bfloat16", "int8") else dtype,
        kinds=kinds,
        width=math.prod(shape),
        rows=rows,
        schema=pa.schema([("id", pa.string())]) if schema is None else schema,
    )


def _kinds(options: ExportOptions, record: RunRecord) -> tuple[str, ...]:
    """The kinds of vectors to export; UsageError if the outputs hold none that the target takes."""
    taken = TARGETS[options.to] or tuple(name for name, kind in ROW_KINDS.items() if kind.is_array)
    settings = vector_settings(options.source[0], record)
    held = vectors_of(settings)
    kinds = tuple(kind for kind in taken if kind in held)
    # Documents of dense vectors without one each: `open_outputs` says what there is instead.
    if "dense" in kinds and "sentence" not in settings["granularity"]:
        kinds = kinds if kinds == ("dense",) else tuple(kind for kind in kinds if kind != "dense")
    if not TARGETS[options.to]:
        kinds = kinds[:1]
    if not kinds:
        raise UsageError(
            f"--to {options.to} takes {' or '.join(taken)} vectors, {options.source[0]} holds "
            f"{' and '.join(held)} ones: embed with --vectors {taken[0]}"
        )
    return kinds


def _counted(
    options: ExportOptions,
    newest: NewestRows,
    kinds: tuple[str, ...],
    records: list[RunRecord],
) -> tuple[int, pa.Schema | None]:
    """How many rows there are, by the records and the ids of outputs that others continue.

    With their columns, of the first rows.
    """
    schemas: dict[str, pa.Schema] = {}
    rows = 0
    for number, record in enumerate(records):
        for batch in islice(_rows_of(options, newest, kinds, number), 1):
            schemas[newest.outputs[number].folder] = batch.columns.schema
        if newest.has_all(number):
            written = record.numbers.written
            places = ROW_KINDS[kinds[0]].places
            rows += sum(written[place].rows for place in places if place in written)
        else:
            rows += sum(int(is_newest.sum()) for _, is_newest in newest.kept(number))
    first = next(iter(schemas), None)
    for folder, schema in schemas.items():
        if first is not None and schema != schemas[first]:
            raise UsageError(
                f"{folder} has the columns {', '.join(schema.names)}, but {first} has "
                f"{', '.join(schemas[first].names)}, or their types differ: export them one by one"
            )
    return rows, schemas[first] if first is not None else None


def _rows_of(
    options: ExportOptions, newest: NewestRows, kinds: tuple[str, ...], number: int
) -> Iterator[Rows]:
    """Yields the newest rows of an output, file by file."""
    output = newest.outputs[number]
    run = output.folder, output.record
    # All kinds of a run have the same parts.
    files = [
        checked_files(*run, files_of(*run, ROW_KINDS[kind].name, partial=False)) for kind in kinds
    ]
    for paths in zip(*files, strict=True):
        of_newest = (newest.of(number, batch) for batch in _joined(output, kinds, paths, options))
        yield from filter(len, of_newest)


def _joined(
    output: Output, kinds: Sequence[str], paths: Sequence[pathlib.Path], options: ExportOptions
) -> Iterator[Rows]:
    """The rows of a part with their vectors of each kind, of which the files are read together.

    For Parquet with all columns, also those of dense int8 vectors that stay as they are stored:
    they would get other scales if they were rounded again.
    """
    types = output.record.input.extra_columns or {}
    columns = None
    if options.to == "parquet":
        types = _FACTS | types
        is_int8 = kinds[0] == "dense" and output_dtype(output.settings) == "int8"
        is_int8 &= options.output_dtype != "float32"
        stored_as = _INT8 if is_int8 else {}
        columns = ("id", *PIECES, "start", "stop", "text_hash", "text", *types, *stored_as)
        types |= stored_as
    first, *others = (
        row_batches(path, output.settings, kind=ROW_KINDS[kind].name, columns=columns, types=types)
        if kind == kinds[0]
        else row_batches(path, output.settings, kind=ROW_KINDS[kind].name, columns=())
        for kind, path in zip(kinds, paths, strict=True)
    )
    rests: list[Rows | None] = [None] * len(others)
    for batch in map(_with_int8_last, first) if EMBEDDING in (columns or ()) else first:
        while len(batch):
            for at, rest in enumerate(rests):
                if rest is None or not len(rest):
                    rests[at] = next(others[at], None)
            read = [rest for rest in rests if rest is not None]
            if len(read) < len(others):
                raise InputError(f"{paths[0]} has more rows than the same part of another kind")
            count = min(map(len, (batch, *read)))
            pieces = [rest.slice(0, count).vectors for rest in read]
            start = batch.slice(0, count)
            yield replace(start, others=dict(zip(kinds[1:], pieces, strict=True)))
            batch, rests = batch.slice(count), [rest.slice(count) for rest in read]
