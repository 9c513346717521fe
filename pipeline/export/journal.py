"""Cuts rows into files, and notes which are written, so that a killed export continues."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import START, Position, Source
from bert_embed.storage.errors import InputError, SettingError
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
    """A target of numbered files, each of which is written whole or not at all.

    Attributes:
        rows: Rows of a file, but for the last one.
        others: Names of the files that are written at the end.
        journal: Path of the journal.
    """

    rows: int
    others: tuple[str, ...]
    journal: str

    def names(self, number: int, count: int) -> tuple[str, ...]:
        """Names of the files with one number, of so many numbers."""

    def write(self, number: int, count: int, rows: int, batches: Iterator[Rows]) -> None:
        """Writes the files with one number."""

    def finish(self) -> None:
        """Writes the other files."""


def rows_of_files(width: int, megabytes: int) -> int:
    """Returns how many vectors a file gets for a size of float32 numbers.

    >>> rows_of_files(384, 128), rows_of_files(3, 128)
    (87381, 100000)
    """
    return max(1, min(_MOST_ROWS, (megabytes << 20) // (4 * width)))


class Cutter:
    """Cuts the batches of a source into runs of rows.

    Attributes:
        position: The place after the last run.
    """

    def __init__(self, source: Source, start: Position = START) -> None:
        self.position = start
        self._folder = source.options.source
        self._batches = source.batches(start)
        self._left: tuple[Rows, Position] | None = None

    def take(self, rows: int) -> Iterator[Rows]:
        """Yields exactly the next `rows` rows; InputError if there are fewer."""
        while rows:
            found = self._left or next(self._batches, None)
            self._left = None
            if found is None:
                raise InputError(
                    f"{self._folder} holds fewer rows than its run.json counts; `bert-embed "
                    "verify` lists what is missing"
                )
            batch, after = found
            if len(batch) > rows:
                self._left = batch.slice(rows), after
                after = Position(after.file, after.row - (len(batch) - rows))
                batch = batch.slice(0, rows)
            rows -= len(batch)
            self.position = after
            yield batch


@dataclass(frozen=True)
class Progress:
    """How far an export is.

    Attributes:
        done: Whether it is complete.
        numbers: How many numbered files are written.
        position: The place after their rows.
        more: What else a target notes.
    """

    done: bool = False
    numbers: int = 0
    position: Position = START
    more: dict[str, Any] | None = None


def read_progress(path: str, source: Source, dest: str) -> Progress | None:
    """Reads a journal; None if there is none.

    Raises:
        UsageError: It is that of another export.
    """
    data = read_bytes(path)
    if data is None:
        return None
    try:
        found = orjson.loads(data)
        if found["export"] == _export(source):
            position = Position(*found["position"])
            done = found["status"] == "done"
            return Progress(done, found["numbers"], position, found["more"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not the journal of an export; choose another DEST") from error
    raise UsageError(
        f"{dest} holds another export, as {path} says: choose another DEST, or remove both"
    )


def write_progress(path: str, source: Source, progress: Progress) -> None:
    """Notes how far an export is."""
    found = {
        "format": _FORMAT,
        "status": "done" if progress.done else "running",
        "export": _export(source),
        "numbers": progress.numbers,
        "position": list(progress.position),
        "more": progress.more,
    }
    write_bytes(path, orjson.dumps(found, option=_OPTIONS))


def _export(source: Source) -> dict[str, Any]:
    options = source.options
    return {
        "target": options.target,
        "source": source.identity,
        "index": options.index,
        "table": options.table,
        "sample": options.sample,
        "restricts": list(options.restricts),
        "numeric_restricts": list(options.numeric_restricts),
        "embedding_metadata": list(options.embedding_metadata),
    }


def entries(dest: str) -> set[str]:
    """Names of all files below a folder, but for hidden ones."""
    above = join(dest, "")
    try:
        return {file.path.removeprefix(above) for file in list_files(above)}
    except SettingError as error:  # which is worded for inputs
        raise UsageError(f"DEST: {str(error).removeprefix('input ')}") from error


def claim(dest: str, journal: str, source: Source, ours: Callable[[str], bool]) -> Progress:
    """Checks that a folder is empty or holds this export, and how much of it.

    Args:
        dest: The folder.
        journal: Path of the journal.
        source: What is exported.
        ours: Whether this export writes a file of this name.

    Raises:
        UsageError: It holds something else.
    """
    found = entries(dest)
    strange = sorted(name for name in found if name != JOURNAL and not ours(name))
    if strange:
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    progress = read_progress(journal, source, dest)
    if progress is None and found:
        raise UsageError(
            f"{dest} holds {min(found)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    return progress or Progress()


def prepare_folders(dest: str, names: Iterable[str]) -> None:
    """Makes the local folders of files; removes what ended processes left in them."""
    parents = {dest, *(join(dest, name).rpartition("/")[0] for name in names)}
    for folder in () if is_remote(dest) else sorted(parents):
        make_folder(folder)
        sweep_temporary(folder)


def write_files(target: FileTarget, source: Source, dest: str, rows: int) -> bool:
    """Writes the files of a target that are not there yet.

    Args:
        target: The target.
        source: What is exported.
        dest: The folder.
        rows: How many rows there are.

    Returns:
        False if the export was complete already.

    Raises:
        UsageError: The folder holds something else.
    """
    count = -(-rows // target.rows)
    every = [name for number in range(count) for name in target.names(number, count)]
    ours = {*every, *target.others}
    progress = claim(dest, target.journal, source, ours.__contains__)
    there = entries(dest)
    if progress.done and ours <= there:
        return False
    before = every[: progress.numbers * len(target.names(0, count))]
    if not there.issuperset(before):  # some were removed: from the beginning
        progress = Progress()
    prepare_folders(dest, ours)
    write_progress(target.journal, source, Progress(False, progress.numbers, progress.position))
    cutter = Cutter(source, progress.position)
    for number in range(progress.numbers, count):
        own = min(target.rows, rows - number * target.rows)
        target.write(number, count, own, cutter.take(own))
        write_progress(target.journal, source, Progress(False, number + 1, cutter.position))
    target.finish()
    write_progress(target.journal, source, Progress(True, count, cutter.position))
    return True
