"""TokenizeBlocks: a block of documents in, its rows of token ids out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
import pyarrow as pa
import xxhash

from transforms.dead_letter import Rejected
from transforms.part import Part
from transforms.sources import DocumentBlock

if TYPE_CHECKING:
    from bert.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenBlock:
    """The rows of a part that the model runs on, as columns.

    Attributes:
        part: What was read and refused so far.
        ids: Arrow strings `[documents]`.
        sources: Arrow strings `[documents]`, file and position of each.
        text_hash: int64 `[documents]`, XXH3 of each text's UTF-8.
        num_tokens: int32 `[documents]`, special tokens included.
        truncated: bool `[documents]`, whether the text was cut.
        row: int32 `[documents]`, the row that each document's vector comes from.
        input_ids: int32 `[tokens]`, the distinct rows end to end, with [CLS] and [SEP].
        row_splits: int64 `[rows + 1]`, where each row begins and ends.
    """

    part: Part
    ids: pa.StringArray
    sources: pa.StringArray
    text_hash: np.ndarray
    num_tokens: np.ndarray
    truncated: np.ndarray
    row: np.ndarray
    input_ids: np.ndarray
    row_splits: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, what an element of this kind weighs."""
        arrays = (self.text_hash, self.num_tokens, self.truncated, self.row, self.input_ids)
        return sum(a.nbytes for a in arrays) + self.ids.nbytes + self.row_splits.nbytes


@dataclass
class TokenizeBlocks(beam.PTransform):
    """Documents to rows of at most `max_seq_length` tokens, longer texts cut.

    Attributes:
        bundle: Folder of the model bundle; opened on workers only.
        max_seq_length: Most tokens of a row, [CLS] and [SEP] included.
    """

    bundle: str
    max_seq_length: int

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[TokenBlock]:
        return blocks | "Tokenize" >> beam.ParDo(_Tokenize(self.bundle, self.max_seq_length))


class _Tokenize(beam.DoFn):
    def __init__(self, bundle: str, max_seq_length: int) -> None:
        self._bundle, self._max_seq_length = bundle, max_seq_length

    def setup(self) -> None:
        from bert.bundle import read_bundle

        self._tokenizer = read_bundle(self._bundle).load_tokenizer()

    def process(self, block: DocumentBlock) -> Iterator[TokenBlock]:
        yield token_block(block, self._tokenizer, self._max_seq_length)


def token_block(block: DocumentBlock, tokenizer: "Tokenizer", max_seq_length: int) -> TokenBlock:
    """Tokenizes a block in one call; a text without any token is rejected."""
    from bert.rows import build_rows

    started = time.perf_counter()
    ids, row_splits = tokenizer.encode_flat(block.texts)
    lengths = np.diff(row_splits)
    empty = np.flatnonzero(lengths == 0)
    rejected = tuple(
        Rejected(
            block.ids[row].as_py(),
            block.sources[row].as_py(),
            "tokenize",
            "no tokens",
            block.texts[row],
        )
        for row in empty
    )
    rows = build_rows(ids, row_splits, max_seq_length, tokenizer.cls_id, tokenizer.sep_id)
    hashes = text_hashes(block.texts)
    kept = np.flatnonzero(lengths)
    first, row = distinct_rows(rows.input_ids, rows.row_splits, kept)
    num_tokens = np.diff(rows.row_splits)[kept].astype(np.int32)
    input_ids, splits = take_rows(rows.input_ids, rows.row_splits, first)
    chosen = pa.array(kept)
    return TokenBlock(
        part=block.part.then("tokenize", time.perf_counter() - started, rejected),
        ids=block.ids.take(chosen) if len(empty) else block.ids,
        sources=block.sources.take(chosen) if len(empty) else block.sources,
        text_hash=hashes[kept],
        num_tokens=num_tokens,
        truncated=rows.truncated[kept],
        row=row,
        input_ids=input_ids,
        row_splits=splits,
    )


def text_hashes(texts: list[str]) -> np.ndarray:
    """int64 `[texts]`: XXH3 (64 bits, seed 0) of each text's UTF-8, as a signed number."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(text.encode()) for text in texts], np.uint64).view(np.int64)


def distinct_rows(
    input_ids: np.ndarray, row_splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Finds equal rows, so that each runs once.

    Rows are grouped by length and a 64-bit sum over their tokens, then compared token by token
    where that sum repeats, so that a collision never merges two rows.

    Args:
        input_ids: int32 `[tokens]`.
        row_splits: int64 `[all rows + 1]`.
        rows: int64 `[documents]`, the rows that count; none of them empty.

    Returns:
        int64 `[distinct]`, the first row of each kind in order, and int32 `[documents]`, which of
        these each document's row equals.
    """
    if len(rows) == 0:
        return rows.astype(np.int64), np.empty(0, np.int32)
    sums = _row_sums(input_ids, row_splits)[rows]
    _, first, kind = np.unique(sums, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return rows, np.arange(len(rows), dtype=np.int32)
    leader = first[kind]
    for document in np.flatnonzero(leader != np.arange(len(rows))):
        if not _equal(input_ids, row_splits, rows[document], rows[leader[document]]):
            leader[document] = document
    firsts, row = np.unique(leader, return_inverse=True)
    return rows[firsts], row.astype(np.int32)


def _row_sums(input_ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
    lengths = np.diff(row_splits)
    place = np.arange(len(input_ids), dtype=np.uint64) - np.repeat(
        row_splits[:-1].astype(np.uint64), lengths
    )
    # Odd multipliers by place and token spread both over 64 bits before they are summed.
    mixed = (input_ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * (
        np.uint64(0xBF58476D1CE4E5B9) * (np.uint64(2) * place + np.uint64(1))
    )
    mixed ^= mixed >> np.uint64(29)
    return np.add.reduceat(mixed, row_splits[:-1]) if len(mixed) else mixed


def _equal(input_ids: np.ndarray, row_splits: np.ndarray, left: int, right: int) -> bool:
    one = input_ids[row_splits[left] : row_splits[left + 1]]
    other = input_ids[row_splits[right] : row_splits[right + 1]]
    return np.array_equal(one, other)


def take_rows(
    values: np.ndarray, row_splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of a flat array, end to end: their values, and int64 `[rows + 1]` splits."""
    if len(rows) == len(row_splits) - 1:
        return values, row_splits
    lengths = np.diff(row_splits)[rows]
    splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    places = np.arange(splits[-1]) + np.repeat(row_splits[rows] - splits[:-1], lengths)
    return values[places], splits
