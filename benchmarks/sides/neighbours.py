"""Whether a vector depends on its neighbours: the same rows in several companies, compared."""

from collections.abc import Callable, Sequence

import numpy as np

_ROWS, _LENGTH, _PADDED = 32, 20, 40
_TOGETHER = 12  # rows beside one of twice the length: no plan of batches parts so few
_BUDGET = 4096

# (input_ids, row_splits, budget) to float32 `[rows, hidden]` and the number of padded tokens
Embed = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, int]]


def company(embed: Embed, ids: np.ndarray, splits: np.ndarray) -> dict[str, dict[str, float]]:
    """Compares rows that ran together with the same rows alone, among others, and padded.

    Args:
        embed: The engine.
        ids: int32 `[tokens]`, rows of every kind end to end; rows of the lengths needed are made
            of them.
        splits: int64 `[rows + 1]`.

    Returns:
        For each company, how many of the rows kept every bit, and the smallest cosine.
    """
    inner = ids[ids > 999]  # words: neither padding nor [CLS] and [SEP] in the midst of a row
    first, last = ids[splits[0]], ids[splits[1] - 1]
    rows = [_row(inner, at, _LENGTH, first, last) for at in range(_ROWS)]
    others = [_row(inner, _ROWS + at, _LENGTH, first, last) for at in range(_ROWS)]
    long = _row(inner, _ROWS, _PADDED, first, last)
    together = _vectors(embed, rows)
    starts = range(0, _ROWS, _TOGETHER)
    groups = [rows[at : at + _TOGETHER] for at in starts]
    seen = {
        "others": _vectors(embed, [*others, *rows])[_ROWS:],
        "alone": np.concatenate([_vectors(embed, [row]) for row in rows]),
        "padded": np.concatenate([_vectors(embed, [*group, long])[:-1] for group in groups]),
    }
    return {
        name: {
            "equal": int((vectors == together).all(axis=1).sum()),
            "smallest_cosine": round(float((vectors * together).sum(axis=1).min()), 6),
        }
        for name, vectors in seen.items()
    }


def _row(inner: np.ndarray, number: int, length: int, first: int, last: int) -> np.ndarray:
    words = inner[number * _PADDED :][: length - 2]
    return np.concatenate(([first], words, [last])).astype(np.int32)


def _vectors(embed: Embed, rows: Sequence[np.ndarray]) -> np.ndarray:
    splits = np.cumsum([0, *map(len, rows)])
    return embed(np.concatenate(rows), splits, _BUDGET)[0]
