"""What this process may lack or have: optional packages, somebody who watches how far it is."""

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.abc import MetaPathFinder
from typing import Any

from bert_embed.base.errors import InputError, counted

_WITHOUT_TENSORFLOW = (3, 14)  # the first Python that it has no wheels for, as in pyproject.toml


@contextmanager
def requires(what: str, *packages: str) -> Iterator[None]:
    """Has a failed import in its block say what needs which packages, and how to install them."""
    try:
        yield
    except ImportError as error:
        raise InputError(missing(what, *packages)) from error


def missing(what: str, *packages: str) -> str:
    """Returns the sentence for packages that are not installed, with the command for it."""
    needs = f"{what} requires {' and '.join(packages)}"
    if "tensorflow" in packages and sys.version_info >= _WITHOUT_TENSORFLOW:
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"{needs}; TensorFlow has no wheels for {python}: make an environment with Python 3.13"
        )
    which = "which is" if len(packages) == 1 else "which are"
    return f"{needs}, {which} not installed here: pip install {shlex.join(packages)}"


def in_notebook() -> bool:
    """Whether stderr is the output of a notebook's cell."""
    return type(sys.stderr).__module__.startswith("ipykernel")


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


_PIECE = 1024  # texts between two messages: enough to group them by length
_PAUSE = 0.5  # seconds between messages, at least


def in_pieces(
    columns: Mapping[str, Any],
) -> Iterator[tuple[dict[str, Any], Callable[[float], None]]]:
    """Yields columns of texts in pieces, with a line that says how many texts are done.

    With each piece comes what takes further shares of it that are done, from any thread.
    """
    total = len(columns["texts"])
    in_cell = in_notebook()
    show = cell_line() if in_cell else _stderr_line()
    started = shown = time.monotonic()
    lock, done, is_over = threading.Lock(), 0.0, False

    def add(size: int, share: float) -> None:
        nonlocal done, shown
        with lock:
            done += size * share
            now = time.monotonic()
            if now - shown >= _PAUSE and not is_over:
                shown = now
                show(_progress(int(done), total, now - started))

    try:
        for begin in range(0, total, _PIECE):
            piece = slice(begin, begin + _PIECE)
            texts = {
                name: None if values is None else values[piece] for name, values in columns.items()
            }
            size = min(_PIECE, total - begin)
            yield texts, partial(add, size)
            done = begin + size  # of all threads, which have come to an end
    finally:
        is_over = True  # also where Ctrl-C left threads that compute
    show(_progress(total, total, time.monotonic() - started))
    if not in_cell:
        _put("\n")


def _progress(done: int, total: int, seconds: float) -> str:
    return f"{done:,} of {counted(total, 'text')}, {done / max(seconds, 1e-3):,.0f} texts/s"


def _stderr_line() -> Callable[[str], None]:
    """What writes a line over the one that it wrote before."""
    length = 0

    def show(line: str) -> None:
        nonlocal length
        _put(f"\r{line.ljust(length)}")
        length = len(line)

    return show


def _put(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def absent(*packages: str) -> Iterator[None]:
    """Makes imports of packages fail, but for modules that were imported before."""
    finder = Absent(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class Absent(MetaPathFinder):
    """Answers for packages that are not installed."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Finds nothing, and ends the search for these packages."""
        # A part of a package, too: start files of Python may have imported the name `google.cloud`.
        if any(f"{fullname}.".startswith(f"{name}.") for name in self._packages):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
