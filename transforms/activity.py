"""Says what a process does while it finishes no blocks, for the people who wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

_doing: list[str] = []  # of any thread; the one that began last says what people see


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Names what this process does, such as "loading the model", until the block ends."""
    _doing.append(name)
    try:
        yield
    finally:
        _doing.remove(name)


def current_activity() -> str | None:
    """What this process does now; None if nothing that has a name."""
    return _doing[-1] if _doing else None
