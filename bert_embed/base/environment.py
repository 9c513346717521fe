"""What this process may lack or have: optional packages, a notebook to write to."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bert_embed.base.errors import InputError


@contextmanager
def requires(what: str, *packages: str) -> Iterator[None]:
    """Has a failed import in its block say what needs which packages, and how to install them."""
    try:
        yield
    except ImportError as error:
        raise InputError(missing(what, *packages)) from error


def missing(what: str, *packages: str) -> str:
    """Returns the sentence for packages that are not installed, with the command for it."""
    which = "which is" if len(packages) == 1 else "which are"
    return (
        f"{what} requires {' and '.join(packages)}, {which} not installed here: "
        f"pip install {shlex.join(packages)}"
    )


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
