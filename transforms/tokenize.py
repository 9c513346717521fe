"""Tokenizes blocks of documents into the rows of token ids that the model takes."""

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
import pyarrow as pa
import xxhash

from bert.graph.load import load_tokenizer
from bert.ragged import take_rows
from bert.specs import TextSpec
from transforms.records.block_coder import passed_as_block
from transforms.records.columnar import take
from transforms.records.documents import DocumentBlock
from transforms.records.rejected import Rejected
from transforms.records.step import Step
from transforms.records.tokens import TokenBlock
from transforms.redact import RedactErrors
from transforms.unknown_words import unknown_words
from transforms.worker_bundles import worker_bundle

if TYPE_CHECKING:
    from bert.rows.build import Rows
    from bert.tokenization.tokenizer import Tokenizer

NO_TOKENS, TOO_LONG = "no tokens", "text too long"
_PIECE_TOKENS = 1 << 16  # their sums fit into a core's cache
_FACTOR, _TOKEN_SHIFT = 0xBF58476D1CE4E5B9, np.uint64(0x9E3779B97F4A7C15)
_WORD_BORDER = "\x1f"  # the unit separator: keeps different lists of words different


@dataclass
class TokenizeBlocks(Step):
    """Tokenizes blocks of documents.

    Attributes:
        bundle: Folder of the model bundle, or where workers fetch it; opened on workers only.
        spec: How texts become rows.
        fingerprint: The model's; a bundle with another one is rejected. "" accepts any folder.
    """

    bundle: str
    spec: TextSpec
    fingerprint: str = ""

    def expand(self, blocks: beam.PCollection[DocumentBlock]) -> beam.PCollection[TokenBlock]:
        passed_as_block(TokenBlock)
        return blocks | "Tokenize" >> beam.ParDo(_Tokenize(self))


class _Tokenize(beam.DoFn):
    def __init__(self, settings: TokenizeBlocks) -> None:
        self._bundle, self._spec = settings.bundle, settings.spec
        self._fingerprint = settings.fingerprint

    def setup(self) -> None:
        self._tokenizer = load_tokenizer(worker_bundle(self._bundle, self._fingerprint))

    def process(self, block: DocumentBlock) -> Iterator[TokenBlock]:
        with RedactErrors("tokenize"):
            yield token_block(block, self._tokenizer, self._spec)


def token_block(block: DocumentBlock, tokenizer: "Tokenizer", spec: TextSpec) -> TokenBlock:
    """Tokenizes a block in one call; a text without tokens, or one too long, is rejected."""
    from bert.rows.documents import tokenize_documents
    from bert.rows.layout import is_too_long, lay_out

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
    bad = empty
    if spec.long_text == "reject":
        bad = empty | is_too_long(documents, spec, tokenizer)
    rejected = tuple(
        Rejected(
            block.ids[row].as_py(),
            block.sources[row].as_py(),
            "tokenize",
            NO_TOKENS if empty[row] else TOO_LONG,
            block.texts[row],
        )
        for row in np.flatnonzero(bad)
    )
    kept = np.flatnonzero(~bad)
    good = take(block, kept) if rejected else block
    documents = documents.take(kept)
    tokens = documents.tokens
    unknown = unknown_words(
        tokens.ids, tokens.row_splits, good.sources, tokenizer.unk_id, good.texts, tokenizer
    )
    rows, layout = lay_out(documents, spec, tokenizer)
    rows, row = unique_rows(rows, rows.input_ids)
    part = replace(block.part, unknown=unknown)
    return TokenBlock(
        part=part.then("tokenize", time.perf_counter() - started, rejected),
        ids=good.ids,
        sources=good.sources,
        text_hash=text_hashes(hashed_texts(good)),
        layout=layout,
        row=row,
        rows=rows,
        line_numbers=good.line_numbers,
        extra=good.extra,
        texts=pa.array(good.texts, pa.string()) if spec.keep_text else None,
    )


def unique_rows(rows: "Rows", key: np.ndarray) -> tuple["Rows", np.ndarray]:
    """Keeps one of several equal rows, so that each runs once.

    Args:
        rows: Rows of a block.
        key: int32 `[tokens]`, what must agree in equal rows.

    Returns:
        The distinct rows, and int32 `[rows]`, which of these each row equals.
    """
    first, row = distinct_rows(key, rows.row_splits)
    if len(first) == len(row):
        return rows, row
    at, splits = take_rows(rows.row_splits, first)
    types = None if rows.token_type_ids is None else rows.token_type_ids[at]
    return type(rows)(rows.input_ids[at], splits, types, rows.truncated[first]), row


def hashed_texts(block: DocumentBlock) -> list[str]:
    """The text that identifies a document's content: text, second text, words and spans."""
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
    """Finds equal rows.

    Rows are grouped by length and a 64-bit sum over their tokens, then compared token by token
    where that sum repeats, so that a collision never merges two rows.

    Args:
        input_ids: int32 `[tokens]`, with [CLS] and [SEP]; these determine where a second text
            begins, and so the type ids.
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
    """uint64 `[rows]`: the sum of each row's tokens, each times a power for its place in the row.

    Powers count from the start of a piece of rows, so the places in each row are not computed; the
    powers of the inverse then correct each sum.
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
