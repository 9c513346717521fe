"""Run rows together, and where that fails in halves, so that one bad row costs only itself."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"


@dataclass
class Vectors:
    """What became of some rows.

    Attributes:
        vectors: float32 `[rows, width]`; zeros for a row that failed.
        failed: Places of the rows that failed, and the reason of each.
        error: One of the errors behind `failed`; None where no call failed.
    """

    vectors: np.ndarray
    failed: dict[int, str] = field(default_factory=dict)
    error: Exception | None = None


def run_halving(rows: np.ndarray, width: int, call: Callable[[np.ndarray], np.ndarray]) -> Vectors:
    """Calls the model with all rows; where it raises, with each half of them.

    Args:
        rows: int64 `[rows]`, at least one.
        width: Numbers of a vector.
        call: Row numbers to float32 `[rows, width]`; may raise.
    """
    try:
        vectors = call(rows)
    except Exception as error:
        if len(rows) == 1:
            return Vectors(np.zeros((1, width), np.float32), {0: reason_of(error)}, error)
    else:
        return _finite(vectors)
    # Outside the except clause: there the frames that hold the failed call's memory still live.
    middle = len(rows) // 2
    first, second = (run_halving(half, width, call) for half in (rows[:middle], rows[middle:]))
    failed = first.failed | {middle + place: why for place, why in second.failed.items()}
    vectors = np.concatenate([first.vectors, second.vectors])
    return Vectors(vectors, failed, first.error or second.error)


def _finite(vectors: np.ndarray) -> Vectors:
    finite = np.isfinite(vectors).all(axis=1)
    if finite.all():
        return Vectors(vectors)
    failed = {int(place): NOT_FINITE for place in np.flatnonzero(~finite)}
    return Vectors(np.where(finite[:, None], vectors, np.float32(0)), failed)


def reason_of(error: Exception) -> str:
    """Returns the short fixed phrase under which a failed call is counted.

    >>> reason_of(MemoryError()), reason_of(ZeroDivisionError("a text would stand here"))
    ('out of memory', 'model error: ZeroDivisionError')
    """
    name = type(error).__name__
    exhausted = isinstance(error, MemoryError) or name == "ResourceExhaustedError"
    return OUT_OF_MEMORY if exhausted else f"model error: {name}"
