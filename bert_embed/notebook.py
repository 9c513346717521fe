"""Shows a line in the output of a notebook's cell, and changes it there."""

import sys
from collections.abc import Callable
from typing import Any


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
