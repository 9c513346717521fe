"""Shows on stderr, or below a notebook's cell, how many texts of a call are done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bert_embed.base.environment import in_notebook
from bert_embed.base.errors import counted

_PAUSE = 0.5  # seconds between messages, at least


def cell_line() -> Callable[[str], None]:
    """What shows a line in place of the one that it showed before; a saved notebook has the last.

    Lines on stderr would all be saved, in red.
    """
    from IPython.display import display

    handle: Any = None

    def show(line: str) -> None:
        nonlocal handle
        shown = {"text/plain": line}
        if handle is None:
            handle = display(shown, raw=True, display_id=True)
        else:
            handle.update(shown, raw=True)

    return show


@contextmanager
def texts_done(total: int) -> Iterator[Callable[[float], None]]:
    """Shows how many texts of a call are done; gives what takes further shares, from any thread."""
    started = shown = time.monotonic()
    show = cell_line() if in_notebook() else _put
    done = 0.0

    def add(share: float) -> None:
        nonlocal done, shown
        done += total * share
        if (now := time.monotonic()) - shown >= _PAUSE:
            shown = now
            show(_progress(done, total, now - started))

    yield add
    show(_progress(total, total, time.monotonic() - started))
    if show is _put:
        _put("", end="\n")


def _progress(done: float, total: int, seconds: float) -> str:
    return f"{done:,.0f} of {counted(total, 'text')}, {done / max(seconds, 1e-3):,.0f} texts/s"


def _put(line: str, end: str = "") -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it
        sys.stderr.write(end or f"\r{line:<50}")  # over the one before
        sys.stderr.flush()
