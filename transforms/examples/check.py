"""Finds out what is wrong with the examples of a file."""

import logging
from dataclasses import dataclass

import numpy as np

from bert_embed.formats.tf_example import Column
from bert_embed.ragged import places, splits_of
from bert_embed.specs import TextSpec
from bert_embed.storage.errors import InputError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExampleReading:
    """What examples must be, and which of their vectors are requested."""

    tokenizer: str  # fingerprint; no other is accepted
    vocab_size: int  # token ids are below it
    segments: int  # segment ids are below it
    text_spec: TextSpec
    prompt_tokens: int = 0  # follow each [CLS]
    pad_id: int | None = None
    unk_id: int | None = None

    @property
    def windows(self) -> bool:
        """Whether a document may have several rows."""
        return self.text_spec.long_text == "window"


def feature_kinds(granularity: tuple[str, ...], windows: bool, keep_text: bool) -> dict[str, type]:
    """Which features are read of each example, and what they hold."""
    names = ["input_ids", "input_mask", "segment_ids", "starts", "stops"]
    names += ["num_tokens", "num_tokens_full", "truncated", "text_hash"]
    names += ["window", "windows", "window_first"] if windows else []
    for name in ("word", "span"):
        if name in granularity:
            names += [
                f"{name}_{suffix}" for suffix in ("starts", "stops", "first", "last", "truncated")
            ]
    kinds: dict[str, type] = dict.fromkeys(names, int)
    kinds |= {"id": bytes, "tokenizer": bytes} | ({"text": bytes} if keep_text else {})
    return kinds | ({"words": bytes} if "word" in granularity else {})


def check_tokenizer(column: Column, reading: ExampleReading, path: str, offsets: list[int]) -> None:
    """Raises InputError if an example names another tokenizer than the model's."""
    ours = reading.tokenizer.encode()
    for row in np.flatnonzero(column.first(ours) != ours)[:1].tolist():
        raise InputError(
            f"{path}: the example at byte {offsets[row]} comes from another tokenizer "
            f"({column.first(ours)[row].decode(errors='replace')}, the model's is "
            f"{reading.tokenizer}); tokenize the texts again with this model"
        )


def row_lengths(columns: dict[str, Column]) -> np.ndarray:
    """int64 `[rows]`: how many tokens the mask keeps; all of them where there is no mask."""
    mask = columns["input_mask"]
    sums = splits_of(mask.values)[mask.splits]
    return np.where(mask.counts > 0, np.diff(sums), columns["input_ids"].counts)


def row_problems(
    columns: dict[str, Column], lengths: np.ndarray, reading: ExampleReading
) -> list[str]:
    """The first problem of each row, "" for a row without one."""
    ids, mask, counts = columns["input_ids"], columns["input_mask"], columns["input_ids"].counts
    odd = np.zeros(len(counts), bool)
    for name in ("input_mask", "segment_ids", "starts", "stops"):
        counted = columns[name].counts
        odd |= (counted > 0) & (counted != counts)
    inside = places(np.zeros(len(mask.counts), np.int64), mask.counts)
    holes = mask.values != (inside < np.repeat(lengths, mask.counts))
    segments = columns["segment_ids"]
    problems = {
        "no input_ids": counts == 0,
        "features of a row differ in length": odd,
        "input_mask is not a run of ones": _any(holes, mask.splits),
        "no tokens": lengths < 1,
        "text too long": lengths > reading.text_spec.max_seq_length,
        "token id out of the vocabulary": _any(_outside(ids, reading.vocab_size), ids.splits),
        "segment id out of range": _any(_outside(segments, reading.segments), segments.splits),
    }
    for name in ("word", "span"):
        if name in reading.text_spec.granularity:
            problems[f"no {name}s that fit the row"] = _odd_units(columns, name)
    if reading.windows:
        problems["windows that leave gaps"] = _gaps(columns, lengths - reading.prompt_tokens - 2)
    first = [""] * len(counts)
    for reason, rows in problems.items():
        for row in np.flatnonzero(rows).tolist():
            first[row] = first[row] or reason
    return first


def _odd_units(columns: dict[str, Column], name: str) -> np.ndarray:
    """bool `[rows]`: units whose features differ in number, or that end before they begin."""
    first, last = columns[f"{name}_first"], columns[f"{name}_last"]
    others = [columns[f"{name}_{suffix}"] for suffix in ("starts", "stops", "truncated")]
    others += [columns["words"]] if name == "word" else []
    odd = first.counts != last.counts
    for other in others:
        odd |= other.counts != first.counts
    if odd.any():
        return odd
    return _any((first.values < 0) | (last.values < first.values), first.splits)


def _gaps(columns: dict[str, Column], counts: np.ndarray) -> np.ndarray:
    """bool `[rows]`: windows without a text, or with a gap after the window before."""
    first, number = columns["window_first"].first(0), columns["window"].first(0)
    before = np.append(0, first[:-1])[: len(first)]
    end = np.append(0, (first + counts)[:-1])[: len(first)]
    follows = (first > before) & (first <= end) & (first + counts > end)
    return (counts < 1) | np.where(number == 0, first != 0, ~follows)


def _outside(column: Column, size: int) -> np.ndarray:
    return (column.values < 0) | (column.values >= size)


def _any(flags: np.ndarray, splits: np.ndarray) -> np.ndarray:
    return np.diff(splits_of(flags)[splits]) > 0


def incomplete_documents(columns: dict[str, Column], document: np.ndarray) -> list[int]:
    """Documents that lack a window, by the number of windows that their first window names."""
    first, rows, counts = np.unique(document, return_index=True, return_counts=True)
    whole = columns["windows"].first(1)[rows] == counts
    whole &= columns["window"].first(0)[rows] == 0
    return first[~whole].tolist()


def warn_of_padding(columns: dict[str, Column], path: str, pad_id: int | None) -> None:
    """Logs how many examples end in [PAD] without an `input_mask` that excludes it."""
    ids = columns["input_ids"]
    last = ids.splits[1:][(columns["input_mask"].counts == 0) & (ids.counts > 0)] - 1
    padded = int((ids.values[last] == pad_id).sum())
    if padded:
        _LOG.warning(
            "%s: %d examples without input_mask end in [PAD], which is embedded like any token; "
            "leave the padding out, or write an input_mask of ones and zeros",
            path,
            padded,
        )
