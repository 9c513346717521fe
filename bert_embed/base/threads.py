"""Runs functions in threads, in order, and keeps native calls from running while Python exits.

CPython before 3.14 ends a daemon thread by unwinding its stack where it comes back from native code
while Python exits, and C++ and Rust do not survive that: the process ends by SIGABRT. So before it,
at exit, the running calls are waited for, and no thread but the exiting one begins another.
"""

import atexit
import itertools
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

THREADS = 16
_WAITING = 4 * THREADS  # results that may be held: bounds the memory

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(
    function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = THREADS
) -> Iterator[_Result]:
    """Yields `function` of each item, in order; an error is raised in its place."""
    remaining = iter(items)
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in itertools.islice(remaining, _WAITING):
            waiting.append(pool.submit(function, item))
        while waiting:
            result = waiting.popleft().result()
            for item in itertools.islice(remaining, 1):
                waiting.append(pool.submit(function, item))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_MOST_SECONDS = 10.0  # that an exit waits: a call, of one batch, may hang
_POLL_SECONDS = 0.001
# By their threads. Sets change in one step of the interpreter, so that no lock is needed: a call
# is entered before it looks whether the exit began, which begins before it looks for calls.
_running: set[int] = set()
_exiting: list[int] = []  # the thread that exits


@contextmanager
def native_call(caller: int | None = None) -> Iterator[None]:
    """Marks a call into native code, on behalf of another thread where `caller` is its number.

    Once the exit began it does not come back, except in the thread that exits or for it: other
    handlers at exit may call.
    """
    thread = threading.get_ident()
    if thread in _running:  # within another call
        yield
        return
    _running.add(thread)
    try:
        if _exiting and (thread if caller is None else caller) not in _exiting:
            _running.discard(thread)
            threading.Event().wait()  # for the end of the process
        yield
    finally:
        _running.discard(thread)


def wait_at_exit() -> None:
    """Has the exit wait before all handlers that were registered so far, as those of engines."""
    atexit.unregister(_wait)
    atexit.register(_wait)


def _wait() -> None:
    # Not earlier: threads that are no daemons, and those of executors, have ended by now.
    _exiting.append(threading.get_ident())
    stop = time.monotonic() + _MOST_SECONDS
    while _running.difference(_exiting) and time.monotonic() < stop:
        time.sleep(_POLL_SECONDS)
    _renew()  # with no call under way but those that hang


_forked: "weakref.WeakSet[Any]" = weakref.WeakSet()


def renew_after_fork(holder: Any) -> None:
    """Has `holder.after_fork` renew its locks in each process that is forked from this one.

    One forked while another thread held a lock would wait for ever. So would one that exits, whose
    other threads begin no more calls.
    """
    _forked.add(holder)


def _renew() -> None:
    for holder in list(_forked):
        holder.after_fork()


def _after_fork() -> None:
    _running.intersection_update((threading.get_ident(),))
    _renew()


wait_at_exit()
os.register_at_fork(after_in_child=_after_fork)


class SharedSetting:
    """A setting of the process, which may be a caller's: changed while any thread is inside.

    `change` changes it and returns what it was; the last thread gives that to `restore`.
    """

    def __init__(self, change: Callable[[], Any], restore: Callable[[Any], object]) -> None:
        self._change, self._restore = change, restore
        self._lock, self._inside, self._before = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = self._change()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore(self._before)


class NoProgressError(RuntimeError):
    """No call finished in time."""


def run_each(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    threads: int,
    timeout: float | None = None,
) -> list[_Result]:
    """Calls the function with each item, `threads` at a time; the results are in the items' order.

    A call into native code cannot be stopped. So the threads are daemons: unlike an executor's, a
    thread that hangs blocks neither the caller nor the end of the process. After `timeout` seconds
    without a finished call NoProgressError says so, and no further call begins. What a call raised
    is raised after the other running calls have finished.
    """
    running = min(threads, len(items))
    numbers = iter(range(len(items)))  # shared; the interpreter takes each number once
    ended: queue.SimpleQueue[tuple[int | None, Any]] = queue.SimpleQueue()
    stopped = threading.Event()
    caller = threading.get_ident()

    def work() -> None:
        error: BaseException | None = None
        try:
            while not stopped.is_set() and (number := next(numbers, None)) is not None:
                with native_call(caller):
                    ended.put((number, function(items[number])))
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's thread
            error = raised
            stopped.set()
        ended.put((None, error))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(running)]
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []
    try:
        for worker in workers:
            worker.start()
        while running:
            number, result = ended.get(timeout=timeout)
            if number is not None:
                results[number] = result
                continue
            running -= 1
            errors += [] if result is None else [result]
    except queue.Empty:
        pass  # raised below, so that the error does not have this one as its context
    finally:
        stopped.set()
    if running:
        _running.difference_update(worker.ident for worker in workers)  # so that no exit waits
        raise NoProgressError(f"no call came to an end in {timeout:g} s")
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
