"""Runs rows together, and in halves where that fails, so that only a bad row itself fails."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"


@dataclass
class Outcome:
    """Which rows failed."""

    failed: dict[int, str] = field(default_factory=dict)  # the reason of each failed row, by number
    error: Exception | None = None  # one that caused `failed`; None where no call raised


def run_halving(rows: np.ndarray, call: Callable[[np.ndarray], np.ndarray]) -> Outcome:
    """Calls the model with all rows, int64 `[rows]`; where it raises, with each half of them.

    `call` stores the outputs of rows, and returns bool `[rows]`: whether all of a row are finite.
    """
    try:
        finite = call(rows)
    except Exception as error:  # noqa: BLE001
        if len(rows) == 1:
            return Outcome({int(rows[0]): reason_of(error)}, error)
    else:
        return Outcome({int(row): NOT_FINITE for row in rows[~finite]})
    # Not in the except clause, where the traceback still holds the memory of the failed call.
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
