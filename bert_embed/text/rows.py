"""Builds the rows of a BERT from token ids, and finds equal ones, to compute each once."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bert_embed.base.errors import InputError, counted
from bert_embed.base.ragged import places, splits_of, take_rows
from bert_embed.settings import SPECIAL_TOKENS


@dataclass(frozen=True)
class Rows:
    """Input rows of the model, end to end."""

    input_ids: np.ndarray  # int32 [tokens], special tokens included
    row_splits: np.ndarray  # int64 [rows + 1], where each row begins and ends
    token_type_ids: np.ndarray | None  # int32 [tokens], 1 for all but a row's first text
    truncated: np.ndarray  # bool [rows], whether tokens of the row's text were cut off


def build_rows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    ids_b: np.ndarray | None = None,
    row_splits_b: np.ndarray | None = None,
    separators: int = 1,
) -> Rows:
    """Builds `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` of at most `max_seq_length` tokens.

    Pairs lose tokens from the end of the longer text, or of the second if both are equally long, as
    in `_truncate_seq_pair` of google-research/bert. As there, an empty second text has no [SEP].
    `ids` are int32 `[tokens]`, all texts end to end, `row_splits` int64 `[rows + 1]`.

    >>> build_rows(np.array([7, 8, 9]), np.array([0, 1, 3]), 3, 101, 102).input_ids.tolist()
    [101, 7, 102, 101, 8, 102]
    """
    pairs = ids_b is not None
    if ids_b is None or row_splits_b is None:
        ids_b, row_splits_b = ids[:0], np.zeros_like(row_splits)
    special_of_pair = SPECIAL_TOKENS + separators
    if max_seq_length < (special_of_pair if pairs else SPECIAL_TOKENS):
        raise InputError(f"max_seq_length must leave room for special tokens, got {max_seq_length}")
    lengths_a, lengths_b = np.diff(row_splits), np.diff(row_splits_b)
    if len(lengths_a) != len(lengths_b):
        texts = counted(len(lengths_a), "text")
        raise InputError(f"{texts} cannot pair with {len(lengths_b):,} second")
    capacity = max_seq_length - np.where(lengths_b > 0, special_of_pair, SPECIAL_TOKENS)
    kept_a, kept_b = _longest_first(lengths_a, lengths_b, capacity)
    sizes_a, sizes_b = kept_a + SPECIAL_TOKENS, kept_b + separators * (kept_b > 0)
    splits = splits_of(sizes_a + sizes_b)
    starts = splits[:-1]
    out = np.full(splits[-1], sep_id, np.int32)
    out[starts] = cls_id
    truncated = kept_a + kept_b < lengths_a + lengths_b
    if not pairs:
        inner = np.ones(len(out), bool)
        inner[starts] = inner[splits[1:] - 1] = False
        out[inner] = ids[places(row_splits[:-1], kept_a)] if truncated.any() else ids
        return Rows(out, splits, None, truncated)
    out[places(starts + 1, kept_a)] = ids[places(row_splits[:-1], kept_a)]
    starts_b = starts + sizes_a + separators - 1
    out[places(starts_b, kept_b)] = ids_b[places(row_splits_b[:-1], kept_b)]
    pattern = np.tile(np.array([0, 1], np.int32), len(starts))
    types = np.repeat(pattern, np.stack([sizes_a, sizes_b], axis=1).reshape(-1))
    return Rows(out, splits, types, truncated)


def fill_rows(rows: Rows, length: int, fill_id: int) -> tuple[Rows, np.ndarray]:
    """Returns single texts' rows of at least `length` tokens, and int32, 0 for what was added.

    >>> rows = Rows(np.array([1, 2, 3], np.int32), np.array([0, 1, 3]), None, np.zeros(2, bool))
    >>> filled, is_text = fill_rows(rows, 2, 9)
    >>> filled.input_ids.tolist(), is_text.tolist()
    ([1, 9, 2, 3], [1, 0, 1, 1])
    """
    lengths = np.diff(rows.row_splits)
    splits = splits_of(np.maximum(lengths, length))
    ids = np.full(splits[-1], fill_id, np.int32)
    is_text = np.zeros(splits[-1], np.int32)
    at = places(splits[:-1], lengths)
    ids[at], is_text[at] = rows.input_ids, 1
    return Rows(ids, splits, None, rows.truncated), is_text


def _longest_first(
    lengths_a: np.ndarray, lengths_b: np.ndarray, capacity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many tokens of each text of a pair stay."""
    half_b = capacity // 2
    kept_b = np.minimum(lengths_b, np.maximum(half_b, capacity - lengths_a))
    return np.minimum(lengths_a, capacity - kept_b), kept_b


def unique_rows(rows: Rows, key: np.ndarray) -> tuple[Rows, np.ndarray]:
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
