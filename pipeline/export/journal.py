"""Writes numbered files into a folder whose journal says of which export they are."""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import Cutter, Source
from bert_embed.storage.errors import SettingError
from bert_embed.storage.files import (
    is_remote,
    join,
    list_files,
    make_folder,
    read_bytes,
    sweep_temporary,
    write_bytes,
)

JOURNAL = "export.json"
_FORMAT = 1
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_MOST_ROWS = 100_000


class FileTarget(Protocol):
    """A target of numbered files with so many `rows` each, and the path of their journal."""

    rows: int
    journal: str

    def names(self, number: int, count: int) -> tuple[str, ...]:
        """Names of the files with one number, of so many numbers."""

    def write(self, number: int, count: int, rows: int, batches: Iterator[Rows]) -> None:
        """Writes the files with one number, each whole or not at all."""


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


def write_files(target: FileTarget, source: Source) -> bool:
    """Writes the files of a target that are not there yet; False if the export was complete."""
    dest = source.options.dest
    count = -(-source.rows // target.rows)
    numbered = [target.names(number, count) for number in range(count)]
    names = {name for names_of_number in numbered for name in names_of_number}
    present = _files_below(dest)
    is_claimed = _is_claimed(dest, target.journal, source, names, present)
    if is_claimed and names <= present:
        return False
    if not is_remote(dest):
        for folder in sorted({dest, *(join(dest, name).rpartition("/")[0] for name in names)}):
            make_folder(folder)
            sweep_temporary(folder)
    if not is_claimed:
        journal = {"format": _FORMAT, "export": _export(source)}
        write_bytes(target.journal, orjson.dumps(journal, option=_OPTIONS))
    cutter = Cutter(source)
    for number, names_of_number in enumerate(numbered):
        rows = min(target.rows, source.rows - number * target.rows)
        batches = cutter.take(rows)
        if not present.issuperset(names_of_number):
            target.write(number, count, rows, batches)
        for _ in batches:  # of files that are there: read, not written
            pass
    return True


def _is_claimed(
    dest: str, journal: str, source: Source, names: set[str], present: set[str]
) -> bool:
    """Whether a folder is of this export already; UsageError if it holds something else."""
    strange = sorted(present - names - {JOURNAL})
    if strange:
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    is_claimed = _names_export(journal, source)
    if not is_claimed and present:
        raise UsageError(
            f"{dest} holds {min(present)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    return is_claimed


def _files_below(dest: str) -> set[str]:
    """Names of all files below a folder, but for hidden ones."""
    above = join(dest, "")
    try:
        return {file.path.removeprefix(above) for file in list_files(above)}
    except SettingError as error:  # which is worded for inputs
        raise UsageError(f"DEST: {str(error).removeprefix('input ')}") from error


def _names_export(path: str, source: Source) -> bool:
    """Whether there is a journal; UsageError if it is another export's."""
    data = read_bytes(path)
    if data is None:
        return False
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


def _export(source: Source) -> dict[str, Any]:
    """What an export continues only if it is the same."""
    options = source.options
    return {
        "target": options.target,
        "source": source.identity,
        "index": options.index,
        "table": options.table,
        "sample": None,
        "restricts": list(options.restricts),
        "numeric_restricts": list(options.numeric_restricts),
        "embedding_metadata": list(options.embedding_metadata),
    }
