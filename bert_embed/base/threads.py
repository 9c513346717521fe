"""Runs functions in threads, in order, and keeps native calls from running while Python exits.

CPython before 3.14 ends a daemon thread by unwinding its stack where it comes back from native code
while Python exits, and C++ and Rust do not survive that: the process ends by SIGABRT. So before it,
at exit, the running calls are waited for, and no thread but the exiting one begins another.
"""

import atexit
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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
_after: list[Callable[[], object]] = []


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


def give_up(threads: Iterable[int | None]) -> None:
    """Says that calls hang, so that nothing waits for them."""
    _running.difference_update(threads)


def wait_at_exit(then: Callable[[], object] | None = None) -> None:
    """Has the exit wait before all handlers that were registered so far, as those of engines.

    `then` is called after it, with no call under way but those that hang.
    """
    if then is not None:
        _after.append(then)
    atexit.unregister(_wait)
    atexit.register(_wait)


def _wait() -> None:
    # Not earlier: threads that are no daemons, and those of executors, have ended by now.
    _exiting.append(threading.get_ident())
    stop = time.monotonic() + _MOST_SECONDS
    while _running.difference(_exiting) and time.monotonic() < stop:
        time.sleep(_POLL_SECONDS)
    for then in _after:
        then()


def _after_fork() -> None:
    _running.intersection_update((threading.get_ident(),))


wait_at_exit()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
