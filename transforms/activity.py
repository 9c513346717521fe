"""What this process does now, for people who watch: its activity, and the parts in work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


@dataclass
class PartInWork:
    """A part that the model computes in this process, or that it has computed."""

    records: int
    covered: int  # bytes of its file, or rows
    share: float = 0.0  # of it that is computed


PartsInWork = dict[tuple[int, int], PartInWork]  # by their blocks' numbers and their own

_watching: list[PartsInWork] = []
_parts_lock = threading.Lock()  # of these, and of the shares of their parts


@contextmanager
def watching_parts() -> Iterator[PartsInWork]:
    """Gives the parts that this process computes from now on; who reads them takes them out."""
    parts: PartsInWork = {}
    _watching.append(parts)
    try:
        yield parts
    finally:
        with _parts_lock:
            _watching[:] = [others for others in _watching if others is not parts]


def computing(
    block: int, number: int, records: int, covered: int
) -> Callable[[float], None] | None:
    """What takes further shares of a part that are computed; None where nobody watches."""
    if not _watching:
        return None
    part = PartInWork(records, covered)
    with _parts_lock:
        for parts in _watching:
            parts[block, number] = part

    def tell(share: float) -> None:
        with _parts_lock:
            part.share += share

    return tell
