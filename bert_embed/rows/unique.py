"""Finds equal rows of tokens, so that the model computes each once."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bert_embed.ragged import take_rows

if TYPE_CHECKING:
    from bert_embed.rows.build import Rows


def unique_rows(rows: "Rows", key: np.ndarray) -> tuple["Rows", np.ndarray]:
    """Rows distinct by `key`, int32 `[tokens]`, and int32 `[rows]`, which of these each equals."""
    data, borders = key.tobytes(), (rows.row_splits * key.itemsize).tolist()
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    row = np.empty(len(borders) - 1, np.int32)
    for place, (start, stop) in enumerate(pairwise(borders)):
        number = numbers.setdefault(data[start:stop], len(numbers))
        if number == len(first):
            first.append(place)
        row[place] = number
    if len(first) == len(row):
        return rows, row
    at, splits = take_rows(rows.row_splits, np.array(first))
    types = None if rows.token_type_ids is None else rows.token_type_ids[at]
    return type(rows)(rows.input_ids[at], splits, types, rows.truncated[first]), row
