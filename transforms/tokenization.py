"""TokenizeBlocks: a block of documents in, its rows of token ids out."""

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
import pyarrow as pa
import xxhash

from bert.ragged import take_rows
from bert.text_spec import TextSpec
from transforms.block_coder import passed_as_block
from transforms.dead_letter import Rejected
from transforms.discretion import Discreet
from transforms.part import Part
from transforms.sources import DocumentBlock
from transforms.worker_bundles import worker_bundle

if TYPE_CHECKING:
    from bert.layout import Layout
    from bert.rows import Rows
    from bert.tokenizer import Tokenizer

NO_TOKENS, TOO_LONG = "no tokens", "text too long"
_PIECE_TOKENS = 1 << 16  # whose sums are computed in a core's cache
_FACTOR, _TOKEN_SHIFT = 0xBF58476D1CE4E5B9, np.uint64(0x9E3779B97F4A7C15)
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
        bundle: Folder of the model bundle, or where workers fetch it; opened on workers only.
        spec: How texts become rows.
        fingerprint: The model's; a bundle that has another one is refused. "" takes any folder's.
    """

    bundle: str
    spec: TextSpec
    fingerprint: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[TokenBlock]:
        passed_as_block(TokenBlock)
        return blocks | "Tokenize" >> beam.ParDo(_Tokenize(self))


class _Tokenize(beam.DoFn):
    def __init__(self, settings: TokenizeBlocks) -> None:
        self._bundle, self._spec = settings.bundle, settings.spec
        self._fingerprint = settings.fingerprint

    def setup(self) -> None:
        self._tokenizer = worker_bundle(self._bundle, self._fingerprint).load_tokenizer()

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
    sums = _row_sums(input_ids, row_splits)
    ordered = np.sort(sums)
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if len(repeated) == 0:
        return every, every.astype(np.int32)
    kind = np.searchsorted(repeated, sums)
    alike = np.flatnonzero(repeated[np.minimum(kind, len(repeated) - 1)] == sums)
    _, first, kind = np.unique(kind[alike], return_index=True, return_inverse=True)
    leader = every.copy()
    leader[alike] = alike[first][kind]
    for row in alike[leader[alike] != alike].tolist():
        if not _equal(input_ids, row_splits, row, int(leader[row])):
            leader[row] = row
    is_first = leader == every
    number = np.cumsum(is_first) - 1
    return np.flatnonzero(is_first), number[leader].astype(np.int32)


def _row_sums(input_ids: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
    """uint64 `[rows]`: of each row the sum of its tokens, each times a power that tells its place.

    Powers are counted from the first row of a piece on, which costs no look at where each row
    begins; each sum is brought back by the powers of the inverse.
    """
    borders = np.searchsorted(row_splits, np.arange(0, int(row_splits[-1]), _PIECE_TOKENS))
    pieces = pairwise(np.unique([*borders, len(row_splits) - 1]).tolist())
    sums = [np.empty(0, np.uint64)]
    for first, last in pieces:
        splits = row_splits[first : last + 1] - row_splits[first]
        powers, inverses = _powers(1 << int(splits[-1]).bit_length())
        mixed = input_ids[row_splits[first] : row_splits[last]].astype(np.uint64)
        mixed += _TOKEN_SHIFT
        mixed *= powers[: len(mixed)]
        sums.append(np.add.reduceat(mixed, splits[:-1]) * inverses[splits[:-1]])
    return np.concatenate(sums)


@functools.lru_cache(maxsize=4)
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The powers of an odd number from 0 on, and those of its inverse, uint64 `[count]` each."""
    factors = np.ones((2, count), np.uint64)
    factors[:, 1:] = np.array([[_FACTOR], [pow(_FACTOR, -1, 1 << 64)]], np.uint64)
    powers, inverses = np.multiply.accumulate(factors, axis=1)
    return powers, inverses


def _equal(input_ids: np.ndarray, row_splits: np.ndarray, left: int, right: int) -> bool:
    one = input_ids[row_splits[left] : row_splits[left + 1]]
    other = input_ids[row_splits[right] : row_splits[right + 1]]
    return np.array_equal(one, other)
