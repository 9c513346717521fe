"""Threads: a function over items on several of them, given up once no call comes to an end."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class NoProgressError(RuntimeError):
    """For too long no call came to an end."""


def run_each(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    threads: int,
    timeout: float | None = None,
) -> list[_Result]:
    """Calls the function with each item; a list of the results in the items' order.

    A call into native code cannot be stopped. So the threads are daemons: one that hangs keeps
    neither the caller nor, later, the end of the process waiting, as an executor's would.

    Args:
        function: May be called by several threads at once.
        items: In the order they are begun.
        threads: How many calls are under way at once.
        timeout: Seconds after which it gives up if no call ended meanwhile; None waits for ever.

    Raises:
        NoProgressError: It gave up. Calls that hang stay where they are, no further one is begun.
        BaseException: What a call raised, once the others that were under way have ended.

    >>> run_each(len, ["a", "bcd", ""], 2)
    [1, 3, 0]
    """
    calls = _Calls(function, items)
    running = min(threads, len(items))
    for _ in range(running):
        threading.Thread(target=calls.work, daemon=True).start()
    results: dict[int, _Result] = {}
    try:
        while running:
            number, result = calls.next(timeout)
            if number is None:
                running -= 1
            else:
                results[number] = result
    finally:
        calls.stopped.set()
    if calls.errors:
        raise calls.errors[0]
    return [results[number] for number in range(len(items))]


class _Calls:
    """What threads take their calls from, and where they put the results."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._function, self._items = function, items
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(items)):
            self._waiting.put(number)
        self._ended: queue.SimpleQueue[tuple[int | None, Any]] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        self.stopped = threading.Event()

    def work(self) -> None:
        """Makes call after call; at the end of a thread stands a result without a number."""
        try:
            while not self.stopped.is_set() and (number := self._number()) is not None:
                self._ended.put((number, self._function(self._items[number])))
        except BaseException as error:  # raised again where the caller waits
            self.errors.append(error)
            self.stopped.set()
        self._ended.put((None, None))

    def _number(self) -> int | None:
        try:
            return self._waiting.get_nowait()
        except queue.Empty:
            return None

    def next(self, timeout: float | None) -> tuple[int | None, Any]:
        """The number and result of the call that ended next."""
        try:
            return self._ended.get(timeout=timeout)
        except queue.Empty:
            pass  # outside the clause, so that the error has no such cause
        raise NoProgressError(f"no call came to an end in {timeout:g} s")
