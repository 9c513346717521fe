"""Opens outputs of runs to read them: their files, checked, and the newest rows of several."""

import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain, combinations
from operator import or_
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.base.arguments import path_text
from bert_embed.base.arrays import first_of_equal, text_hashes
from bert_embed.base.environment import available_cores
from bert_embed.base.errors import InputError, SettingError, counted
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.fingerprints import difference
from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.chain import earlier_runs_of
from bert_embed.results.files import Rows, deleted_batches, holds_vectors, row_batches
from bert_embed.results.names import (
    BLOCK_RECORDS,
    DELETED,
    RUN_FILE,
    block_record_name,
    by_number,
    kinds_of,
    part_of,
    vectors_of,
)
from bert_embed.results.run_record import (
    EarlierRun,
    RunRecord,
    Written,
    read_record,
    run_folders,
)
from bert_embed.storage.files import (
    absolute,
    files_in,
    holds_files,
    is_remote,
    join,
    names_in,
    open_listed,
    read_bytes,
)
from bert_embed.storage.gcs import store_errors
from bert_embed.storage.local import FileInfo, crc32c_of_file, is_file, opened

_Folder = str | os.PathLike[str]
Folders = _Folder | Sequence[_Folder]
_Files = dict[str, FileInfo]  # by name
_Result = TypeVar("_Result")
_FETCHED = 8  # files of a store at a time, each a copy on this disk
_HELD_BYTES = 16 << 20  # of a file that is read at once, by each thread
_COPIED_BYTES = 16 << 20  # of a file in a store, at a time
_ID_ROWS = 1 << 16  # that are read at a time, without their vectors


@dataclass(frozen=True)
class Output:
    """The output of a run."""

    folder: str
    settings: dict[str, Any]  # what it says of its vectors
    record: RunRecord
    # Names of the block records that a run in progress had when it was opened; None of any other.
    # Whatever reads the output several times reads these parts alone: it would else take a document
    # for replaced by a part that it has not read, or show both versions.
    finished: frozenset[str] | None = field(init=False)

    def __post_init__(self) -> None:
        finished = None
        if not self.record.is_done:
            with store_errors():
                names = names_in(join(absolute(self.folder), BLOCK_RECORDS))
            finished = frozenset(f"{BLOCK_RECORDS}/{name}" for name in names)
        object.__setattr__(self, "finished", finished)


def continued_runs(outputs: Sequence[Output]) -> list[tuple[EarlierRun, ...]]:
    """For each output the runs that it continues, in their order; InputError if nothing tells."""
    with store_errors():
        return earlier_runs_of([(absolute(output.folder), output.record) for output in outputs])


def output_folders(folders: Folders) -> list[str]:
    """The outputs that were named: folders of runs, folders above them, and globs; each once."""
    named = list(folders) if isinstance(folders, list | tuple) else [folders]
    if not named:
        raise SettingError("folder", "must name an output of a run, got none")
    outputs: dict[str, str] = {}  # by where they are
    for name in named:
        path = path_text("folder", name)
        path = path.rstrip("/") or path
        for output in (() if is_file(path) else run_folders(path)) or [path]:
            place = absolute(output)
            outputs.setdefault(place if is_remote(place) else os.path.realpath(place), output)
    return list(outputs.values())


def open_outputs(folders: Folders, granularity: str) -> list[Output]:
    """The outputs that were named; InputError if their vectors cannot be used together."""
    outputs = []
    for folder in output_folders(folders):
        record = read_run(folder)
        outputs.append(Output(folder, vector_settings(folder, record), record))
        check_holds(folder, outputs[-1].settings, granularity)
    for output in outputs[1:]:
        differs = difference(output.settings, outputs[0].settings)
        if differs is not None:
            raise InputError(
                f"{output.folder} holds other vectors than {outputs[0].folder}: {differs}; "
                "take them one by one, or embed both with the same settings"
            )
    return outputs


def later_outputs(
    outputs: Sequence[Output], continued: Sequence[Iterable[EarlierRun]]
) -> list[set[int]]:
    """For each output the numbers of those that continue it, directly or not.

    `continued` are the `continued_runs` of each.
    InputError if two are copies of one run, if one continues what the folder of another held before
    it was overwritten, or if one is missing between two that are there: nothing says then which of
    their documents are the newest.
    """
    runs_in = {absolute(one.folder): one.record.run for one in outputs}
    folder_of: dict[str, str] = {}
    for folder, run in runs_in.items():
        if (other := folder_of.setdefault(run, folder)) != folder:
            raise InputError(f"{other} and {folder} hold the same run: name one of them")
    later: list[set[int]] = []
    continuing_run: dict[str, int] = {}  # numbers of outputs, as bits: a chain has all of each
    for number, (output, earlier_runs) in enumerate(zip(outputs, continued, strict=True)):
        has_earlier = False
        for earlier in earlier_runs:
            if runs_in.get(earlier.output, earlier.run) != earlier.run:
                raise InputError(
                    f"{output.folder} continues another run than {earlier.output} holds now: embed "
                    f"{output.folder} again with overwrite, or take them one by one"
                )
            if earlier.run is None:
                continue
            if has_earlier and earlier.run not in folder_of:
                raise InputError(
                    f"{output.folder} continues {earlier.output}, too, without which documents "
                    "that it replaced or deleted come back: name it, or take them one by one"
                )
            has_earlier |= earlier.run in folder_of
            continuing_run[earlier.run] = continuing_run.get(earlier.run, 0) | 1 << number
    following = [continuing_run.get(one.record.run, 0) for one in outputs]
    for new in following:
        continuing = 0
        while new:
            continuing |= new
            several = (bits for n, bits in enumerate(following) if new >> n & 1)
            new = reduce(or_, several) & ~continuing
        later.append({n for n in range(len(outputs)) if continuing >> n & 1})
    return later


def deleted_rows(output: Output) -> Iterator[pa.RecordBatch]:
    """Yields what an output marks as deleted in those it continues, some rows at a time.

    The column `id` has its type of the vectors' files. Of windows and chunks there is a row for
    each, with its number in `window` or `chunk`; also of documents that the output holds anew, with
    fewer of them. InputError if the files are not those that the run wrote.
    """
    record = output.record
    if not record.is_done or DELETED not in record.numbers.written:
        return  # files of a run in progress may not be all
    for name in _vectors_in(output.folder, DELETED, record):
        yield from deleted_batches(join(absolute(output.folder), name))


class NewestRows:
    """Leaves out the rows of documents that a later output, which continues theirs, replaces.

    It has another version of them, or marks them as deleted.
    """

    def __init__(self, outputs: Sequence[Output], granularity: str) -> None:
        self.outputs, self.granularity = outputs, granularity
        # One alone is read without its list.
        self._later = later_outputs(outputs, self.continued) if len(outputs) > 1 else [set()]

    @cached_property
    def continued(self) -> list[tuple[EarlierRun, ...]]:
        """The `continued_runs` of each output."""
        return continued_runs(self.outputs)

    def has_all(self, number: int) -> bool:
        """Whether no output continues this one."""
        return not self._later[number]

    def of(self, number: int, rows: Rows) -> Rows:
        """Those rows of an output that are of the newest version of their document."""
        if self.has_all(number):
            return rows
        is_newest = self.are_newest(number, rows.columns["id"].to_pylist())
        return rows.take(np.flatnonzero(is_newest))

    def are_newest(self, number: int, ids: Iterable[str | int]) -> np.ndarray:
        """bool `[ids]`: whether no later output has the documents of an output, or deletes them."""
        hashes = id_hashes(ids)
        newest = np.ones(len(hashes), bool)
        if self.has_all(number):
            return newest
        held, outputs = self._held_later
        is_later = np.isin(np.arange(len(self.outputs)), list(self._later[number]))
        rows, at = np.arange(len(hashes)), np.searchsorted(held, hashes, "right") - 1
        while len(rows):  # in a chain the last output with an id decides
            rows = rows[at[rows] >= 0]
            rows = rows[held[at[rows]] == hashes[rows]]
            newest[rows] = ~is_later[outputs[at[rows]]]
            rows = rows[newest[rows]]
            at[rows] -= 1
        return newest

    def kept(self, number: int) -> Iterator[tuple[str, np.ndarray]]:
        """The names of an output's files, and bool `[rows]`: those of the newest version."""
        for name, ids in _ids_of_files(self.outputs[number], self.granularity):
            yield name, self.are_newest(number, ids)

    def hashes(self) -> np.ndarray:
        """uint64 `[rows]`: the hash of the id of each row of a newest version, in their order."""
        return np.concatenate([self._hashes_of(number) for number in range(len(self.outputs))])

    def overlaps(self) -> Iterator[str]:
        """Says which outputs hold documents twice, as neither names the other beside a third.

        Of a document in many of them each is told beside the last before it.
        """
        later, outputs, number = self._later, self.outputs, len(self.outputs)
        if number == 1:
            return
        earlier = [{run.run for run in runs} - {None} for runs in self.continued]
        pairs = {
            first * number + second
            for first, second in combinations(range(number), 2)
            if not (first in later[second] or second in later[first])
            and not earlier[first].isdisjoint(earlier[second])
        }
        if not pairs:
            return
        of_pairs = sorted({one for pair in pairs for one in divmod(pair, number)})
        held = [np.unique(self._hashes_of(output)) for output in of_pairs]
        ids, holders = np.concatenate(held), np.repeat(of_pairs, list(map(len, held)))
        order = np.argsort(ids, kind="stable")
        same = np.flatnonzero(~first_of_equal(ids[order]))
        twice = Counter((holders[order[same - 1]] * number + holders[order[same]]).tolist())
        for pair in sorted(twice.keys() & pairs):
            documents = twice[pair]
            a, b = (outputs[one].folder for one in divmod(pair, number))
            yield (
                f"{a} and {b} continue the same output and neither names the other: "
                f"{counted(documents, 'document')} of both {'is' if documents == 1 else 'are'} "
                f"given twice. Embed {b} again with overwrite and skip_existing {a}"
            )

    def _hashes_of(self, number: int) -> np.ndarray:
        hashes = [
            id_hashes(ids)[self.are_newest(number, ids)]
            for _, ids in _ids_of_files(self.outputs[number], self.granularity)
        ]
        return np.concatenate([np.empty(0, np.uint64), *hashes])

    @cached_property
    def _held_later(self) -> tuple[np.ndarray, np.ndarray]:
        """uint64, in order: the hashes of ids that later outputs have or delete; int32: in which.

        Of one id those outputs come last that continue most. To sort the ids of all of them once
        takes no longer than to read them, however many continue each other.
        """
        hashes, numbers = [np.empty(0, np.uint64)], [np.empty(0, np.int32)]
        continuing = set[int]().union(*self._later)
        for number in sorted(continuing, key=lambda number: -len(self._later[number])):
            output = self.outputs[number]
            of_output = [id_hashes(ids) for _, ids in _ids_of_files(output, self.granularity)]
            of_output += [id_hashes(batch["id"].to_pylist()) for batch in deleted_rows(output)]
            hashes.append(np.unique(np.concatenate([hashes[0], *of_output])))
            numbers.append(np.full(len(hashes[-1]), number, np.int32))
        every = np.concatenate(hashes)
        order = np.argsort(every, kind="stable")
        return every[order], np.concatenate(numbers)[order]


def id_hashes(ids: Iterable[str | int]) -> np.ndarray:
    """uint64 `[ids]`: the hash of each as text."""
    return text_hashes(map(str, ids))


def _ids_of_files(output: Output, granularity: str) -> Iterator[tuple[str, list[str | int]]]:
    for name, columns in columns_of_files(output, granularity, ("id",)):
        yield name, [id for some in columns for id in some["id"].to_pylist()]


def columns_of_files(
    output: Output, granularity: str, columns: Sequence[str]
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """The names of an output's finished files, and those of some columns that they have."""
    record = output.record
    for name in files_of(output.folder, record, granularity, True, output.finished):
        if not record.is_done and _recorded(output.folder, record, name) is None:
            continue  # nobody reads its rows: they replace none
        batches = row_batches(
            join(output.folder, name),
            output.settings,
            kind=granularity,
            columns=columns,
            vectors=False,
            rows=_ID_ROWS,
        )
        yield name, (batch.columns for batch in batches)


def checked_files(folder: _Folder, record: RunRecord, files: _Files) -> Iterator[Path]:
    """Yields the paths of those listed files that are finished; InputError if one is damaged.

    Each is compared with the block record of its part. A file of a store is a local copy that
    exists until the next one is requested.
    """
    for name, file in files.items():
        with _local_file(folder, name, file) as path:
            with opened(path) as held:
                is_written = _is_written(folder, record, name, path, held)
            if is_written:
                yield path


def each_file(
    folder: _Folder,
    granularity: str,
    read: Callable[[Path, BinaryIO], _Result],
    finished: frozenset[str] | None = None,
) -> Iterator[_Result]:
    """Yields what `read` makes of each finished file of a kind of vectors, in their order.

    `read` gets a path and the file there, which is opened once. Several at a time are fetched,
    compared with their block records and read.
    """
    record = read_run(folder)

    def of_file(listed: tuple[str, FileInfo]) -> list[_Result]:
        with _local_file(folder, *listed) as path, opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            held = io.BytesIO(file.read()) if size <= _HELD_BYTES else file
            is_written = _is_written(folder, record, listed[0], path, held)
            return [read(path, held)] if is_written else []

    threads = available_cores()
    if is_remote(os.fspath(folder)):
        threads = max(threads, _FETCHED)
    files = files_of(folder, record, granularity, True, finished)
    return chain.from_iterable(in_parallel(of_file, files.items(), threads))


def files_of(
    folder: _Folder,
    record: RunRecord,
    granularity: str,
    partial: bool,
    finished: frozenset[str] | None = None,
) -> _Files:
    """The files of vectors of a run, complete unless `partial`, in order."""
    if not record.is_done and not partial:
        raise InputError(
            f"{os.fspath(folder)}: the run is not complete (status {record.status}); run its "
            "command again, or read what is finished with partial=True"
        )
    files: _Files = {}
    for place in KINDS[granularity].places:
        files |= _vectors_in(folder, place, record)
    if finished is None:
        return files
    return {
        name: file for name, file in files.items() if block_record_name(*part_of(name)) in finished
    }


@contextmanager
def _local_file(folder: _Folder, name: str, file: FileInfo) -> Iterator[Path]:
    """The path of a listed file, of one in a store that of a copy."""
    place = join(os.fspath(folder), name)
    if not is_remote(place):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="bert-embed-") as temporary:
        copy = Path(temporary, name)
        copy.parent.mkdir()
        with store_errors(), open_listed(file) as stored, copy.open("wb") as target:
            shutil.copyfileobj(stored, target, _COPIED_BYTES)
        try:
            yield copy
        except InputError as error:  # it names the copy, which is gone when it is read
            message = str(error).replace(str(copy), place)
            raise InputError(message, *error.settings) from error


def _vectors_in(folder: _Folder, kind: str, record: RunRecord) -> _Files:
    """The files of a kind's folder in order; InputError if a complete run wrote others."""
    place = join(os.fspath(folder), kind)
    with store_errors():
        listed = files_in(place, lambda name: holds_vectors(f"{kind}/{name}"))
    files = {f"{kind}/{file.path.rpartition('/')[2]}": file for file in listed}
    size = sum(file.size for file in listed)
    if record.is_done:
        written = record.numbers.written.get(kind, Written(files=0, bytes=0, rows=0))
        if (len(files), size) != (written.files, written.bytes):
            raise InputError(
                f"{place} holds {counted(len(files), 'file')} of "
                f"{counted(size, 'byte')}, its run wrote {written.files} of {written.bytes}: "
                "`bert-embed verify` lists what is missing or extra"
            )
    return {name: files[name] for name in sorted(files, key=by_number)}


def _is_written(folder: _Folder, record: RunRecord, name: str, path: Path, held: BinaryIO) -> bool:
    """Returns whether an open file is finished; files of a run in progress may not be."""
    file = _recorded(folder, record, name)
    if file is None:
        if not record.is_done:
            return False
        if not has_block_records(folder):
            return True
        raise InputError(_damage(path, "no block record of its run names it"))
    size = held.seek(0, os.SEEK_END)
    held.seek(0)
    if (size, crc32c_of_file(held)) != (file["bytes"], file["crc32c"]):
        raise InputError(_damage(path, "size or checksum are not those that its run wrote"))
    return True


def _recorded(folder: _Folder, record: RunRecord, name: str) -> dict[str, Any] | None:
    """Returns the entry of a file in the block record of its part; None if there is none."""
    with store_errors():
        data = read_bytes(join(os.fspath(folder), block_record_name(*part_of(name))))
    try:
        block_record = orjson.loads(data or b"{}")
        file = block_record["files"][name] if block_record["run"] == record.run else None
        return file if file is None or {"bytes", "crc32c"} <= file.keys() else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def has_block_records(folder: _Folder) -> bool:
    """Returns whether a run's folder has block records, with which its files are compared."""
    with store_errors():
        return holds_files(join(os.fspath(folder), BLOCK_RECORDS))


def _damage(path: Path, what: str) -> str:
    return f"{path} is damaged: {what}; `bert-embed verify --repair` writes it again"


def check_holds(folder: _Folder, settings: dict[str, Any], granularity: str) -> None:
    """Raises InputError if a run wrote other kinds of vectors."""
    kinds = kinds_of(settings)
    if granularity not in kinds:
        known = [kind for kind in kinds if kind in KINDS]  # others are those of another version
        readers = " or ".join(f"bert_embed.{KINDS[kind].read_with}" for kind in known)
        flag, wanted = "granularity", granularity
        vectors = KINDS[granularity].vectors
        if vectors not in vectors_of(settings) and KINDS[granularity].by_row:
            flag, wanted = "vectors", vectors
        raise InputError(
            f"{os.fspath(folder)} holds vectors of {' and '.join(kinds)}, none of {granularity}: "
            f"{f'read them with {readers}, or ' * bool(known)}embed "
            f"with {flag} {wanted} into a folder of its own",
            flag,
        )


def vector_settings(folder: _Folder, record: RunRecord) -> dict[str, Any]:
    """Returns what a run says of its vectors: fingerprint, layers, shape; InputError without."""
    if record.vectors is None:
        raise InputError(
            f"{os.fspath(folder)} holds examples, no vectors: give it to embed, as input", "input"
        )
    return record.vectors


def read_run(folder: _Folder) -> RunRecord:
    """Returns a run's record; InputError if there is none, or it is damaged, or no run's."""
    path = os.fspath(folder)
    if is_file(path):
        raise InputError(f"{path} is a file; give the output folder of a run")
    with store_errors():
        record = read_record(path)
        above = os.path.dirname(path.rstrip("/"))
        if record is None and above and read_bytes(join(above, RUN_FILE)) is not None:
            raise InputError(f"{path} is a folder within a run's output; did you mean {above}?")
    if record is None:
        raise InputError(f"{path} is not the output of a run: it holds no {RUN_FILE}")
    return record
