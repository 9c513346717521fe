"""Runs a function that waits for a network in many threads; gives the results in order."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
