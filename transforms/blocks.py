"""Defines the blocks that travel between the stages, as columns: documents, tokens, vectors.

A block is a dataclass. Its columns are NumPy arrays, Arrow arrays and tables, lists, and ragged
records with `splits`; None stands for a column that a run does not have. What a part tells of
words that the vocabulary lacks is counted here, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from bert_embed.base.arrays import take, take_column, take_rows
from bert_embed.models.heads.kinds import KINDS, ROW_KINDS
from bert_embed.text.documents import TextTokenizer
from bert_embed.text.layout import KeptWindows, Layout
from bert_embed.transforms.parts import Part, UnknownWords

_Block = TypeVar("_Block")
_SAMPLED = 100  # elements of a list that are measured
_SMALL = 8  # bytes of a small value, and about what a list needs for an element


def grouped(numbers: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """int64 `[rows]`, which sorts integers; and of each number where it begins and ends there."""
    order = np.argsort(numbers, kind="stable")
    different, starts = np.unique(numbers[order], return_index=True)
    stops = [*starts[1:].tolist(), len(order)][: len(starts)]
    return order, list(zip(different.tolist(), starts.tolist(), stops, strict=True))


def join(blocks: Sequence[_Block]) -> _Block:
    """Joins the columns of blocks end to end; a column that the first block lacks stays None."""
    columns = zip(*(vars(block).values() for block in blocks), strict=True)
    return type(blocks[0])(*map(_joined, columns))


def _joined(columns: Sequence[Any]) -> Any:
    first = columns[0]
    if first is None:
        return None
    if isinstance(first, pa.Table):
        return pa.concat_tables(columns)
    if isinstance(first, pa.Array):
        return pa.concat_arrays(columns)
    return np.concatenate(columns) if isinstance(first, np.ndarray) else [*chain(*columns)]


def nbytes(value: Any) -> int:
    """About how many bytes a block has: its arrays exactly, lists by their first elements."""
    if isinstance(value, (np.ndarray, pa.Array, pa.ChunkedArray, pa.Table)):
        return value.nbytes
    if isinstance(value, (str, bytes)):
        return len(value) + _SMALL
    if isinstance(value, list | tuple):
        sample = value[:_SAMPLED]
        return _SMALL * len(value) + sum(map(nbytes, sample)) * len(value) // max(len(sample), 1)
    if isinstance(value, dict):
        return sum(map(nbytes, value.values()))
    if is_dataclass(value):
        return sum(nbytes(getattr(value, field.name)) for field in fields(value))
    return _SMALL


@dataclass(frozen=True)
class DocumentBlock:
    """The documents of a part, as columns."""

    part: Part
    ids: pa.StringArray  # [documents], unique in the run where the input's are
    texts: list[str]  # none of them blank
    sources: pa.StringArray  # [documents], file and position of each
    texts_b: list[str] | None = None  # "" for a document without; None: no pairs
    words: list[list[str] | None] | None = None  # None where a text did not come as a list of words
    contexts: list[str] | None = None  # before each chunk, "" without one; None: of no columns
    extra: pa.Table | None = None  # a row a document

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TokenBlock:
    """The rows of a part that the model runs on, as columns; others are as in `DocumentBlock`."""

    part: Part
    ids: pa.StringArray
    sources: pa.StringArray
    text_hash: np.ndarray  # int64 [documents], XXH3 of what `hashed_texts` returns
    layout: Layout  # the rows, one for each document, or windows
    extra: pa.Table | None = None
    texts: pa.StringArray | None = None  # [documents]; None: not kept

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens(self) -> np.ndarray:
        """int32 `[documents]`, special tokens and prompt included."""
        return self.layout.num_tokens

    @property
    def num_tokens_full(self) -> np.ndarray:
        """int32 `[documents]`, the same if nothing had been cut."""
        full = self.layout.num_tokens_full
        return self.num_tokens if full is None else full

    @property
    def truncated(self) -> np.ndarray:
        """bool `[documents]`, whether the text was cut."""
        return self.layout.truncated


@dataclass(frozen=True)
class TokenVectors:
    """A vector of every token, all documents end to end."""

    splits: np.ndarray  # int64 [documents + 1], where each begins and ends in the rest
    tokens: pa.StringArray  # [tokens], special tokens included
    segments: np.ndarray  # int32 [tokens], 0 for the first text and 1 for the second
    starts: np.ndarray  # int32 [tokens], code points in the text; -1 for special tokens
    stops: np.ndarray  # likewise
    vectors: np.ndarray  # float32 [tokens, width]


@dataclass(frozen=True)
class WordVectors:
    """A vector of every word, all documents end to end."""

    splits: np.ndarray  # int64 [documents + 1], where each begins and ends in the rest
    texts: pa.StringArray  # [units]
    starts: np.ndarray  # int32 [units], code points in the text
    stops: np.ndarray  # likewise
    truncated: np.ndarray  # bool [units], tokens of it were cut off
    missing: np.ndarray  # bool [units], all its tokens were cut off, so that it has no vector
    vectors: np.ndarray  # float32 [units, width]; without meaning where `missing`


@dataclass(frozen=True)
class EmbeddingBlock:
    """The vectors of a part, in its documents' order; other columns are as in `TokenBlock`."""

    part: Part
    ids: pa.StringArray
    num_tokens: np.ndarray  # int32 [documents]
    truncated: np.ndarray  # bool [documents]
    text_hash: np.ndarray
    vectors: np.ndarray | None = None  # float32 [documents or kept windows, width]
    windows: KeptWindows | None = None  # that the rows of `ROW_KINDS` are; None: documents
    tokens: TokenVectors | None = None  # this and the next: None: not requested
    words: WordVectors | None = None
    heads: dict[str, Any] = field(default_factory=dict)  # of documents or kept windows, by kind
    extra: pa.Table | None = None
    texts: pa.StringArray | None = None
    full_lengths: np.ndarray | None = None  # int32 [documents], uncut; None: nothing was cut
    computed_tokens: int = 0  # that the model ran on
    padded_tokens: int = 0  # the same with padding
    batches: int = 0  # that it ran
    compiled: int = 0  # shapes of batches that were compiled for them

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens_full(self) -> np.ndarray:
        """int32 `[documents]`: `num_tokens` if nothing had been cut."""
        return self.num_tokens if self.full_lengths is None else self.full_lengths

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of vectors it holds, in the order of `KINDS`."""
        return tuple(kind for kind in KINDS if self.of(kind) is not None)

    def of(self, kind: str) -> Any:
        """Returns the vectors of a kind; None if it holds none."""
        if kind in ROW_KINDS:
            return self.heads.get(kind)
        return self.vectors if kind == "sentence" else getattr(self, KINDS[kind].folder)


def take_documents(block: EmbeddingBlock, documents: np.ndarray) -> EmbeddingBlock:
    """The vectors of some documents, int64 `[kept]`, ascending."""
    if block.windows is None:
        return take(block, documents)
    at, _ = take_rows(block.windows.splits, documents)
    others = take(replace(block, vectors=None, heads={}), documents)
    vectors, heads = take_column(block.vectors, at), take_column(block.heads, at)
    return replace(others, vectors=vectors, heads=heads)


ROW_BITS = 32  # of a place are the row; the bits above them are the part


def places(part: int, rows: int) -> np.ndarray:
    """int64 `[rows]`: the places of all documents of a part, in one number each."""
    return (part << ROW_BITS) + np.arange(rows, dtype=np.int64)


def rows_of_part(places: np.ndarray, part: int) -> np.ndarray:
    """Row numbers of those of the sorted places that are in a part."""
    return places_of_part(places, part) - (part << ROW_BITS)


def places_of_part(places: np.ndarray, part: int) -> np.ndarray:
    """Those of the sorted places that are in a part."""
    first, last = np.searchsorted(places, [part << ROW_BITS, (part + 1) << ROW_BITS])
    return places[first:last]


def without_skipped(block: DocumentBlock, skipped: bytes) -> DocumentBlock:
    """The documents of a part without those of `BlockSpec.skipped`, which the part counts."""
    rows = rows_of_part(np.frombuffer(skipped, np.int64), block.part.number)
    if len(rows) == 0:
        return block
    rest = np.delete(np.arange(len(block)), rows)
    return replace(take(block, rest), part=replace(block.part, skipped=len(rows)))


_FOREIGN = 0.35  # share of a text's tokens, in English text of an English model 0.05 to 0.25
_FEW_TOKENS = 8  # of which a share tells nothing


def unknown_words(
    ids: np.ndarray,
    unk_id: int | None,
    tokenizer: TextTokenizer | None = None,
    splits: np.ndarray | None = None,
) -> UnknownWords:
    """Counts [UNK], and tokens that continue a word, in `ids`, int32 `[tokens]`.

    Also texts, int64 `splits` `[texts + 1]`, in languages that seem not to be the model's. No
    `unk_id`: the tokenizer can write every text.
    """
    unknown = 0 if unk_id is None else int(np.count_nonzero(ids == unk_id))
    if tokenizer is None or splits is None:
        return UnknownWords(len(ids), unknown)
    continuing = int(np.count_nonzero(tokenizer.continues_word[ids]))
    sums = np.append(0, np.cumsum(tokenizer.is_foreign[ids]))
    lengths, foreign = np.diff(splits), np.diff(sums[splits])
    texts = (lengths >= _FEW_TOKENS) & (foreign > _FOREIGN * lengths)
    return UnknownWords(len(ids), unknown, continuing, int(np.count_nonzero(texts)))
