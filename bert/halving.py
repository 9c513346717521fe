"""Run rows together, and where that fails in halves, so that one bad row costs only itself."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"


@dataclass
class Outcome:
    """What became of some rows.

    Attributes:
        failed: Numbers of the rows that failed, and the reason of each.
        error: One of the errors behind `failed`; None where no call failed.
    """

    failed: dict[int, str] = field(default_factory=dict)
    error: Exception | None = None


def run_halving(rows: np.ndarray, call: Callable[[np.ndarray], np.ndarray]) -> Outcome:
    """Calls the model with all rows; where it raises, with each half of them.

    Args:
        rows: int64 `[rows]`, at least one.
        call: Takes row numbers, keeps what the model makes of them, and returns bool `[rows]`:
            whether all numbers of a row are finite. May raise.
    """
    try:
        finite = call(rows)
    except Exception as error:
        if len(rows) == 1:
            return Outcome({int(rows[0]): reason_of(error)}, error)
    else:
        return Outcome({int(row): NOT_FINITE for row in rows[~finite]})
    # Outside the except clause: there the frames that hold the failed call's memory still live.
    middle = len(rows) // 2
    first, second = (run_halving(half, call) for half in (rows[:middle], rows[middle:]))
    return Outcome(first.failed | second.failed, first.error or second.error)


def reason_of(error: Exception) -> str:
    """Returns the short fixed phrase under which a failed call is counted.

    >>> reason_of(MemoryError()), reason_of(ZeroDivisionError("a text would stand here"))
    ('out of memory', 'model error: ZeroDivisionError')
    """
    name = type(error).__name__
    exhausted = isinstance(error, MemoryError) or name == "ResourceExhaustedError"
    return OUT_OF_MEMORY if exhausted else f"model error: {name}"
