"""Splits long texts into rows that overlap, and merges the vectors of these windows."""

from dataclasses import dataclass

import numpy as np

from bert_embed.ragged import places, splits_of
from bert_embed.rows.build import Rows
from bert_embed.specs import DEFAULT_STRIDE, SPECIAL_TOKENS, text_room
from bert_embed.storage.errors import SettingError


@dataclass(frozen=True)
class Windows:
    """The tokens of its text that each row holds."""

    splits: np.ndarray  # int64 [documents + 1], the windows of each document, at least one
    first: np.ndarray  # int64 [windows], the number of a window's first token in its text
    count: np.ndarray  # int64 [windows], number of tokens of the text in it

    @property
    def document(self) -> np.ndarray:
        """int64 `[windows]`, the document of each."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))


def window_tokens(max_seq_length: int, prompt_tokens: int, stride: int) -> int:
    """Returns how many tokens of a text fit a window; SettingError if not more than `stride`."""
    longest = text_room(max_seq_length, prompt_tokens)
    if not 0 <= stride < longest:
        raise SettingError(
            "stride",
            f"must be at least 0 and below {max(longest, 1)}, the tokens of a text that fit a row "
            f"of max_seq_length {max_seq_length}, got {stride}",
            "max_seq_length",
        )
    return longest


def default_stride(max_seq_length: int, prompt_tokens: int) -> int:
    """Returns the default number of shared tokens: 64, or half of a short window.

    >>> default_stride(512, 0), default_stride(64, 0)
    (64, 31)
    """
    return max(0, min(DEFAULT_STRIDE, text_room(max_seq_length, prompt_tokens) // 2))


def build_windows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    stride: int,
    prompt_tokens: int = 0,
) -> tuple[Rows, Windows]:
    """Rows of `[CLS]`, prompt, tokens, `[SEP]` that cover each text, none of them empty.

    `ids` are int32 `[tokens]`, all texts end to end, each after its prompt; `row_splits` int64
    `[documents + 1]`. Neighbouring rows of a text that does not fit one share `stride` tokens.
    """
    longest = window_tokens(max_seq_length, prompt_tokens, stride)
    lengths = np.diff(row_splits) - prompt_tokens
    step = longest - stride
    counts = np.where(lengths <= longest, 1, -(-(lengths - stride) // step))
    splits = splits_of(counts)
    document = np.repeat(np.arange(len(lengths)), counts)
    first = (np.arange(splits[-1]) - splits[document]) * step
    windows = Windows(splits, first, np.minimum(longest, lengths[document] - first))
    return window_rows(ids, row_splits, windows, cls_id, sep_id, prompt_tokens), windows


def window_rows(
    ids: np.ndarray,
    row_splits: np.ndarray,
    windows: Windows,
    cls_id: int,
    sep_id: int,
    prompt_tokens: int = 0,
) -> Rows:
    """Builds a row `[CLS] prompt tokens [SEP]` for each window; arguments as `build_windows`."""
    document = windows.document
    borders = splits_of(windows.count + prompt_tokens + SPECIAL_TOKENS)
    out = np.full(borders[-1], sep_id, np.int32)
    out[borders[:-1]] = cls_id
    begins, prompt = row_splits[document], np.full(len(document), prompt_tokens)
    after_cls = borders[:-1] + 1
    out[places(after_cls, prompt)] = ids[places(begins, prompt)]
    texts = places(begins + prompt_tokens + windows.first, windows.count)
    out[places(after_cls + prompt_tokens, windows.count)] = ids[texts]
    return Rows(out, borders, None, np.zeros(len(document), bool))


def merge_windows(vectors: np.ndarray, windows: Windows) -> np.ndarray:
    """float32 `[documents, width]`: means of windows by tokens; one stays as it is."""
    begins = windows.splits[:-1]
    merged = vectors[begins]
    for document in np.flatnonzero(np.diff(windows.splits) > 1):
        several = slice(windows.splits[document], windows.splits[document + 1])
        merged[document] = np.average(vectors[several], axis=0, weights=windows.count[several])
    return merged


def widest_context(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """int64 `[tokens of all texts]` each: the window with most context, and the place in it.

    The rule is that of `_check_is_max_context` in google-research/bert's run_squad.py: the largest
    smaller side, then the longer window, then the earlier one.
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
