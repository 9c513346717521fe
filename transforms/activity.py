"""Signs of life: what this process does now, and on which blocks processes of a run work.

A crash marker is a small file in `<output>/_state/working/`, from when a reader begins a block
until the block is done, or has failed while the process continues. So a marker that remains
names a process that was killed, ran out of memory or crashed, and the block it worked on.
"""

import atexit
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import orjson

from bert_embed.base.errors import InputError
from bert_embed.base.json import from_json, json_object, to_json
from bert_embed.storage.files import is_remote, make_below, read_bytes, remove, write_bytes
from bert_embed.storage.local import is_running, pid_namespace
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BlockSpec

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_REMOTE_THREADS = 4  # write and remove the markers of a store, so that the work never waits

_lock = threading.Lock()
_mine: dict[str, Future | None] = {}  # markers of this process; for a store with their upload
_pool = ThreadPoolExecutor(_REMOTE_THREADS, "marks")  # starts no thread before it has work
_ended = False  # threads may begin a block while the process ends


@dataclass(frozen=True)
class Crash:
    """A block in work when so many processes crashed; `certain` on this host alone."""

    block: int
    times: int
    place: str
    certain: bool


@dataclass(frozen=True)
class Marker:
    """What a crash marker says: which process of which host works on a block."""

    block: int
    part: int | None  # of a file that was cut; None: the whole block
    place: str
    host: str
    process: int  # its number counts in its `namespace`
    namespace: str
    since: float = 0.0  # seconds since 1970

    @property
    def is_here(self) -> bool:
        """Whether the process runs on this host, in this namespace, or ran there."""
        return (self.host, self.namespace) == (socket.gethostname(), pid_namespace())

    @property
    def has_crashed(self) -> bool:
        """Whether the process is known to have ended: it ran on this host and is gone."""
        return self.is_here and not is_running(self.process)


@contextmanager
def crash_marker(output: str, run: str, spec: BlockSpec) -> Iterator[None]:
    """Marks a block of a run while a process works on it; only warns if it cannot be written."""
    part = None if spec.cut is None else spec.cut.part.number
    path = OutputFolder(output).marker(spec.number, part or 0, uuid.uuid4().hex[:12])
    here = socket.gethostname(), os.getpid(), pid_namespace()
    marker = Marker(spec.number, part, place_of(spec), *here)
    _add(path, orjson.dumps({"format": _FORMAT, "run": run} | to_json(marker)))
    try:
        yield
    finally:
        _remove_later(path)


def place_of(spec: BlockSpec) -> str:
    """What a block reads, for people.

    >>> place_of(BlockSpec(3, "bigquery", ()))
    'rows of the table'
    """
    if not spec.slices:
        return "rows of the table"
    first, last = spec.slices[0], spec.slices[-1]
    if spec.cut is not None and spec.cut.size:
        (records,) = spec.cut.part.contents
        stop = records.offset + spec.cut.size
        text = "bytes" if spec.compression is None else "decompressed bytes"
        return f"{first.info.path}, {text} {records.offset} to {stop}"
    if first is not last:
        return f"{len(spec.slices)} files, {first.info.path} to {last.info.path}"
    what = "rows" if spec.format == "parquet" else "bytes"
    return f"{first.info.path}, {what} {first.start} to {first.stop}"


def crashes(output: str, run: str) -> list[Crash]:
    """Blocks whose process crashed, if not done since; uncertain on other hosts."""
    by_block: dict[int, Crash] = {}
    for path in sorted(OutputFolder(output).markers()):
        marker = _parse(read_bytes(path) or b"", run)
        if marker is None or (marker.is_here and not marker.has_crashed):
            continue
        if not _is_done(output, run, marker):
            new = Crash(marker.block, 0, marker.place, marker.is_here)
            before = by_block.get(marker.block, new)
            both = before.certain and marker.is_here
            by_block[marker.block] = replace(new, times=before.times + 1, certain=both)
    return sorted(by_block.values(), key=lambda crash: (-crash.times, crash.block))


def clear_crash_markers(output: str, but: frozenset[str] = frozenset()) -> None:
    """Removes crash markers but some, because all is done or processes were stopped."""
    folder = OutputFolder(output)
    folder.remove_markers(folder.markers() - but)


def read_markers(output: str, run: str, known: dict[str, Marker]) -> dict[str, Marker]:
    """A run's whole crash markers by name, of running processes too; reads what is not `known`."""
    names, new = OutputFolder(output).new_markers(known)
    read = {name: _parse(data, run, since) for name, (since, data) in new.items()}
    parsed = {name: marker for name, marker in read.items() if marker is not None}
    return {name: marker for name, marker in known.items() if name in names} | parsed


def _parse(data: bytes, run: str, since: float = 0.0) -> Marker | None:
    """What a crash marker says; None if it is incomplete since the crash, or not ours."""
    try:
        mark = json_object(data, "a crash marker")
        marker = from_json(Marker, {"part": None} | mark | {"since": since}, "a crash marker")
    except InputError:
        return None
    ours = (mark.get("format"), mark.get("run")) == (_FORMAT, run)
    return marker if ours else None


def _is_done(output: str, run: str, marker: Marker) -> bool:
    """Whether what a process worked on has all its block records now."""
    folder = OutputFolder(output)
    if marker.part is not None:
        return read_block_record(folder, marker.block, marker.part, run) is not None
    part, last = 0, False
    while (record := read_block_record(folder, marker.block, part, run)) is not None:
        part, last = part + 1, record.last
    return last


def _add(path: str, data: bytes) -> None:
    with _lock:
        if _ended:
            return
        if is_remote(path):
            _mine[path] = _pool.submit(_write, path, data)
        else:
            _mine[path] = None
            _write(path, data)


def _write(path: str, data: bytes) -> None:
    try:
        if is_remote(path):
            write_bytes(path, data)
        else:
            output, state, working, _ = path.rsplit("/", 3)
            make_below(output, f"{state}/{working}")
            with open(path, "wb") as file:  # for crashes of the process, so no sync
                file.write(data)
    except OSError as error:
        _LOG.warning("the crash marker %s cannot be written: %s", path, error)


def _remove_later(path: str) -> None:
    """Removes a marker, and only then forgets it: a thread may stop anywhere as a process ends."""
    with _lock:
        if path not in _mine:
            return
        written = _mine[path]
        if written is None:
            _remove(path)
        else:
            try:
                _pool.submit(_remove, path, written)
            except RuntimeError:  # the process ends, no new thread can start: `end_markers` follows
                return
        del _mine[path]


def _remove(path: str, written: Future | None = None) -> None:
    if written is not None:
        written.result()
    try:
        remove([path])
    except OSError as error:
        _LOG.warning("the crash marker %s cannot be removed: %s", path, error)


@atexit.register
def end_markers() -> None:
    """Removes the markers as a process ends without a crash; threads that go on write none."""
    global _ended
    with _lock:
        _ended = True
        left = dict(_mine)
        _mine.clear()
    for path, written in left.items():
        _remove(path, written)


_doing: list[str] = []  # of any thread; the one that began last says what people see


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Names what this process does, such as "loading the model", until the block ends."""
    _doing.append(name)
    try:
        yield
    finally:
        _doing.remove(name)


def current_activity() -> str | None:
    """What this process does now; None if nothing that has a name."""
    return _doing[-1] if _doing else None


@dataclass
class PartInWork:
    """A part that the model computes in this process, or that it has computed."""

    records: int
    covered: int  # bytes of its file, or rows
    share: float = 0.0  # of it that is computed


PartsInWork = dict[tuple[int, int], PartInWork]  # by their blocks' numbers and their own

_watching: list[PartsInWork] = []
_parts_lock = threading.Lock()  # of these, and of the shares of their parts


@contextmanager
def watching_parts() -> Iterator[PartsInWork]:
    """Gives the parts that this process computes from now on; who reads them takes them out."""
    parts: PartsInWork = {}
    _watching.append(parts)
    try:
        yield parts
    finally:
        with _parts_lock:
            _watching[:] = [others for others in _watching if others is not parts]


def computing(
    block: int, number: int, records: int, covered: int
) -> Callable[[float], None] | None:
    """What takes further shares of a part that are computed; None where nobody watches."""
    if not _watching:
        return None
    part = PartInWork(records, covered)
    with _parts_lock:
        for parts in _watching:
            parts[block, number] = part

    def tell(share: float) -> None:
        with _parts_lock:
            part.share += share

    return tell
