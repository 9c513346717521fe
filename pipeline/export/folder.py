"""Writes numbered files into a folder whose journal says of which export they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.json import is_torn, json_bytes
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import Cutter, ExportSource
from bert_embed.results.files import Rows
from bert_embed.storage.files import (
    create_exclusive,
    is_remote,
    join,
    list_files,
    make_folder,
    read_bytes,
    remove,
    sweep_temporary,
    sync_folder,
    write_bytes,
)

_JOURNAL = "export.json"
_FORMAT = 1
_MOST_ROWS = 100_000


def rows_of_files(width: int, megabytes: int) -> int:
    """Returns how many vectors a file gets for a size of float32 numbers.

    >>> rows_of_files(384, 128), rows_of_files(3, 128)
    (87381, 100000)
    """
    return max(1, min(_MOST_ROWS, (megabytes << 20) // (4 * width)))


def write_parquet(file: BinaryIO, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes tables as they come, a row group each; equal tables give equal bytes."""
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


def write_files(
    source: ExportSource,
    rows: int,
    names: Callable[[int, int], tuple[str, ...]],
    write: Callable[[Sequence[str], int, Iterator[Rows]], None],
    journal: str | None = None,
    others: Mapping[str, bytes] | None = None,
) -> bool:
    """Writes the numbered files that are not there yet; False if the export was complete.

    `names` takes a number and the count of numbers; `write` takes paths and the count of their
    rows, and writes each whole or not at all. `journal`, by default `export.json` in DEST, says
    which export this is. `others` are further files by name.
    """
    dest = source.options.dest
    journal = journal or join(dest, _JOURNAL)
    count = -(-source.rows // rows)
    numbered = [names(number, count) for number in range(count)]
    others = others or {}
    wanted = {name for names_of_number in (*numbered, others) for name in names_of_number}
    present = {file.path.removeprefix(join(dest, "")) for file in list_files(join(dest, ""))}
    is_claimed = _is_claimed(dest, journal, source, wanted, present)
    if is_claimed and wanted <= present:
        return False
    make_folder(dest)
    if not is_remote(dest):
        sweep_temporary(dest)
    if is_claimed is None:  # nothing says of which export the files are: they are written again
        present = set()
        remove([journal])
    # An export that began at the same moment may have been first.
    if not is_claimed and not create_exclusive(journal, _journal(source)):
        _names_export(journal, source)
    for name in others.keys() - present:
        path = join(dest, name)
        make_folder(path.rpartition("/")[0])
        write_bytes(path, others[name])
    cutter = Cutter(source)
    for number, names_of_number in enumerate(numbered):
        in_files = min(rows, source.rows - number * rows)
        batches = cutter.take(in_files)
        if not present.issuperset(names_of_number):
            write([join(dest, name) for name in names_of_number], in_files, batches)
        for _ in batches:  # of files that are there: read, not written
            pass
    for folder in {join(dest, name).rpartition("/")[0] for name in wanted}:
        sync_folder(folder)
    return True


def _journal(source: ExportSource) -> bytes:
    return json_bytes({"format": _FORMAT, "export": _export(source)})


def _is_claimed(
    dest: str, journal: str, source: ExportSource, names: set[str], present: set[str]
) -> bool | None:
    """Whether a folder is of this export already; UsageError if it holds something else.

    None: a power cut left nothing of the journal.
    """
    strange = sorted(present - names - {_JOURNAL})
    if strange:
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    is_claimed = _names_export(journal, source)
    if is_claimed is False and present:
        raise UsageError(
            f"{dest} holds {min(present)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    return is_claimed


def _names_export(path: str, source: ExportSource) -> bool | None:
    """Whether there is a journal, None for one that is torn; UsageError if another export's."""
    data = read_bytes(path)
    if data is None:
        return False
    if is_torn(data):
        return None
    try:
        is_same = orjson.loads(data)["export"] == _export(source)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not the journal of an export; choose another DEST") from error
    if not is_same:
        raise UsageError(
            f"{source.options.dest} holds another export, as {path} says: choose another DEST, or "
            "remove both"
        )
    return True


def _export(source: ExportSource) -> dict[str, Any]:
    """What an export continues only if it is the same."""
    options = source.options
    return {
        "target": options.to,
        "source": source.identity,
        **({"index": options.index} if options.to == "faiss" else {}),
        "restricts": list(options.restricts),
        "numeric_restricts": list(options.numeric_restricts),
        "embedding_metadata": list(options.embedding_metadata),
    }
