"""Writes numbered files into a folder whose journal says of which export they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.json import is_torn, json_bytes
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import ExportSource
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
    if strange := sorted(present - wanted - {_JOURNAL}):
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    ours = _journal(source)
    there = _journal_there(dest, journal, ours)
    if there is None and present:
        raise UsageError(
            f"{dest} holds {min(present)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    if there == ours and wanted <= present:
        return False
    make_folder(dest)
    if not is_remote(dest):
        sweep_temporary(dest)
    if there not in (None, ours):  # nothing says of which export the files are: they come again
        present = set()
        remove([journal])
    # An export that began at the same moment may have been first.
    if there != ours and not create_exclusive(journal, ours):
        _journal_there(dest, journal, ours)
    for name in others.keys() - present:
        path = join(dest, name)
        make_folder(path.rpartition("/")[0])
        write_bytes(path, others[name])
    for names_of_number, (in_files, batches) in zip(numbered, source.cut(rows), strict=True):
        if not present.issuperset(names_of_number):
            write([join(dest, name) for name in names_of_number], in_files, batches)
    for folder in {join(dest, name).rpartition("/")[0] for name in wanted}:
        sync_folder(folder)
    return True


def _journal_there(dest: str, journal: str, ours: bytes) -> bytes | None:
    """What a journal holds: ours, or what a power cut left of one. UsageError: it is another's."""
    data = read_bytes(journal)
    if data not in (None, ours) and not is_torn(data):
        raise UsageError(
            f"{dest} holds another export, as {journal} says: choose another DEST, or remove both"
        )
    return data


def _journal(source: ExportSource) -> bytes:
    """What says of an export that it is the same."""
    options = source.options
    names = ("index", "restricts", "numeric_restricts", "embedding_metadata")
    chosen = {name: getattr(options, name) for name in names}
    export = {"target": options.to, "source": source.identity, **chosen}
    return json_bytes({"format": _FORMAT, "export": export})
