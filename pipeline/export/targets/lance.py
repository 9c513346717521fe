"""Adds a table to a LanceDB database."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.encode import schema_of, table
from bert_embed.pipeline.export.extras import required
from bert_embed.pipeline.export.journal import (
    JOURNAL,
    Cutter,
    Progress,
    read_progress,
    rows_of_files,
    write_progress,
)
from bert_embed.pipeline.export.source import Source
from bert_embed.storage.files import join

_COLUMN = "vector"  # which LanceDB searches by default
_MEGABYTES = 128  # of the vectors that are added at once
_TRAINED_ROWS = 256  # fewest rows that product quantization is trained on
_FOLDER = ".lance"


def export_lancedb(source: Source) -> bool:
    """Exports to a table; False if it was there already.

    Every version of the table is complete. The journal has the version before the rows that are
    being added, so that they are never there twice.

    Raises:
        UsageError: lancedb is not installed, the folder or the table holds something else, a column
            is called as that of the vectors, or the index does not fit the vectors.
    """
    options = source.options
    source.check_added(_COLUMN)
    _check_index(source)
    _check_folder(options.dest)
    database = required("lancedb", options).connect(options.dest)
    journal = join(options.dest, f"{options.table}.{JOURNAL}")
    progress = read_progress(journal, source, f"--table {options.table}")
    found = _opened(database, options.table)
    if found is not None and progress is None:
        raise UsageError(
            f"--table {options.table} exists in {options.dest} and is not of an export; choose "
            "another name"
        )
    if found is None or progress is None:
        progress = Progress(more={"version": 1, "rows": 0})
        write_progress(journal, source, progress)
        schema = schema_of(source.schema, source.dtype, source.width, _COLUMN)
        found = database.create_table(options.table, schema=schema)
    rows = found.count_rows()
    if progress.done and rows == source.rows:
        return False
    assert progress.more is not None
    if rows != progress.more["rows"]:
        found.restore(progress.more["version"])
    done = _add_rows(found, source, journal, progress)
    if options.index != "none":
        found.create_index(_COLUMN, config=_index(source))
    write_progress(journal, source, done)
    return True


def _add_rows(found: Any, source: Source, journal: str, progress: Progress) -> Progress:
    """Adds the rows that are missing; returns what the journal says when all is done."""
    schema = schema_of(source.schema, source.dtype, source.width, _COLUMN)
    most = rows_of_files(source.width, _MEGABYTES)
    cutter = Cutter(source, progress.position)
    rows = (progress.more or {})["rows"]
    while rows < source.rows:
        more = {"version": found.version, "rows": rows}
        write_progress(journal, source, Progress(False, 0, cutter.position, more))
        count = min(most, source.rows - rows)
        batches = _record_batches(cutter.take(count), source, schema)
        found.add(pa.RecordBatchReader.from_batches(schema, batches))
        rows += count
    return Progress(True, 0, cutter.position, {"version": found.version, "rows": rows})


def _record_batches(
    batches: Iterator[Rows], source: Source, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from table(batch, source.dtype, _COLUMN).cast(schema).to_batches()


def _opened(database: Any, name: str) -> Any:
    """The table of a name; None if there is none."""
    try:
        return database.open_table(name)
    except ValueError:
        return None


def _check_folder(dest: str) -> None:
    """Refuses a folder that is no database."""
    for name in sorted(os.listdir(dest)) if os.path.isdir(dest) else []:
        if not name.startswith(".") and not name.endswith((_FOLDER, f".{JOURNAL}")):
            raise UsageError(f"{dest} holds {name}, which is no table of LanceDB; choose another")


def _check_index(source: Source) -> None:
    if source.options.index != "ivf_pq":
        return
    if source.dtype == "ubinary":
        raise UsageError("--index ivf_pq cannot take the bits of ubinary; use ivf_flat")
    if source.rows < _TRAINED_ROWS:
        raise UsageError(
            f"--index ivf_pq requires {_TRAINED_ROWS} rows, the output has {source.rows}; leave "
            "--index out"
        )


def _index(source: Source) -> Any:
    kinds = required("lancedb.index", source.options)
    kind = kinds.IvfPq if source.options.index == "ivf_pq" else kinds.IvfFlat
    return kind(distance_type="hamming" if source.dtype == "ubinary" else "cosine")
