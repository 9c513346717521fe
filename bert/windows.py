"""Windows: texts longer than a row in, rows that overlap out, and their vectors merged again."""

from dataclasses import dataclass

import numpy as np

from bert.ragged import places, splits_of
from bert.rows import Rows

_STRIDE = 64


@dataclass(frozen=True)
class Windows:
    """Which tokens of its text each row holds.

    Attributes:
        splits: int64 `[documents + 1]`, the windows of each document; every one has some.
        first: int64 `[windows]`, the number in its text of a window's first token.
        count: int64 `[windows]`, tokens of the text in it.
    """

    splits: np.ndarray
    first: np.ndarray
    count: np.ndarray

    @property
    def document(self) -> np.ndarray:
        """int64 `[windows]`, the document of each."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))


def window_room(max_seq_length: int, prompt_tokens: int, stride: int) -> int:
    """How many tokens of a text a window has room for.

    Raises:
        ValueError: So few that windows sharing `stride` tokens would never get on.
    """
    room = max_seq_length - prompt_tokens - 2
    if not 0 <= stride < room:
        raise ValueError(
            f"--stride must be at least 0 and below {max(room, 1)}, the tokens of a text that fit "
            f"a row of --max_seq_length {max_seq_length}, got {stride}"
        )
    return room


def default_stride(max_seq_length: int, prompt_tokens: int) -> int:
    """Tokens that windows share unless told otherwise: 64, in short rows half of a window.

    >>> default_stride(512, 0), default_stride(64, 0)
    (64, 31)
    """
    return max(0, min(_STRIDE, (max_seq_length - prompt_tokens - 2) // 2))


def build_windows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    stride: int,
    prompt_tokens: int = 0,
) -> tuple[Rows, Windows]:
    """Builds `[CLS] prompt tokens [SEP]` rows that cover each text from start to end.

    A text that fits is one row; of a longer one neighbouring rows share `stride` tokens.

    Args:
        ids: int32 `[tokens]`, the texts end to end, each beginning with the prompt's tokens.
        row_splits: int64 `[documents + 1]`, their borders; no text is empty.
        max_seq_length: Most tokens of a row, special tokens included.
        cls_id: What a row begins with.
        sep_id: What it ends with.
        stride: Tokens that neighbours share.
        prompt_tokens: Tokens of the prompt, which stands in every row.

    Raises:
        ValueError: `stride` leaves no room to move on.
    """
    room = window_room(max_seq_length, prompt_tokens, stride)
    lengths = np.diff(row_splits) - prompt_tokens
    step = room - stride
    counts = np.where(lengths <= room, 1, -(-(lengths - stride) // step))
    splits = splits_of(counts)
    document = np.repeat(np.arange(len(lengths)), counts)
    first = (np.arange(splits[-1]) - splits[document]) * step
    windows = Windows(splits, first, np.minimum(room, lengths[document] - first))
    borders = splits_of(windows.count + prompt_tokens + 2)
    out = np.full(borders[-1], sep_id, np.int32)
    out[borders[:-1]] = cls_id
    begins, prompt = row_splits[document], np.full(len(document), prompt_tokens)
    out[places(borders[:-1] + 1, prompt)] = ids[places(begins, prompt)]
    texts = places(begins + prompt_tokens + first, windows.count)
    out[places(borders[:-1] + 1 + prompt_tokens, windows.count)] = ids[texts]
    return Rows(out, borders, None, np.zeros(len(document), bool)), windows


def merge_windows(vectors: np.ndarray, windows: Windows) -> np.ndarray:
    """Means of the vectors of each document's windows, weighted by their tokens.

    A document of one window keeps that window's very numbers.

    Args:
        vectors: float32 `[windows, width]`.
        windows: Whose they are.

    Returns:
        float32 `[documents, width]`.
    """
    begins = windows.splits[:-1]
    merged = vectors[begins]
    for document in np.flatnonzero(np.diff(windows.splits) > 1):
        several = slice(windows.splits[document], windows.splits[document + 1])
        merged[document] = np.average(vectors[several], axis=0, weights=windows.count[several])
    return merged


def widest_context(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Chooses, for every token of every text, the window where it sees most to both sides.

    The rule is that of `_check_is_max_context` in google-research/bert's run_squad.py: the most of
    the smaller side, then of the longer window, then the earlier one.

    Returns:
        int64 `[tokens of all texts]` each: the window, and the token's number in that window's
        part of the text.
    """
    window = np.repeat(np.arange(len(windows.count)), windows.count)
    inside = places(np.zeros(len(windows.count), np.int64), windows.count)
    sides = np.minimum(inside, windows.count[window] - 1 - inside)
    score = sides + 0.01 * windows.count[window]
    token = windows.first[window] + inside
    document = windows.document[window]
    order = np.lexsort((window, -score, token, document))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(token[order]) != 0) | (np.diff(document[order]) != 0)
    best = order[new]
    return window[best], inside[best]
