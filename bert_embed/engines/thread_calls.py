"""Calls a function with items on several threads, and gives up when no call finishes."""

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from bert_embed.native_calls import give_up, native_call, wait_at_exit

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Forked(Protocol):
    """What holds locks: a process forked while another thread held one would wait for ever.

    So would one that exits, whose other threads begin no more calls.
    """

    def after_fork(self) -> None:
        """Renews the locks, in the new process, or that which exits."""


_forked: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def renew_after_fork(holder: Forked) -> None:
    """Has `holder.after_fork` called in each process that is forked from this one."""
    _forked.add(holder)


def _after_fork() -> None:
    for holder in list(_forked):
        holder.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
wait_at_exit(_after_fork)


class NoProgressError(RuntimeError):
    """No call finished in time."""


class Places:
    """Places for calls at the same time, which several threads share; who came first is first.

    A thread that an exception stops while it waits, as Ctrl-C does, may leave them unusable.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._turn = threading.Lock()  # of the one that waits for places
        self._freed = threading.Condition()

    @contextmanager
    def taken(self, places: int) -> Iterator[None]:
        """Holds so many places, at most all of them, and waits until they are free."""
        with self._turn, self._freed:
            self._freed.wait_for(lambda: self._free >= places)
            self._free -= places
        try:
            yield
        finally:
            with self._freed:
                self._free += places
                self._freed.notify_all()


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
        give_up(worker.ident for worker in workers)
        raise NoProgressError(f"no call came to an end in {timeout:g} s")
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
