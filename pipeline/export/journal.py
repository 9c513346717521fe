"""Writes numbered files, and notes which are written, so that a killed export continues."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import START, Cutter, Position, Source
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


@dataclass(frozen=True)
class _Progress:
    """Whether all is done, how many numbered files are written, and the place after their rows."""

    done: bool = False
    numbers: int = 0
    position: Position = START


def write_files(target: FileTarget, source: Source) -> bool:
    """Writes the files of a target that are not there yet; False if the export was complete.

    Raises:
        UsageError: DEST holds something else.
    """
    dest = source.options.dest
    count = -(-source.rows // target.rows)
    numbered = [target.names(number, count) for number in range(count)]
    names = set(chain(*numbered))
    present = _files_below(dest)
    progress = _claim(dest, target.journal, source, names, present)
    if progress.done and names <= present:
        return False
    if not present.issuperset(chain(*numbered[: progress.numbers])):  # some were removed
        progress = _Progress()
    progress = replace(progress, done=False)
    if not is_remote(dest):
        for folder in sorted({dest, *(join(dest, name).rpartition("/")[0] for name in names)}):
            make_folder(folder)
            sweep_temporary(folder)
    _write_progress(target.journal, source, progress)
    cutter = Cutter(source, progress.position)
    for number in range(progress.numbers, count):
        rows = min(target.rows, source.rows - number * target.rows)
        target.write(number, count, rows, cutter.take(rows))
        _write_progress(target.journal, source, _Progress(False, number + 1, cutter.position))
    _write_progress(target.journal, source, _Progress(True, count, cutter.position))
    return True


def _claim(
    dest: str, journal: str, source: Source, names: set[str], present: set[str]
) -> _Progress:
    """How much of this export a folder holds; UsageError if it holds something else."""
    strange = sorted(present - names - {JOURNAL})
    if strange:
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    progress = _read_progress(journal, source)
    if progress is None and present:
        raise UsageError(
            f"{dest} holds {min(present)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    return progress or _Progress()


def _files_below(dest: str) -> set[str]:
    """Names of all files below a folder, but for hidden ones."""
    above = join(dest, "")
    try:
        return {file.path.removeprefix(above) for file in list_files(above)}
    except SettingError as error:  # which is worded for inputs
        raise UsageError(f"DEST: {str(error).removeprefix('input ')}") from error


def _read_progress(path: str, source: Source) -> _Progress | None:
    """Reads a journal; None if there is none, UsageError if it is another export's."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        journal = orjson.loads(data)
        if journal["export"] == _export(source):
            position = Position(*journal["position"])
            return _Progress(journal["status"] == "done", journal["numbers"], position)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not the journal of an export; choose another DEST") from error
    raise UsageError(
        f"{source.options.dest} holds another export, as {path} says: choose another DEST, or "
        "remove both"
    )


def _write_progress(path: str, source: Source, progress: _Progress) -> None:
    journal = {
        "format": _FORMAT,
        "status": "done" if progress.done else "running",
        "export": _export(source),
        "numbers": progress.numbers,
        "position": list(progress.position),
        "more": None,
    }
    write_bytes(path, orjson.dumps(journal, option=_OPTIONS))


def _export(source: Source) -> dict[str, Any]:
    """What an export continues only if it is the same."""
    options = source.options
    return {
        "target": options.to,
        "source": source.identity,
        "index": options.kind_of_index,
        "table": options.table,
        "sample": None,
        "restricts": list(options.restricts),
        "numeric_restricts": list(options.numeric_restricts),
        "embedding_metadata": list(options.embedding_metadata),
    }
