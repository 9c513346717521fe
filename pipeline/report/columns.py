"""Turns extra columns into colours of the map: categories, numbers, or texts that only show."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

_MOST_CATEGORIES = 10  # as many as there are colours that can be told apart
_LETTERS = 60  # of a value


def column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A column as the page takes it.

    Its `kind` is `category` (few different values: their `labels`, and the number of a label a
    row), `number` (a number or null a row) or `text`.

    >>> column("lang", ["en", "de", "en", None])["labels"], column("year", [1, 2.5, 3])["values"]
    (['en', 'de', '(none)'], [1, 2.5, 3])
    """
    plain = [_shown(value) for value in values]
    counts = Counter(plain)
    numeric = all(value is None or isinstance(value, int | float) for value in values)
    numeric &= not any(isinstance(value, bool) for value in values)
    if len(counts) <= _MOST_CATEGORIES and not (numeric and len(counts) > 2):
        labels = sorted(counts, key=lambda label: -counts[label])
        number = {label: at for at, label in enumerate(labels)}
        return {
            "name": name,
            "kind": "category",
            "labels": labels,
            "values": [number[label] for label in plain],
        }
    if numeric:
        return {"name": name, "kind": "number", "values": [_number(value) for value in values]}
    return {"name": name, "kind": "text", "values": plain}


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))[:_LETTERS]
    return " ".join(str(value)[: 4 * _LETTERS].split())[:_LETTERS]


def _number(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")
