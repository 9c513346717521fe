"""Reads BigQuery tables: as blocks of documents, the same every time, or as earlier outputs.

The rows of a table have no order. A hash of its id, or of all columns where it has none, decides
the block of each row, and within a block rows are sorted by id. This is the only shuffle of texts
in this program; they are shuffled once more where documents are compared with earlier outputs.
"""

import json
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import apache_beam as beam
import numpy as np
import orjson
import pyarrow as pa
import xxhash

from bert_embed.base.errors import InputError
from bert_embed.results.columns import METADATA_KEY
from bert_embed.transforms.bigquery import client as bigquery
from bert_embed.transforms.bigquery.client import (
    PATIENCE,
    TableName,
    bigquery_client,
    open_streams,
    stream_rows,
    translate_errors,
)
from bert_embed.transforms.blocks import DocumentBlock, grouped, without_skipped
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BadRecordError, BlockSpec, Part, PlannedWork
from bert_embed.transforms.read.columns import Columns
from bert_embed.transforms.read.reader import document_block
from bert_embed.transforms.read.records import Record, documents_of, record_of
from bert_embed.transforms.steps import RedactErrors, Step, passed_as_block, read_unfinished

if TYPE_CHECKING:
    from google.cloud.bigquery import Table

_MOST_ROWS, _MOST_BYTES = 1 << 20, 64 << 20  # distributed to the blocks at a time
# Blocks are shuffled in groups, because an Arrow stream of a few rows is mostly schema.
_MOST_GROUPED, _GROUP_BYTES = 256, 64 << 20  # a row's place in its group is one byte
_PLACE = "place in the group"  # no column of BigQuery has blanks in its name
_LEAST_GROUPS = 1024  # if there are so many blocks: a worker embeds a whole group

# A group, and a block's place in it with its `BlockSpec.skipped`, or `_ROWS` with an Arrow stream.
# Of types that every runner knows: another coder has Beam's log show the elements.
_Member: TypeAlias = tuple[int, tuple[int, bytes]]
_ROWS = -1


@dataclass(frozen=True, repr=False)  # Beam's messages hold the element, which must show no text
class _BlockRows:
    """A block: its number, its rows in no order, None for none, and `BlockSpec.skipped`."""

    number: int
    rows: pa.Table | None
    skipped: bytes = b""


@dataclass(frozen=True)
class TableRequest:
    """Which rows and columns of a table are read; small, so that the job request stays small."""

    table: TableName
    snapshot: float  # seconds since 1970, as the service counts them
    rows: int  # at the moment `snapshot`
    bytes: int
    project: str
    columns: Columns
    blocks: int = 1  # which the rows are distributed to
    group_blocks: int = 1  # how many neighbours are shuffled together

    def divided(self, block_bytes: int) -> "TableRequest":
        """The request, divided into blocks of about that size, and these into groups."""
        blocks = max(1, -(-self.bytes // block_bytes))
        fitting = _GROUP_BYTES * blocks // max(self.bytes, 1)
        group = max(1, min(_MOST_GROUPED, fitting, blocks // _LEAST_GROUPS))
        return replace(self, blocks=blocks, group_blocks=group)

    @property
    def planned(self) -> PlannedWork:
        """What a complete run must add up to: the blocks' rows are the table's."""
        return PlannedWork(self.blocks, (self.rows,), (str(self.table),))


@dataclass
class ReadTable(Step):
    """Reads those documents of a table that are not finished; begins a pipeline.

    Gives a dict: `documents` and `finished`, as `read_unfinished` gives them, `planned`, one
    PlannedWork. `compare` takes BlockSpecs and their DocumentBlocks, adds what to skip, and gives
    `changes`.
    """

    request: TableRequest
    output: str
    run: str
    part_docs: int
    compare: beam.PTransform | None = None

    def expand(self, begin: beam.pvalue.PBegin):  # a dict has no type that Beam would check
        request = begin | "Request" >> beam.Create([self.request])
        rows = (
            request
            | "Streams" >> beam.FlatMap(_opened)  # each is read once, by one worker
            | "Spread" >> beam.Reshuffle()
            | "Rows" >> beam.FlatMap(_dealt_rows, self.request)
        )
        # A block without rows has a block record, too.
        specs, changes = request | "Blocks" >> beam.FlatMap(_specs), None
        if self.compare is not None:
            passed_as_block(DocumentBlock)
            whole = (rows, specs | "Key blocks" >> beam.Map(_keyed, self.request))
            whole = whole | "All" >> beam.Flatten() | "All by group" >> beam.GroupByKey()
            documents = whole | "Documents" >> beam.FlatMap(
                _whole_blocks, self.request, self.part_docs
            )
            specs, changes = (specs, documents) | "Compare" >> self.compare
        # Not CoGroupByKey, which shows its elements in messages.
        blocks = (
            (rows, specs | "Key" >> beam.Map(_keyed, self.request))
            | "Both" >> beam.Flatten()
            | "By group" >> beam.GroupByKey()
            | "Split" >> beam.FlatMap(_split, self.request)
        )
        settings = self.request, self.part_docs

        def read(block: _BlockRows, done: Container[int]) -> Iterator[DocumentBlock]:
            for part in row_blocks(block.number, block.rows, *settings):
                if part.part.number not in done:
                    yield without_skipped(part, block.skipped)

        folder = OutputFolder(self.output)
        documents, finished = read_unfinished(
            blocks,
            folder,
            self.run,
            read,
            DocumentBlock,
            lambda block: BlockSpec(block.number, "bigquery", ()),
        )
        planned = request | "Planned" >> beam.Map(lambda request: request.planned)
        outputs = {"documents": documents, "finished": finished, "planned": planned}
        return outputs if changes is None else outputs | {"changes": changes}


def _specs(request: TableRequest) -> Iterator[BlockSpec]:
    return (BlockSpec(number, "bigquery", ()) for number in range(request.blocks))


def _keyed(spec: BlockSpec, request: TableRequest) -> _Member:
    group, place = divmod(spec.number, request.group_blocks)
    return group, (place, spec.skipped)


def _split(
    group: tuple[int, Iterable[tuple[int, bytes]]], request: TableRequest
) -> Iterator[_BlockRows]:
    """The blocks of a group, with their rows and what to skip of them."""
    with RedactErrors("read the table"):
        first, members = group[0] * request.group_blocks, list(group[1])
        rows = split_group([data for place, data in members if place == _ROWS], request)
        skipped = {place: data for place, data in members if place != _ROWS}
        for place in sorted(skipped):
            yield _BlockRows(first + place, rows.get(place), skipped[place])


def _whole_blocks(
    group: tuple[int, Iterable[tuple[int, bytes]]], request: TableRequest, part_docs: int
) -> Iterator[DocumentBlock]:
    with RedactErrors("read the table"):
        for block in _split(group, request):
            yield from row_blocks(block.number, block.rows, request, part_docs)


def _opened(request: TableRequest) -> list[str]:
    return open_streams(
        request.table, request.columns.names, request.project, request.bytes, request.snapshot
    )


def _dealt_rows(stream: str, request: TableRequest) -> Iterator[_Member]:
    with RedactErrors("read the table"):
        for rows in joined_batches(stream_rows(stream, f"table {request.table}")):
            yield from ((group, (_ROWS, piece)) for group, piece in deal_out(rows, request))


def sample_rows(request: TableRequest, most: int) -> Iterator[DocumentBlock]:
    """About the first rows of each stream, `most` in all, whose bytes BigQuery bills."""
    streams = _opened(request)
    share = -(-most // max(len(streams), 1))
    for stream in streams:
        left = share
        for batch in stream_rows(stream, f"table {request.table}"):
            rows = pa.Table.from_batches([batch]).slice(0, left)
            left -= rows.num_rows
            yield _documents(rows, request)
            if left <= 0:
                break


def joined_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def deal_out(rows: pa.Table, request: TableRequest) -> Iterator[tuple[int, bytes]]:
    """Groups of blocks: Arrow streams of rows and, uint8, the place of each row's block."""
    block = block_of(_row_keys(rows, request), request.blocks)
    group, place = np.divmod(block, request.group_blocks)
    order, groups = grouped(group)
    placed = rows.append_column(_PLACE, pa.array(place.astype(np.uint8)))
    ordered = placed.take(pa.array(order)).combine_chunks()
    for number, start, stop in groups:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, ordered.schema) as stream:
            stream.write_table(ordered.slice(start, stop - start))
        yield number, out.getvalue().to_pybytes()


def split_group(pieces: Sequence[bytes], request: TableRequest) -> dict[int, pa.Table]:
    """The rows of each block of a group from its Arrow streams, by the block's place in it."""
    if not pieces:
        return {}
    rows = pa.concat_tables([pa.ipc.open_stream(piece).read_all() for piece in pieces])
    place = rows.column(rows.num_columns - 1).to_numpy()
    rows = rows.remove_column(rows.num_columns - 1)
    if request.group_blocks == 1:
        return {0: rows}
    order, groups = grouped(place)
    ordered = rows.take(pa.array(order))
    return {number: ordered.slice(start, stop - start) for number, start, stop in groups}


def _row_keys(rows: pa.Table, request: TableRequest) -> list[bytes]:
    """What decides the block of each row: its id, of one without an id all that it holds.

    Else all rows without an id, which are rejected, would come together in one worker's memory.
    """
    ids = rows[request.columns.id].cast(pa.string())
    keys = [(name or "").encode() for name in ids.to_pylist()]
    without = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
    contents = rows.take(pa.array(without)).to_pylist()
    for place, row in zip(without.tolist(), contents, strict=True):
        keys[place] = _as_json(row)
    return keys


def block_of(keys: Sequence[bytes], blocks: int) -> np.ndarray:
    """int64 `[keys]`: the block of each key, by XXH3 (64 bits, seed 0).

    >>> block_of([b"a", b"b", b"{}"], 1).tolist()
    [0, 0, 0]
    """
    hashes = np.array([xxhash.xxh3_64_intdigest(key) for key in keys], np.uint64)
    return (hashes % np.uint64(blocks)).astype(np.int64)


def row_blocks(
    number: int, rows: pa.Table | None, request: TableRequest, part_docs: int
) -> Iterator[DocumentBlock]:
    """The rows of a block, None for none, sorted by id, as the documents of its parts."""
    started = time.perf_counter()
    if rows is not None:  # those without an id first, those of one id by all that is read
        ids = rows[request.columns.id].cast(pa.string()).to_pylist()
        keys: list[Any] = [(name is not None, name or "") for name in ids]
        if len(set(keys)) < len(keys):
            contents = map(_as_json, rows.to_pylist())
            keys = [(*key, content) for key, content in zip(keys, contents, strict=True)]
        rows = rows.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64()))
    starts = range(0, max(0 if rows is None else rows.num_rows, 1), part_docs)
    for part, start in enumerate(starts):
        block = _documents(None if rows is None else rows.slice(start, part_docs), request)
        place = replace(block.part, block=number, number=part, last=start == starts[-1])
        yield replace(block, part=place.then("read", time.perf_counter() - started))
        started = time.perf_counter()


def _documents(rows: pa.Table | None, request: TableRequest) -> DocumentBlock:
    count = 0 if rows is None else rows.num_rows
    places = pa.array([str(request.table)] * count, pa.string())
    records = _records([] if rows is None else rows.to_pylist(), request.columns)
    documents, _ = documents_of(records, places, request.columns)
    part = Part(0, 0, records=count, covered={0: count}, rejected=tuple(documents.rejected))
    return document_block(part, documents)


def _records(rows: Iterable[dict[str, Any]], columns: Columns) -> Iterator[Record | BadRecordError]:
    passed = columns.extra.names if columns.extra else []
    for row in rows:
        try:
            yield record_of(row, columns, tuple(row[name] for name in passed))
        except BadRecordError as error:
            value = None if columns.id is None else row[columns.id]
            name = None if value is None else str(value)
            yield error.of(_as_json(row).decode(), name)


def _as_json(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=str)


_SETTING = "skip_existing"  # which names the tables below
_KEY_BYTES = 64  # of an id and a hash, about: a stream has some million rows


def earlier_table_name(text: str) -> str:
    """`project:dataset.table` of a text that names a table.

    >>> earlier_table_name("bq://my-project.texts.vectors")
    'my-project:texts.vectors'
    """
    name = bigquery.table_name(text, _SETTING)
    if name.partition:
        raise InputError(
            f"{_SETTING} {text} names a partition, which cannot be compared alone: name the table, "
            "or the output folder of the run that filled the partition",
            _SETTING,
        )
    return str(name)


def table_facts(name: str) -> tuple[int, float, dict[str, Any] | None]:
    """Rows of a table of vectors, its creation in seconds since 1970, its settings or None."""
    table = _vector_table(bigquery.table_name(name, _SETTING), **bigquery.first_request())
    missing = {"id", "text_hash"} - {field.name for field in table.schema}
    if missing:
        raise InputError(
            f"{_SETTING} {name} has no column {' and no column '.join(sorted(missing))}; it must "
            "be a table that a run with output_format bigquery filled",
            _SETTING,
            "output_format",
        )
    if table.require_partition_filter:
        raise InputError(
            f"{_SETTING} {name} is read with a filter on its partitions alone: name the output "
            "folders of the runs that filled it",
            _SETTING,
        )
    created = table.created.timestamp() if table.created else 0.0
    return table.num_rows or 0, created, described_settings(table.description)


def table_state(name: str) -> str:
    """When a table had changed last."""
    return _vector_table(bigquery.table_name(name, _SETTING)).modified.isoformat()


def described_settings(description: str | None) -> dict[str, Any] | None:
    """What the vectors of a table are, from its description: JSON with the key `bert_embed`.

    >>> described_settings('{"bert_embed": {"dim": 3}}'), described_settings("my vectors")
    ({'dim': 3}, None)
    """
    try:
        described = json.loads(description or "")
    except ValueError:
        return None
    return described.get(METADATA_KEY) if isinstance(described, dict) else None


def table_streams(name: str) -> list[str]:
    """Streams of ids and hashes of the texts of a table's rows, for `table_columns`."""
    parsed = bigquery.table_name(name, _SETTING)
    size = (_vector_table(parsed).num_rows or 0) * _KEY_BYTES
    return open_streams(parsed, ["id", "text_hash"], parsed.project, size)


def _vector_table(name: TableName, **request: Any) -> "Table":
    what = f"{_SETTING} {name} cannot be read"
    with bigquery_client(name.project) as client, translate_errors(what, _SETTING):
        return client.get_table(name.path, **({"timeout": PATIENCE} | request))


def table_columns(name: str, stream: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    """Ids and int64 hashes of the texts of a stream's rows; InputError if one is null."""
    for batch in stream_rows(stream, f"{_SETTING} {name}", _SETTING):
        if batch["id"].null_count or batch["text_hash"].null_count:
            raise InputError(f"{_SETTING} {name} has a null in id or text_hash", _SETTING)
        yield batch["id"].cast(pa.string()), batch["text_hash"].cast(pa.int64()).to_numpy()
