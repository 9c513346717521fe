"""Under way: marks of blocks that a process has begun; what a process leaves behind when it dies.

A mark is a small file in `<output>/under_way/`, written when a reader begins a block and removed
when the block is through, or has failed while the process lived on. So a mark that stays tells of a
process that was killed, ran out of memory or crashed, and of the block that it had before it.
"""

import atexit
import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import orjson

from transforms.accounting import read_report, report_path
from transforms.block_spec import BlockSpec
from transforms.files import (
    is_remote,
    is_running,
    join,
    make_folder,
    names_in,
    read_bytes,
    remove,
    write_bytes,
)

_LOG = logging.getLogger(__name__)
_FOLDER = "under_way"
_FORMAT = 1
_REMOTE_THREADS = 4  # marks of a store are written and removed beside the work, which never waits

_lock = threading.Lock()
_mine: dict[str, Future | None] = {}  # marks of this process that stand; of a store their upload
_pool: ThreadPoolExecutor | None = None
_ended = False  # threads may still begin a block while the process ends


@dataclass(frozen=True)
class Death:
    """A block that was under way when a process died.

    Attributes:
        block: Its number.
        times: In how many processes.
        place: What it was to read.
        certain: Whether they died on this host; of others it is only known that they did not end.
    """

    block: int
    times: int
    place: str
    certain: bool


@contextlib.contextmanager
def under_way(output: str, run: str, spec: BlockSpec) -> Iterator[None]:
    """Marks a block while a process works on it.

    A mark that cannot be written is logged and left out: it is a help, the work goes on.

    Args:
        output: Folder of the run.
        run: Its fingerprint.
        spec: The block.
    """
    name = f"{spec.number:07d}-{spec.stripe:05d}-{uuid.uuid4().hex[:12]}.json"
    path = join(output, f"{_FOLDER}/{name}")
    mark = {
        "format": _FORMAT,
        "run": run,
        "block": spec.number,
        "place": place_of(spec),
        "host": socket.gethostname(),
        "process": os.getpid(),
    }
    _put(path, orjson.dumps(mark))
    try:
        yield
    finally:
        _take_away(path)


def place_of(spec: BlockSpec) -> str:
    """What a block reads, for people.

    >>> place_of(BlockSpec(3, "bigquery", ()))
    'rows of the table'
    """
    if not spec.slices:
        return "rows of the table"
    first, last = spec.slices[0], spec.slices[-1]
    if first is not last:
        return f"{len(spec.slices)} files, {first.info.path} to {last.info.path}"
    what = "rows" if spec.format == "parquet" else "bytes"
    return f"{first.info.path}, {what} {first.start} to {first.stop}"


def deaths(output: str, run: str) -> list[Death]:
    """The blocks of a run that were under way when a process died and are not done since.

    Marks of processes of this host that are alive do not count. Of other hosts no one can be sure:
    a job that runs there at this moment looks the same.
    """
    found: dict[int, Death] = {}
    for name in sorted(marks(output)):
        mark = _read(join(output, f"{_FOLDER}/{name}"), run)
        if mark is not None:
            last = found.get(mark.block, replace(mark, times=0))
            both = last.certain and mark.certain
            found[mark.block] = replace(mark, times=last.times + 1, certain=both)
    ordered = sorted(found.values(), key=lambda each: (-each.times, each.block))
    return [each for each in ordered if not _is_done(output, run, each.block)]


def marks(output: str) -> frozenset[str]:
    """The names of all marks of a folder."""
    return frozenset(names_in(join(output, _FOLDER)))


def forget_deaths(output: str, but: frozenset[str] = frozenset()) -> None:
    """Removes the marks of a folder: everything is done, or what died since was meant to.

    Args:
        output: Folder of the run.
        but: Marks that stay.
    """
    folder = join(output, _FOLDER)
    remove([join(folder, name) for name in sorted(marks(output) - but)])
    if not is_remote(output):
        with contextlib.suppress(OSError):  # another process marked a block just now
            os.rmdir(folder)


def _read(path: str, run: str) -> Death | None:
    data = read_bytes(path)
    try:
        mark = orjson.loads(data or b"")
        if mark["format"] != _FORMAT or mark["run"] != run:
            return None
        here = mark["host"] == socket.gethostname()
        if here and is_running(int(mark["process"])):
            return None
        return Death(int(mark["block"]), 1, str(mark["place"]), here)
    except (KeyError, TypeError, ValueError):
        return None  # cut off when the process died, or not ours


def _is_done(output: str, run: str, block: int) -> bool:
    """Whether the reports of a block go up to a last one."""
    part, last = 0, False
    while (report := read_report(report_path(output, block, part), run)) is not None:
        part, last = part + 1, report.last
    return last


def _put(path: str, data: bytes) -> None:
    with _lock:
        if _ended:
            return
        if is_remote(path):
            _mine[path] = _threads().submit(_write, path, data)
        else:
            _mine[path] = None
            _write(path, data)


def _write(path: str, data: bytes) -> None:
    try:
        if is_remote(path):
            write_bytes(path, data)
        else:
            make_folder(os.path.dirname(path))
            with open(path, "wb") as file:  # a death of the process, not of the machine, is meant
                file.write(data)
    except OSError as error:
        _LOG.warning("the mark %s cannot be written: %s", path, error)


def _take_away(path: str) -> None:
    with _lock:
        if path not in _mine:
            return
        written = _mine.pop(path)
        if written is not None:
            with contextlib.suppress(RuntimeError):  # the process ends, no thread may begin
                _threads().submit(_remove, path, written)
                return
    _remove(path, written)


def _remove(path: str, written: Future | None = None) -> None:
    if written is not None:
        written.result()
    try:
        remove([path])
    except OSError as error:
        _LOG.warning("the mark %s cannot be removed: %s", path, error)


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(_REMOTE_THREADS, "marks")
    return _pool


@atexit.register
def _withdraw() -> None:
    """At the orderly end of a process, after an error or Ctrl-C: it did not die."""
    global _ended
    with _lock:
        _ended = True
        left = dict(_mine)
        _mine.clear()
    for path, written in left.items():
        _remove(path, written)
