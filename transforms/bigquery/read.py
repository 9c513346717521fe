"""Reads a BigQuery table as blocks of documents, the same blocks every time.

The rows of a table have no order. A hash of its id decides the block of each row, and within a
block rows are sorted by id. This is the only shuffle of texts in this program; they are shuffled
once more where documents are compared with earlier outputs.
"""

import datetime
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import orjson
import pyarrow as pa
import xxhash

from bert_embed.transforms.bigquery.client import PATIENCE, TableName, read_client, translate_errors
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.documents import BadRecord, Record, documents_of, record_of
from bert_embed.transforms.read.reader import document_block
from bert_embed.transforms.read.steps import read_unfinished
from bert_embed.transforms.records.block_coder import passed_as_block
from bert_embed.transforms.records.documents import DocumentBlock
from bert_embed.transforms.records.part import Part
from bert_embed.transforms.records.rejected import BadRecordError
from bert_embed.transforms.records.skip import without_skipped
from bert_embed.transforms.records.spec import BlockSpec, PlannedWork
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

_MOST_ROWS, _MOST_BYTES = 1 << 17, 64 << 20  # distributed to the blocks at a time
_STREAM_BYTES = 64 << 20  # of the table for each requested stream
_MOST_STREAMS = 1000  # that the service gives
_SKIPPED = b"skipped:"  # before `BlockSpec.skipped`; no Arrow stream begins so


@dataclass(frozen=True, repr=False)  # Beam's messages hold the element, which must show no text
class _Found:
    """The rows of a block.

    Attributes:
        pieces: The rows, as Arrow streams.
        skipped: As `BlockSpec.skipped`.
    """

    pieces: list[bytes]
    skipped: bytes


@dataclass(frozen=True)
class TableRequest:
    """Which rows and columns of a table are read; small, so that the job request stays small.

    Attributes:
        table: Its name.
        snapshot: The moment whose rows are read, seconds since 1970.
        rows: How many there were at that moment, counted by the service itself.
        bytes: Size of the table.
        blocks: How many blocks the rows are distributed to.
        project: Whose read session it is.
        columns: Which columns of the table are read, and as what.
    """

    table: TableName
    snapshot: float
    rows: int
    bytes: int
    blocks: int
    project: str
    columns: Columns

    @property
    def planned(self) -> PlannedWork:
        """What the reports of a complete run must add up to: the blocks' rows are the table's."""
        return PlannedWork(self.blocks, (self.rows,), (str(self.table),))


def block_count(table_bytes: int, block_bytes: int) -> int:
    """How many blocks a table of that size is distributed to.

    >>> block_count(0, 1000), block_count(1001, 1000)
    (1, 2)
    """
    return max(1, -(-table_bytes // block_bytes))


@dataclass
class ReadTable(Step):
    """Reads those documents of a table that are not finished; begins a pipeline.

    Gives a dict: `documents` and `finished`, as `read_unfinished` gives them, `planned`, one
    PlannedWork, and what else `compare` gives.

    Attributes:
        request: What to read.
        output: Folder of the run's output.
        run: Fingerprint of the run.
        part_docs: A part is closed at so many documents.
        examples: Folder where the run keeps its examples, None if it keeps none.
        compare: Adds to the BlockSpecs of the blocks, in the `specs` of a dict, which of their
            documents to skip; takes BlockSpecs and DocumentBlocks. None skips none.
    """

    request: TableRequest
    output: str
    run: str
    part_docs: int
    examples: str | None = None
    compare: Callable[..., dict[str, beam.PCollection]] | None = None

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        request = begin | "Request" >> beam.Create([self.request])
        rows = (
            request
            | "Streams" >> beam.FlatMap(open_streams)  # each is read once, by one worker
            | "Spread" >> beam.Reshuffle()
            | "Rows" >> beam.FlatMap(_dealt_rows, self.request)
        )
        # A block without rows has a report, too.
        blocks = request | "Blocks" >> beam.FlatMap(_empty_pieces)
        settings = self.request, self.part_docs
        joined, compared = [rows, blocks], {}
        if self.compare is not None:
            passed_as_block(DocumentBlock)
            whole = joined | "All" >> beam.Flatten() | "All by block" >> beam.GroupByKey()
            documents = whole | "Documents" >> beam.FlatMap(_whole_blocks, *settings)
            specs = blocks | "Specs" >> beam.Map(_spec_of)
            compared = self.compare(specs, documents)
            joined.append(compared.pop("specs") | "Skipped" >> beam.Map(_skipped))
        # Not CoGroupByKey, which shows its elements in messages.
        grouped = joined | "Both" >> beam.Flatten() | "By block" >> beam.GroupByKey()
        grouped = grouped | "Found" >> beam.Map(_found)

        def read(group: tuple[int, _Found], done: Container[int]) -> Iterator[DocumentBlock]:
            number, found = group
            for block in row_blocks(number, found.pieces, *settings):
                if block.part.number not in done:
                    yield without_skipped(block, found.skipped)

        folder = OutputFolder(self.output, self.examples)
        documents, finished = read_unfinished(
            grouped, folder, self.run, read, DocumentBlock, _spec_of
        )
        planned = request | "Planned" >> beam.Map(_planned)
        return {"documents": documents, "finished": finished, "planned": planned, **compared}


def _spec_of(group: tuple[int, Any]) -> BlockSpec:
    return BlockSpec(group[0], "bigquery", ())


def _found(group: tuple[int, Iterable[bytes]]) -> tuple[int, _Found]:
    with RedactErrors("read the table"):
        number, pieces = group
        listed = list(pieces)
        skipped = [each.removeprefix(_SKIPPED) for each in listed if each.startswith(_SKIPPED)]
        rows = [each for each in listed if not each.startswith(_SKIPPED)]
        return number, _Found(rows, b"".join(skipped))


def _whole_blocks(
    group: tuple[int, Iterable[bytes]], request: TableRequest, part_docs: int
) -> Iterator[DocumentBlock]:
    with RedactErrors("read the table"):
        yield from row_blocks(*group, request, part_docs)


def _skipped(spec: BlockSpec) -> tuple[int, bytes]:
    return spec.number, _SKIPPED + spec.skipped


def _planned(request: TableRequest) -> PlannedWork:
    return request.planned


def _empty_pieces(request: TableRequest) -> Iterator[tuple[int, bytes]]:
    for number in range(request.blocks):
        yield number, b""


def _dealt_rows(stream: str, request: TableRequest) -> Iterator[tuple[int, bytes]]:
    with RedactErrors("read the table"):
        for rows in _bounded(stream_rows(stream, str(request.table))):
            yield from deal_out(rows, request.columns.id or "", request.blocks)


def open_streams(request: TableRequest) -> list[str]:
    """Opens a read session of the rows that the table had at the snapshot; returns its streams.

    Raises:
        ValueError: The table is gone, or may not be read.
    """
    from google.cloud.bigquery_storage_v1 import types

    name = request.table
    session = types.ReadSession(
        table=f"projects/{name.project}/datasets/{name.dataset}/tables/{name.table}",
        data_format=types.DataFormat.ARROW,
    )
    session.read_options.selected_fields = request.columns.names
    session.table_modifiers.snapshot_time = datetime.datetime.fromtimestamp(
        request.snapshot, datetime.UTC
    )
    with translate_errors(f"table {name} cannot be read"), read_client() as client:
        opened = client.create_read_session(
            parent=f"projects/{request.project}",
            read_session=session,
            max_stream_count=min(_MOST_STREAMS, 1 + request.bytes // _STREAM_BYTES),
            timeout=PATIENCE,
        )
    return [stream.name for stream in opened.streams]


def stream_rows(stream: str, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a stream; the client resumes an interrupted stream where it was."""
    with translate_errors(f"table {table} cannot be read"), read_client() as client:
        for page in client.read_rows(stream).rows().pages:
            yield page.to_arrow()


def sample_rows(request: TableRequest, most: int) -> Iterator[DocumentBlock]:
    """Reads about the first rows of each stream of a table, `most` in all, as documents.

    BigQuery bills the bytes of these rows. All rows are read if they are not more.
    """
    streams = open_streams(request)
    each = -(-most // max(len(streams), 1))
    for stream in streams:
        left = each
        for batch in stream_rows(stream, str(request.table)):
            rows = pa.Table.from_batches([batch]).slice(0, left)
            left -= rows.num_rows
            yield _documents(rows, request)
            if left <= 0:
                break


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Joins batches to tables that are large enough to distribute, and fit into memory."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def deal_out(rows: pa.Table, id_column: str, blocks: int) -> Iterator[tuple[int, bytes]]:
    """Distributes rows to blocks by their ids: gives the block's number and an Arrow stream."""
    block = block_of(rows[id_column].cast(pa.string()).to_pylist(), blocks)
    order = np.argsort(block, kind="stable")
    numbers, starts = np.unique(block[order], return_index=True)
    ordered = rows.take(pa.array(order)).combine_chunks()
    for number, start, stop in zip(numbers, starts, [*starts[1:], len(order)], strict=True):
        yield int(number), _packed(ordered.slice(start, stop - start))


def block_of(ids: Sequence[str | None], blocks: int) -> np.ndarray:
    """int64 `[ids]`: the block of each id, by XXH3 (64 bits, seed 0) of its UTF-8; None is "".

    >>> block_of(["a", "b", None], 1).tolist()
    [0, 0, 0]
    """
    digest = xxhash.xxh3_64_intdigest
    hashes = np.array([digest((each or "").encode()) for each in ids], np.uint64)
    return (hashes % np.uint64(blocks)).astype(np.int64)


def _packed(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return out.getvalue().to_pybytes()


def row_blocks(
    number: int, pieces: Iterable[bytes], request: TableRequest, part_docs: int
) -> Iterator[DocumentBlock]:
    """The rows of a block, sorted by id, as the documents of its parts."""
    started = time.perf_counter()
    tables = [pa.ipc.open_stream(piece).read_all() for piece in pieces if piece]
    rows = _sorted(pa.concat_tables(tables), request) if tables else None
    count = 0 if rows is None else rows.num_rows
    starts = range(0, max(count, 1), part_docs)
    for part, start in enumerate(starts):
        taken = None if rows is None else rows.slice(start, part_docs)
        block = _documents(taken, request)
        yield replace(
            block,
            part=replace(
                block.part,
                block=number,
                number=part,
                last=start == starts[-1],
                seconds={"read": time.perf_counter() - started},
            ),
        )
        started = time.perf_counter()


def _sorted(rows: pa.Table, request: TableRequest) -> pa.Table:
    """Sorts rows by id, those without one first; rows of one id by all columns that are read."""
    ids = rows[request.columns.id].cast(pa.string()).to_pylist()
    keys: list[Any] = [(each is not None, each or "") for each in ids]
    if len(set(keys)) < len(keys):
        contents = map(_as_json, rows.to_pylist())
        keys = [(*key, content) for key, content in zip(keys, contents, strict=True)]
    return rows.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64()))


def _documents(rows: pa.Table | None, request: TableRequest) -> DocumentBlock:
    """The documents of some rows; a row without one is rejected."""
    count = 0 if rows is None else rows.num_rows
    places = pa.array([str(request.table)] * count, pa.string())
    records = _records([] if rows is None else rows.to_pylist(), request.columns)
    documents, _ = documents_of(records, places, request.columns)
    part = Part(0, 0, records=count, covered={0: count}, rejected=tuple(documents.rejected))
    return document_block(part, documents)


def _records(rows: Iterable[dict[str, Any]], columns: Columns) -> Iterator[Record | BadRecord]:
    passed = columns.extra.names if columns.extra else []
    for row in rows:
        try:
            yield record_of(row, columns, tuple(row[name] for name in passed))
        except BadRecordError as error:
            value = None if columns.id is None else row[columns.id]
            name = None if value is None else str(value)
            yield BadRecord(str(error), _as_json(row).decode(), name)


def _as_json(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=str)
