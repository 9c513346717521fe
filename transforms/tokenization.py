"""TokenizeBlocks: a block of documents in, its rows of token ids out."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
import pyarrow as pa
import xxhash

from bert.ragged import take_rows
from bert.text_spec import TextSpec
from transforms.dead_letter import Rejected
from transforms.discretion import Discreet
from transforms.part import Part
from transforms.sources import DocumentBlock

if TYPE_CHECKING:
    from bert.layout import Layout
    from bert.rows import Rows
    from bert.tokenizer import Tokenizer

NO_TOKENS, TOO_LONG = "no tokens", "text too long"
_WORD_BORDER = "\x1f"  # the unit separator: two lists of words are never the same for it


@dataclass(frozen=True)
class TokenBlock:
    """The rows of a part that the model runs on, as columns.

    Attributes:
        part: What was read and refused so far.
        ids: Arrow strings `[documents]`.
        sources: Arrow strings `[documents]`, file and position of each.
        text_hash: int64 `[documents]`, XXH3 of each text's UTF-8.
        layout: How the documents were cut to rows: one each, or windows.
        row: int32 `[rows of the layout]`, which of the distinct rows each is equal to.
        rows: The distinct rows, with [CLS] and [SEP].
        line_numbers: int64 `[documents]`, 0-based number of each line in its file; None where not
            known.
        extra: Columns of the input that go with the vectors, a row a document; None where none
            were asked for.
    """

    part: Part
    ids: pa.StringArray
    sources: pa.StringArray
    text_hash: np.ndarray
    layout: "Layout"
    row: np.ndarray
    rows: "Rows"
    line_numbers: np.ndarray | None = None
    extra: pa.Table | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the large columns, about what an element of this kind weighs."""
        arrays = [self.text_hash, self.row, self.rows.input_ids, self.rows.row_splits]
        if self.layout.tokens is not None:
            arrays += vars(self.layout.tokens).values()
        extra = 0 if self.extra is None else self.extra.nbytes
        return sum(each.nbytes for each in arrays) + self.ids.nbytes + extra


@dataclass
class TokenizeBlocks(beam.PTransform):
    """Documents to the rows of tokens that the model takes.

    Attributes:
        bundle: Folder of the model bundle; opened on workers only.
        spec: How texts become rows.
    """

    bundle: str
    spec: TextSpec

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[TokenBlock]:
        return blocks | "Tokenize" >> beam.ParDo(_Tokenize(self.bundle, self.spec))


class _Tokenize(beam.DoFn):
    def __init__(self, bundle: str, spec: TextSpec) -> None:
        self._bundle, self._spec = bundle, spec

    def setup(self) -> None:
        from bert.bundle import read_bundle

        self._tokenizer = read_bundle(self._bundle).load_tokenizer()

    def process(self, block: DocumentBlock) -> Iterator[TokenBlock]:
        with Discreet("tokenize"):
            yield token_block(block, self._tokenizer, self._spec)


def token_block(block: DocumentBlock, tokenizer: "Tokenizer", spec: TextSpec) -> TokenBlock:
    """Tokenizes a block in one call; a text without any token, or too long a one, is rejected."""
    from bert.documents import tokenize_documents
    from bert.layout import is_too_long, lay_out
    from bert.rows import Rows

    started = time.perf_counter()
    documents = tokenize_documents(
        tokenizer,
        block.texts,
        offsets=spec.needs_tokens or spec.keeps_windows,
        prompt=spec.prompt,
        texts_b=block.texts_b,
        words=block.words,
        spans=block.spans,
    )
    empty = documents.lengths == 0
    refused = empty
    if spec.long_text == "reject":
        refused = empty | is_too_long(documents, spec)
    rejected = tuple(
        Rejected(
            block.ids[row].as_py(),
            block.sources[row].as_py(),
            "tokenize",
            NO_TOKENS if empty[row] else TOO_LONG,
            block.texts[row],
        )
        for row in np.flatnonzero(refused)
    )
    kept = np.flatnonzero(~refused)
    chosen = pa.array(kept)
    rows, layout = lay_out(documents.take(kept), spec, tokenizer)
    first, row = distinct_rows(rows.input_ids, rows.row_splits)
    if len(first) < len(row):
        at, splits = take_rows(rows.row_splits, first)
        types = None if rows.token_type_ids is None else rows.token_type_ids[at]
        rows = Rows(rows.input_ids[at], splits, types, rows.truncated[first])
    return TokenBlock(
        part=block.part.then("tokenize", time.perf_counter() - started, rejected),
        ids=block.ids.take(chosen) if rejected else block.ids,
        sources=block.sources.take(chosen) if rejected else block.sources,
        text_hash=text_hashes(hashed_texts(block))[kept],
        layout=layout,
        row=row,
        rows=rows,
        line_numbers=None if block.line_numbers is None else block.line_numbers[kept],
        extra=block.extra.take(chosen) if rejected and block.extra is not None else block.extra,
    )


def hashed_texts(block: DocumentBlock) -> list[str]:
    """What tells a document's content: its text, both texts of a pair, or its words; its spans."""
    texts = block.texts
    if block.words is not None:
        texts = [
            text if own is None else _WORD_BORDER.join(own)
            for text, own in zip(texts, block.words, strict=True)
        ]
    if block.texts_b is not None:
        texts = [
            f"{one}{_WORD_BORDER}{other}" if other else one
            for one, other in zip(texts, block.texts_b, strict=True)
        ]
    if block.spans is not None:
        texts = [
            _WORD_BORDER.join([text, *(f"{start}:{stop}" for start, stop in spans)])
            for text, spans in zip(texts, block.spans, strict=True)
        ]
    return texts


def text_hashes(texts: list[str]) -> np.ndarray:
    """int64 `[texts]`: XXH3 (64 bits, seed 0) of each text's UTF-8, as a signed number."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(text.encode()) for text in texts], np.uint64).view(np.int64)


def distinct_rows(input_ids: np.ndarray, row_splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds equal rows, so that each runs once.

    Rows are grouped by length and a 64-bit sum over their tokens, then compared token by token
    where that sum repeats, so that a collision never merges two rows.

    Args:
        input_ids: int32 `[tokens]`, with [CLS] and [SEP]; where a second text begins, and so a
            row's type ids, follows from these.
        row_splits: int64 `[rows + 1]`; none is empty.

    Returns:
        int64 `[distinct]`, the first row of each kind in order, and int32 `[rows]`, which of these
        each row equals.
    """
    every = np.arange(len(row_splits) - 1)
    if len(every) == 0:
        return every, np.empty(0, np.int32)
    _, first, kind = np.unique(
        _row_sums(input_ids, row_splits), return_index=True, return_inverse=True
    )
    if len(first) == len(every):
        return every, every.astype(np.int32)
    leader = first[kind]
    for row in np.flatnonzero(leader != every).tolist():
        if not _equal(input_ids, row_splits, row, int(leader[row])):
            leader[row] = row
    firsts, number = np.unique(leader, return_inverse=True)
    return firsts, number.astype(np.int32)


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
